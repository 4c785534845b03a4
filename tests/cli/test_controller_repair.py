"""`penstock controller repair`: tables and JSON, and its exit codes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.control.core.messages import StepOutcome
from penstock.control.core.records import ControllerState, NodePhase, NodeRecord
from penstock.control.store.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of a controller of the state folder, with two nodes of which one cannot be read."""
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    (tmp_path / "controller").mkdir()
    path = tmp_path / "controller" / "store.db"
    made = Store(f"sqlite:///{path}")
    nodes = {name: NodeRecord(name, "r", 1, NodePhase.ALIVE, 0.0, {}) for name in ("n1", "n2")}
    lease = made.take_lease(0.0)
    made.commit(ControllerState(), StepOutcome(ControllerState(nodes=nodes)), lease, 0.0)
    made.give_back(lease)
    made.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE nodes SET state = 'bogus' WHERE name = 'n1'")
        connection.commit()
    return path


def test_a_dry_run_lists_and_changes_nothing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = store.read_bytes()
    assert run(["controller", "repair", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "'n1'" in printed
    assert "state: expected one of joining, alive, leaving, lost, gone, found 'bogus'" in printed
    assert "would be written anew without 1 of its parts" in printed
    assert store.read_bytes() == before


def test_a_repair_keeps_the_damaged_store_beside_the_new_one(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = store.read_bytes()
    assert run(["controller", "repair", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(fault["table"], fault["row"]) for fault in document["unreadable"]] == [("nodes", "'n1'")]
    assert document["rows"]["nodes"] == 1
    assert Path(document["damaged"]).read_bytes() == before
    assert run(["controller", "repair"]) == 0
    assert "is not damaged: left as it is" in capsys.readouterr().out


def test_nothing_readable_is_1_and_no_store_is_2(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_bytes(b"nothing of the kind" * 100)
    assert run(["controller", "repair"]) == 1
    assert "nothing can be read" in capsys.readouterr().out
    for url in ("nonsense", f"sqlite:///{store}.not-there", "postgresql+psycopg://h/db", "sqlite://"):
        assert run(["controller", "repair", "--store", url]) == 2
        assert capsys.readouterr().err.count("\n") == 1
