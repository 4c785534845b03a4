"""Stores of every version there has been: `stores/version-*.sql` were dumped from stores that the code of that time
wrote (two pipelines on four nodes, a trigger, three windows of measurements)."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from penstock.base import clock
from penstock.base.errors import BadInputError
from penstock.control.core.records import ControllerState, PipelineState
from penstock.control.store import database as migrations
from penstock.control.store import schema
from penstock.control.store.lease import LeaseHeldError
from penstock.control.store.store import Store

SCRIPTS = sorted((Path(__file__).parent / "stores").glob("version-*.sql"))


def written(script: Path, folder: Path) -> Path:
    path = folder / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script.read_text("utf-8"))
    return path


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names(connection)}  # noqa: S608


def names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Name, type, whether required, and place in the key of every column."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: sorted((row[1], row[2], row[3], row[5]) for row in connection.execute(f'PRAGMA table_info("{name}")'))
            for name in names(connection)
            if name in schema.metadata.tables
        }


def test_every_earlier_version_has_a_script() -> None:
    versions = {int(script.stem.split("-")[1]) for script in SCRIPTS}
    assert versions == set(migrations.STEPS) == set(range(2, schema.SCHEMA_VERSION))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
class TestEveryVersion:
    def test_is_migrated_and_continues(self, script: Path, tmp_path: Path) -> None:
        path = written(script, tmp_path)
        store = Store(f"sqlite:///{path}")
        state = store.load()
        assert isinstance(state, ControllerState)
        assert {name: record.state for name, record in state.pipelines.items()} == {
            "a": PipelineState.ACTIVE,
            "b": PipelineState.ACTIVE,
        }
        assert len(state.nodes) == 4
        assert [trigger.above for trigger in state.pipelines["a"].triggers] == [80.0]
        assert state.decided == max(row["number"] for row in store.read(select(schema.decisions)))
        # the mean of 1000 and 1005, and the same of an operator, its thread and a node
        assert next(store.windows("a", 0.0))[2][""]["rate"] == 1002.5
        assert next(store.windows("a", 0.0))[2]["X"]["rate_in"] == 1002.5
        assert next(store.windows("a/", 0.0)) == (1000.0, 10, {"X/n1/0": {"rate_in": 501.25}})
        assert next(store.windows("/", 0.0))[2]["n1"]["cpu"] == 0.5
        # given back by the controller that wrote it: number 1
        assert store.take_lease(0.0).number == 2
        store.close()

    def test_has_the_tables_of_a_new_store_afterwards(self, script: Path, tmp_path: Path) -> None:
        path = written(script, tmp_path)
        Store(f"sqlite:///{path}").close()
        Store(f"sqlite:///{tmp_path / 'new.db'}").close()
        assert columns(path) == columns(tmp_path / "new.db")

    def test_is_kept_as_it_was_in_a_private_copy(self, script: Path, tmp_path: Path) -> None:
        path = written(script, tmp_path)
        before = tables(path)
        Store(f"sqlite:///{path}").close()
        (copy,) = tmp_path.glob("store.db.version-*")
        assert tables(copy) == before
        assert copy.stat().st_mode & 0o777 == 0o600
        Store(f"sqlite:///{path}").close()
        assert list(tmp_path.glob("store.db.version-*")) == [copy]

    def test_a_step_that_fails_changes_nothing(
        self, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = written(script, tmp_path)
        before = tables(path)

        def broken(*_: object) -> None:
            raise OSError("the machine stopped")

        version = int(script.stem.split("-")[1])
        monkeypatch.setattr(migrations, "packed", broken)
        monkeypatch.setattr(migrations, "_double", broken)
        with pytest.raises(OSError, match="the machine stopped"):
            Store(f"sqlite:///{path}")
        monkeypatch.undo()
        assert tables(path) == before, version
        Store(f"sqlite:///{path}").close()

    def test_is_left_alone_while_a_controller_of_its_time_runs(self, script: Path, tmp_path: Path) -> None:
        path = written(script, tmp_path)
        with closing(sqlite3.connect(path)) as connection:
            values = (socket.gethostname(), os.getpid(), clock.now() + 10)
            connection.execute("UPDATE lease SET host = ?, pid = ?, until = ?", values)
            connection.commit()
        before = tables(path)
        with pytest.raises(LeaseHeldError, match=f"process {os.getpid()} on .*, of an earlier version; end it"):
            Store(f"sqlite:///{path}")
        assert tables(path) == before


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("99", "version 99, this Penstock knows up to 4"),
        ("1", "version 1, which no Penstock wrote"),
        ("²", "no version"),
    ],
)
def test_another_version_is_one_line(tmp_path: Path, version: str, said: str) -> None:
    path = tmp_path / "store.db"
    Store(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = ?", (version,))
        connection.commit()
    with pytest.raises(BadInputError, match=said) as caught:
        Store(f"sqlite:///{path}")
    assert "\n" not in str(caught.value)
