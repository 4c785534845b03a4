"""Fields that are watched while a placed run goes on, and what its operators do slot by slot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from local_processes import code_of, conductor, laid_out, line
from test_engine import A, B, C, turn_until, wait

from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.engines.placed.bundle.generation import WatchedCounts, shares_of
from penstock.engines.placed.launchers import LocalLauncher
from penstock.engines.placed.monitoring import EpochObserver


def test_a_field_counts_at_one_sink_and_begins_anew_with_every_epoch() -> None:
    counts = WatchedCounts({1: ("cents", 500.0), 2: ("name", 1.0), 3: ("nowhere", 0.0)})
    rows = pa.RecordBatch.from_pylist([{"cents": 400, "name": "a"}, {"cents": 900, "name": "b"}, {"cents": None}])
    counts.take_in("one", rows)
    counts.take_in("other", rows)
    counts.take_in("one", rows)
    # 2 x 1 of 2 x 3 are above 500; names are no numbers; nobody has the third
    assert counts.cut() == [(1, 2, 6), (2, 0, 6)]
    assert counts.cut() == []


def test_shares_of_all_bundles_together() -> None:
    # (1 + 3) / (4 + 4); nothing came for 2; nobody watches 3 any more
    assert shares_of([(1, 1, 4), (1, 3, 4), (2, 0, 0), (3, 1, 1)], {1: ("a", 0.0), 2: ("b", 0.0)}) == {1: 0.5}


def halves(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": row["value"], "cents": 900 if row["value"] % 4 == 0 else 100}


def test_what_is_watched_while_it_flows_is_told_of_every_epoch(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    code = code_of(line(Logic(halves)), tmp_path, op0=pa.schema([("value", pa.int64()), ("cents", pa.int64())]))
    plan = laid_out(code, {"src": {A: 1}, "op0": {B: 1}, "out": {A: 1, C: 1}})
    run = conductor(tmp_path, plan, 400.0, launcher)
    observer = EpochObserver(run, Load.constant(400.0), ("src",))
    try:
        turn_until(run, lambda: run.run.commit.epoch >= 1)
        observer.look()
        assert observer.shares == {}
        run.watch({7: ("cents", 500.0)})

        def told() -> bool:
            observer.look()
            return 7 in observer.shares

        turn_until(run, told)
        turn_until(run, lambda: run.run.commit.epoch >= 6)
        observer.look()
        # every fourth of them, counted over whole epochs of some 80 tuples
        assert observer.shares[7] == pytest.approx(0.25, abs=0.1)
        seen = {key for epoch in observer.epochs for key in epoch.on_slots}
        assert {("op0", B), ("out", A), ("out", C)} <= seen
        at_ends = sum(
            epoch.on_slots[key].received for epoch in observer.epochs for key in epoch.on_slots if key[0] == "out"
        )
        assert at_ends == sum(epoch.operators["out"].received for epoch in observer.epochs)
        wait(run, run.drain(end=True))
    finally:
        run.close()
        launcher.close()
