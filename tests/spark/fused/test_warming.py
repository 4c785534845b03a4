"""Executors made ready before they get tuples: what their workers load, what is left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processes import until

import penstock
from penstock.errors import ClusterError
from penstock.spark.fused.warming import Readying, warm_up


def test_rows_stay_as_they_are_and_modules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "penstock.workloads.applications.lexicon", raising=False)
    rows = pa.record_batch({"id": [1, 2]})
    assert list(Readying((), ("penstock.workloads.applications.lexicon",))(iter([rows]))) == [rows]
    assert "penstock.workloads.applications.lexicon" in sys.modules


def test_what_it_writes_is_deleted_and_what_fails_is_said(session: Any, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint-warm-up"
    assert warm_up(session, 2, None, Readying((), ())) > 0
    assert warm_up(session, 2, str(place), Readying((), ())) > 0
    assert not place.exists()
    with pytest.raises(ClusterError, match="could not be warmed up"):
        warm_up(session, 2, None, Readying((), ("no_such_module_anywhere",)))


def test_a_run_is_not_told_of_tasks_without_tuples(session: Any, tmp_path: Path) -> None:
    p = penstock.pipeline("counting").source("load").then("same", logic=lambda row: row, schema="value bigint")
    handle = penstock.start(
        p.sink("out", parquet=str(tmp_path / "out")), 200, session=session, slots=2, folder=tmp_path / "run"
    )
    try:
        until(lambda: handle.progress is not None)
        assert handle._run._query.warm_up(2) > 0
        before = len(handle._run.batches)
        until(lambda: len(handle._run.batches) > before + 1)
    finally:
        result = handle.drain()
    assert (result.report.audit.lost, result.report.audit.duplicated) == (0, 0)
    assert result.report.audit.emitted > 0
    assert not (tmp_path / "run" / "checkpoint-warm-up").exists()
