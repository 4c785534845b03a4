"""Damage of every kind to a store: a start succeeds, or is one line; a repair keeps what can be read."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import JSON, Boolean, Float, Integer, LargeBinary, select
from test_control_store import Kept

from penstock.base.errors import BadInputError, PenstockError
from penstock.control.core.messages import AddTrigger
from penstock.control.core.records import Trigger
from penstock.control.store import schema
from penstock.control.store.metric_history import HOUR, History
from penstock.control.store.repair import HIGH_NUMBER, repair
from penstock.control.store.store import Store
from penstock.testing.controller import asked, cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Column

STATE = ("controller", "submissions", "pipelines", "holdings", "triggers", "nodes", "lease")
ENUMS = {("pipelines", "state"), ("nodes", "state"), ("triggers", "kind"), ("holdings", "kind")}
REFERENCES = {
    ("submissions", "name"),
    ("pipelines", "name"),
    ("holdings", "pipeline"),
    ("triggers", "pipeline"),
}
REPLACED = {
    "policy": {"sharing": "zzz", "rescheduling": "live", "default_priority": 2},
    "submission": {"name": 1},
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with at least one row in every table."""
    path = tmp_path_factory.mktemp("healthy") / "store.db"
    store = Store(f"sqlite:///{path}")
    bench = Kept(cluster(4), store)
    for name in "ab":
        bench.tell(asked(name, 2, load="5"))
        bench.tell(AddTrigger(name, Trigger(0, "arrival-rate", above=9.0)))
    bench.run(10)
    history = History(store)
    for second in (0.0, 10.0, 20.0):
        history.add("a", "", {"rate": 1.0}, second)
    store.give_back(bench.lease)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        for name in schema.metadata.tables:
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] > 0, name  # noqa: S608
    return path


@pytest.fixture
def damaged(healthy: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(healthy, tmp_path / "store.db"))


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def start(path: Path) -> str:
    """Everything a controller does with its store; the line that says why it cannot. Other errors are raised."""
    try:
        store = Store(f"sqlite:///{path}")
        try:
            use(store)
        finally:
            store.close()
    except PenstockError as error:
        return line(str(error))
    return ""


def use(store: Store) -> None:
    store.load()
    store.take_lease(0.0)
    for table in (schema.events, schema.decisions, schema.passes):
        store.read(select(table))
    list(store.windows("a", 0.0))
    History(store).turn(3.0 * HOUR)


def line(message: str) -> str:
    assert "\n" not in message
    assert "store '" in message
    return message


def nullable(path: Path, table: str) -> None:
    """Make a table anew without its constraints: a damaged file keeps to none."""
    names = ", ".join(f'"{column.name}"' for column in schema.metadata.tables[table].columns)
    run_sql(
        path,
        f"CREATE TABLE loose AS SELECT {names} FROM {table}",  # noqa: S608
        f"DROP TABLE {table}",
        f"ALTER TABLE loose RENAME TO {table}",
    )


def wrong_values(table: str, column: Column[Any]) -> dict[str, str]:
    """SQL of values that do not belong into the column, by kind of damage."""
    kind = column.type
    values = {"bytes": "X'ff00fe'", "no utf-8": "CAST(X'ff00fe' AS TEXT)"}
    if not column.nullable:
        values["null"] = "NULL"
    if isinstance(kind, JSON):
        values |= {"garbage json": "'{'", "another shape": "'[[]]'", "json null": "'null'", "json nan": "'NaN'"}
        values |= {"deep json": f"'{'[' * 5000}'", "empty json": "'{}'"}
        if column.name in REPLACED:
            values["unknown enum"] = f"'{json.dumps(REPLACED[column.name])}'"
    elif isinstance(kind, Integer):  # a BigInteger is one
        values |= {"text": "'x'", "negative": "-1", "fraction": "0.5", "huge": "1e300"}
    elif isinstance(kind, Boolean):
        values |= {"text": "'x'", "number": "7"}
    elif isinstance(kind, Float):
        values |= {"text": "'x'"}
    elif isinstance(kind, LargeBinary):
        values |= {"text": "'x'", "number": "1"}
    else:
        values |= {"number": "X'31'"}
        if (table, column.name) in ENUMS:
            values["unknown enum"] = "'bogus'"
        if (table, column.name) in REFERENCES:
            values["dangling"] = "'nobody'"
    if isinstance(kind, LargeBinary):
        values["bytes"] = "X'ff00fe'"
    return values


