"""The queries of examples/queries run as pipelines, and their answers are those of plain Python over the same data."""

from __future__ import annotations

import importlib.util
import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import penstock

QUERIES = Path(__file__).parents[2] / "examples" / "queries"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, QUERIES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DATA = load("make_data")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    DATA.write(tmp_path / "data")
    return tmp_path


def run(session: Any, module: str, attribute: str, here: Path, **more: Any) -> penstock.types.RunResult:
    # paths in the examples are relative to the current folder; a session's own is where it was started
    pipeline = getattr(load(module), attribute).build()
    operators = [_moved(operator, here) for operator in pipeline.operators.values()]
    moved = penstock.Pipeline.of(pipeline.name, operators, pipeline.streams)
    result: penstock.types.RunResult = penstock.run(moved, session=session, slots=2, until_end=True, **more)
    return result


def _moved(operator: penstock.Operator, here: Path) -> penstock.Operator:
    if "path" not in operator.options:
        return operator
    return operator.model_copy(
        update={"options": {**operator.options, "path": str(here / str(operator.options["path"]))}}
    )


def rows(folder: Path, format: str = "parquet") -> list[dict[str, Any]]:  # noqa: A002 - as Spark calls it
    partitioning = "hive" if any(path.is_dir() and "=" in path.name for path in folder.iterdir()) else None
    found: list[dict[str, Any]] = ds.dataset(folder, format=format, partitioning=partitioning).to_table().to_pylist()
    return found


def test_window_counts(session: Any, data: Path) -> None:
    result = run(session, "window_counts", "counts", data)
    expected: Counter[tuple[str, str]] = Counter((o["user"], o["ts"][:16]) for o in DATA.orders())
    seen = {
        (row["user"], row["window"]["start"].isoformat()[:16]): row["orders"]
        for row in rows(data / "out/window-counts")
    }
    assert seen == dict(expected)
    # all of them with every batch
    assert result.report.operators["per_minute"].sent >= len(seen)


def test_deduplicate(session: Any, data: Path) -> None:
    result = run(session, "deduplicate", "once", data)
    assert sorted(row["order"] for row in rows(data / "out/deduplicate")) == list(range(600))
    assert result.report.audit.emitted == len(DATA.orders())
    assert result.report.operators["distinct"].received == len(DATA.orders())
    assert result.report.operators["distinct"].sent == result.report.operators["kept"].received == 600


@pytest.fixture
def read_from_here(session: Any, data: Path) -> Iterator[None]:
    """Relative paths inside an example's own code: Java has its folder from when it was started, Hadoop can change."""
    hadoop: Any = session.sparkContext._jvm.org.apache.hadoop.fs
    files = hadoop.Path("file:///").getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(data)))
    yield
    files.setWorkingDirectory(before)


@pytest.mark.usefixtures("read_from_here")
def test_join_with_table(session: Any, data: Path) -> None:
    run(session, "join_with_table", "located", data)
    countries = {user: "NL" if number % 2 else "DE" for number, user in enumerate(DATA.USERS[:-1])}
    expected = Counter(countries.get(o["user"], "unknown") for o in DATA.orders())
    assert Counter(row["country"] for row in rows(data / "out/join-with-table", "json")) == expected


def test_each_batch(session: Any, data: Path) -> None:
    result = run(session, "each_batch", "totals", data)
    expected: dict[str, float] = defaultdict(float)
    for order in DATA.orders():
        expected[order["user"]] += order["amount"]
    with closing(sqlite3.connect(data / "out/each-batch.sqlite")) as database:
        assert dict(database.execute("SELECT user, spent FROM totals")) == pytest.approx(dict(expected))
    assert any("may be there twice" in note for note in result.report.notes)


def test_parse_json(session: Any, data: Path) -> None:
    result = run(session, "parse_json", "parsed", data, dead_letters=data / "out/dead")
    good = [json.loads(line) for line in DATA.lines() if line != "{broken"]
    expected = sorted(round(100 * order["amount"]) for order in good if order["amount"] >= 500)
    assert sorted(row["cents"] for row in rows(data / "out/parse-json", "json")) == expected
    broken = rows(data / "out/dead", "json")
    assert [letter["operator"] for letter in broken] == ["parse"] * DATA.lines().count("{broken")
    assert json.loads(broken[0]["row"]) == {"value": "{broken"}
    assert result.report.audit.dead == len(broken)


def test_csv_to_parquet(session: Any, data: Path) -> None:
    run(session, "csv_to_parquet", "copied", data)
    copied = rows(data / "out/csv-to-parquet")
    assert Counter(row["user"] for row in copied) == Counter(order["user"] for order in DATA.orders())
    assert (data / "out/csv-to-parquet/user=ada").is_dir()


def test_score_pandas(session: Any, data: Path) -> None:
    result = run(session, "score_pandas", "scored", data)
    expected = {order["order"]: math.log1p(order["amount"]) for order in DATA.orders()}
    scored = rows(data / "out/score-pandas")
    assert len(scored) == len(DATA.orders())
    assert {row["order"]: row["score"] for row in scored} == pytest.approx(expected)
    assert result.report.operators["score"].received == len(DATA.orders())


def test_filter_arrow(session: Any, data: Path) -> None:
    run(session, "filter_arrow", "split", data)
    large = [order["order"] for order in DATA.orders() if order["amount"] >= 500]
    assert sorted(row["order"] for row in rows(data / "out/filter-arrow/large")) == sorted(large)
    assert len(rows(data / "out/filter-arrow/small")) == len(DATA.orders()) - len(large)


def test_running_totals(session: Any, data: Path) -> None:
    run(session, "running_totals", "totals", data)
    expected: dict[str, float] = defaultdict(float)
    for order in DATA.orders():
        expected[order["user"]] += order["amount"]
    highest: dict[str, float] = {}
    for row in rows(data / "out/running-totals", "json"):
        highest[row["user"]] = max(row["spent"], highest.get(row["user"], 0.0))
    assert highest == pytest.approx(dict(expected))


def test_orders_and_payments(session: Any, data: Path) -> None:
    run(session, "orders_and_payments", "paid", data)
    wanted = {payment["order"] for payment in DATA.payments()}
    expected = sorted(order["order"] for order in DATA.orders() if order["order"] in wanted)
    assert sorted(row["order"] for row in rows(data / "out/orders-and-payments")) == expected


def test_orders_so_far(session: Any, data: Path) -> None:
    pytest.importorskip("google.protobuf", reason="Spark's transformWithState needs it")
    store = "spark.sql.streaming.stateStore.providerClass"
    before = session.conf.get(store)
    try:
        run(session, "orders_so_far", "so_far", data)
    finally:
        session.conf.set(store, before)
    most: Counter[str] = Counter()
    for row in rows(data / "out/orders-so-far", "json"):
        most[row["user"]] = max(row["orders"], most[row["user"]])
    assert most == Counter(order["user"] for order in DATA.orders())
