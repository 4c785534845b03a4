"""A table by JDBC holds every batch once, whoever wrote it and however often. Derby comes with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import BadInputError
from penstock.engines.fused.sinks.table_writer import BATCHES, TableWriter, bare_name, beside
from penstock.spark.internals.jdbc import Jdbc

URL = "jdbc:derby:memory:penstock;create=true"


@pytest.fixture(autouse=True)
def log_of_derby(session: Any, tmp_path: Path) -> None:
    session.sparkContext._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))


def writer(session: Any, owner: str = "run-table", name: str = "orders") -> TableWriter:
    made = TableWriter(session, "sink 'table'", {"url": URL, "dbtable": name}, owner)
    made.prepare()
    return made


def table(session: Any, name: str) -> list[Any]:
    return sorted(tuple(row) for row in session.read.format("jdbc").options(url=URL, dbtable=name).load().collect())


def tables(session: Any) -> set[str]:
    options = {"url": URL, "dbtable": "SYS.SYSTABLES"}
    found = session.read.format("jdbc").options(**options).load().where("TABLETYPE = 'T'").collect()
    return {row["TABLENAME"] for row in found}


def test_a_batch_that_is_written_again_is_there_once(session: Any) -> None:
    first, again = session.range(0, 3), session.range(3, 5)
    one = writer(session)
    one.write(first, 0)
    one.write(first, 0)
    one.write(again, 1)
    # its process died after it had staged another batch: one that goes on knows what was committed
    left = {"url": URL, "dbtable": one._staged}
    session.range(5, 9).write.format("jdbc").options(**left).mode("overwrite").save()
    other = writer(session)
    other.write(again, 1)
    other.write(session.range(5, 9), 2)
    assert table(session, "orders") == [(number,) for number in range(9)]
    assert table(session, BATCHES) == [("run-table", 2)]
    # another run that writes to the same table counts its own batches
    writer(session, "other-run").write(session.range(9, 10), 0)
    assert len(table(session, "orders")) == 10
    assert tables(session) == {"ORDERS", BATCHES.upper()}


@pytest.mark.parametrize(
    ("table", "bare", "staged"),
    [
        ("orders", "orders", "orders_s"),
        ("shop.orders", "orders", "shop.orders_s"),
        ('"Orders"', "Orders", '"Orders_s"'),
        ('"my shop"."New.Orders"', "New.Orders", '"my shop"."New.Orders_s"'),
        ("shop.`orders`", "orders", "shop.`orders_s`"),
        ("[dbo].[Orders]", "Orders", "[dbo].[Orders_s]"),
    ],
)
def test_a_table_beside_another_is_quoted_as_that_is(table: str, bare: str, staged: str) -> None:
    assert bare_name(table) == bare
    assert beside(table, f"{bare}_s") == staged


def test_a_quoted_table_holds_its_batches_and_what_was_left_is_dropped(session: Any) -> None:
    first = writer(session, "run-quoted", '"Mixed Case"')
    first.write(session.range(0, 3), 0)
    left = {"url": URL, "dbtable": first._staged}
    session.range(5, 9).write.format("jdbc").options(**left).mode("overwrite").save()
    writer(session, "run-quoted", '"Mixed Case"').write(session.range(3, 4), 1)
    assert table(session, '"Mixed Case"') == [(number,) for number in range(4)]
    assert {name for name in tables(session) if name.startswith("Mixed")} == {"Mixed Case"}


def test_a_table_that_cannot_be_reached_is_one_line(session: Any) -> None:
    with pytest.raises(BadInputError, match=r"^sink 'table': .*driver"):
        TableWriter(session, "sink 'table'", {"url": "jdbc:nobody:x", "dbtable": "t"}, "run").prepare()
    with pytest.raises(BadInputError, match=r"^sink 'table': format jdbc needs options: dbtable$"):
        TableWriter(session, "sink 'table'", {"url": URL}, "run")


@pytest.mark.parametrize(("url", "quoted"), [(URL, '"a b", "c"'), ("jdbc:mysql://host/shop", "`a b`, `c`")])
def test_names_are_quoted_as_the_database_does(session: Any, url: str, quoted: str) -> None:
    assert Jdbc(session, {"url": url}).quoted(["a b", "c"]) == quoted