CELLS = [
    (table.name, column.name)
    for table in schema.metadata.sorted_tables
    if table.name != "meta"
    for column in table.columns
]
MUST_BE_NAMED = {"null", "text", "garbage json", "unknown enum", "dangling", "negative", "no utf-8"}
"""Kinds of damage that no start may overlook in the state."""


@pytest.mark.parametrize(("table", "column"), CELLS)
def test_every_cell(damaged: Path, table: str, column: str) -> None:
    """In the first row of the table: a start, or a line; a repair makes a start of it."""
    nullable(damaged, table)
    sound = damaged.read_bytes()
    for kind, value in wrong_values(table, schema.metadata.tables[table].columns[column]).items():
        damaged.write_bytes(sound)
        run_sql(damaged, f'UPDATE {table} SET "{column}" = {value} WHERE rowid = 1')  # noqa: S608
        why = start(damaged)
        if table in STATE and kind in MUST_BE_NAMED:
            assert f"table '{table}', row " in why or "table 'submissions', row" in why, (kind, why)
    # one repair is enough for all: what a start and a repair take for damage is decided by the same reader
    damaged.write_bytes(sound)
    run_sql(damaged, f'UPDATE {table} SET "{column}" = {value} WHERE rowid = 1')  # noqa: S608
    result = repair(f"sqlite:///{damaged}")
    assert not result.nothing_readable
    assert result.damaged is None or start(damaged) == ""


def replaced(path: Path) -> Path:
    path.unlink()
    return path


FILES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zero length": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(Random(1).randbytes(5000)),  # noqa: S311
    "text": lambda path: path.write_text("hello"),
    "a folder": lambda path: replaced(path).mkdir(),
    "a pipe": lambda path: os.mkfifo(replaced(path)),
    "another database": lambda path: run_sql(replaced(path), "CREATE TABLE own (x)"),
    "no meta": lambda path: run_sql(path, "DROP TABLE meta"),
    "empty meta": lambda path: run_sql(path, "DELETE FROM meta"),
    "no row of the controller": lambda path: run_sql(path, "DELETE FROM controller"),
    "two rows of the controller": lambda path: run_sql(
        path,
        "CREATE TEMP TABLE other AS SELECT * FROM controller",
        "UPDATE other SET id = 2",
        "INSERT INTO controller SELECT * FROM other",
    ),
    "counter set back": lambda path: run_sql(path, "UPDATE controller SET decided = 0"),
    "no column": lambda path: run_sql(path, "ALTER TABLE pipelines DROP COLUMN rest"),
    **{f"no {name}": lambda path, name=name: run_sql(path, f"DROP TABLE {name}") for name in schema.metadata.tables},  # type: ignore[misc]
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_refused_in_one_line_and_left_as_it_is(damaged: Path, kind: str) -> None:
    FILES[kind](damaged)
    before = damaged.read_bytes() if damaged.is_file() else None
    assert start(damaged)
    assert (damaged.read_bytes() if damaged.is_file() else None) == before


def test_a_table_more_does_not_matter(damaged: Path) -> None:
    run_sql(damaged, "CREATE TABLE own (x)")
    assert start(damaged) == ""


@pytest.mark.skipif(os.getuid() == 0, reason="root may read and write everything")
def test_a_file_that_may_not_be_written_is_one_line(damaged: Path) -> None:
    damaged.chmod(0o400)
    assert "you may not read and write it" in start(damaged)


def test_random_bytes_are_a_line_or_a_start(damaged: Path) -> None:
    sound, random = damaged.read_bytes(), Random(7)  # noqa: S311
    repaired = 0
    for number in range(60):
        spoilt = bytearray(sound)
        for _ in range(random.choice((1, 3, 20))):
            at = random.randrange(len(spoilt))
            spoilt[at : at + 50] = random.randbytes(random.choice((1, 4, 50)))
        damaged.write_bytes(bytes(spoilt[: len(sound)]))
        for ending in ("-wal", "-shm"):
            damaged.with_name(damaged.name + ending).unlink(missing_ok=True)
        if number % 2 == 0:
            start(damaged)
        else:
            result = repair(f"sqlite:///{damaged}")
            if result.damaged is not None:
                assert start(damaged) == ""
                repaired += 1
                Path(result.damaged).unlink()
    assert repaired > 0


def test_a_torn_log_of_writes_ends_before_the_first_write_that_is_not_whole(tmp_path: Path) -> None:
    """As after a power cut: every commit before the tear is there, and none that is half."""
    path = tmp_path / "store.db"
    store = Store(f"sqlite:///{path}")
    bench = Kept(cluster(8), store)
    sizes, states = [], []
    for name in "abcd":
        bench.tell(asked(name, 1, load="5"))
        sizes.append((tmp_path / "store.db-wal").stat().st_size)
        states.append(set(bench.state.pipelines))
    for number, size in enumerate(sizes):
        torn = tmp_path / f"torn-{number}.db"
        shutil.copy(path, torn)
        log = (tmp_path / "store.db-wal").read_bytes()
        torn.with_name(torn.name + "-wal").write_bytes(log[: size - 100])
        other = Store(f"sqlite:///{torn}")
        state = other.load()
        other.close()
        assert state is not None
        assert set(state.pipelines) == (states[number - 1] if number else set())
    store.close()


class TestRepair:
    def test_keeps_what_can_be_read_and_says_what_cannot(self, damaged: Path) -> None:
        run_sql(damaged, "UPDATE pipelines SET state = 'bogus' WHERE name = 'a'")
        before = damaged.read_bytes()
        planned = repair(f"sqlite:///{damaged}", dry_run=True)
        assert damaged.read_bytes() == before
        result = repair(f"sqlite:///{damaged}")
        assert planned.faults == result.faults
        said = [str(fault) for fault in result.faults]
        assert said[0].startswith("table 'pipelines', row 'a': state: expected one of submitted, ")
        assert "table 'holdings', row 'assigned'/'n1'/0: there is no pipeline 'a'" in said
        assert "table 'submissions', row 'a': its pipeline cannot be read" in said
        assert result.damaged is not None
        assert Path(result.damaged).read_bytes() == before
        assert damaged.stat().st_mode & 0o777 == 0o600
        store = Store(f"sqlite:///{damaged}")
        state = store.load()
        assert state is not None
        assert set(state.pipelines) == {"b"}
        assert state.submitted == 2
        assert store.take_lease(0.0).number == 3
        store.close()

    def test_keeps_the_id_by_which_its_drivers_know_the_store(self, damaged: Path) -> None:
        run_sql(
            damaged, "INSERT INTO meta VALUES ('store', 'abc')", "UPDATE nodes SET state = 'bogus' WHERE name = 'n1'"
        )
        assert repair(f"sqlite:///{damaged}").damaged is not None
        with closing(sqlite3.connect(damaged)) as connection:
            meta = dict(connection.execute("SELECT key, value FROM meta"))
        assert meta == {"schema": str(schema.SCHEMA_VERSION), "store": "abc"}

    def test_takes_the_readable_columns_of_the_controllers_own_row(self, damaged: Path) -> None:
        run_sql(damaged, "UPDATE controller SET unit_slots = 7, decided = 'x'")
        repair(f"sqlite:///{damaged}")
        store = Store(f"sqlite:///{damaged}")
        state = store.load()
        assert state is not None
        assert state.unit_slots == 7
        assert state.decided == max(row["number"] for row in store.read(select(schema.decisions)))
        store.close()

    def test_an_unreadable_lease_gets_a_number_above_all_others(self, damaged: Path) -> None:
        run_sql(damaged, "UPDATE lease SET number = 'x'")
        repair(f"sqlite:///{damaged}")
        store = Store(f"sqlite:///{damaged}")
        assert store.take_lease(0.0).number == HIGH_NUMBER + 1
        store.close()

    def test_leaves_a_sound_store_and_a_running_controller_alone(self, damaged: Path) -> None:
        assert repair(f"sqlite:///{damaged}").faults == ()
        store = Store(f"sqlite:///{damaged}")
        store.take_lease(0.0)
        with pytest.raises(BadInputError, match=f"process {os.getpid()} on .*; end it first"):
            repair(f"sqlite:///{damaged}")
        store.close()

    def test_a_store_of_an_earlier_version_is_repaired_too(self, tmp_path: Path) -> None:
        script = Path(__file__).parent / "stores" / "version-2.sql"
        path = tmp_path / "store.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script.read_text("utf-8"))
        run_sql(path, "UPDATE pipelines SET state = 'bogus' WHERE name = 'a'")
        repair(f"sqlite:///{path}")
        store = Store(f"sqlite:///{path}")
        state = store.load()
        assert state is not None
        assert set(state.pipelines) == {"b"}
        assert len(list(store.windows("a", 0.0))) == 2
        store.close()
