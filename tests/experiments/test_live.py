"""What is made of the readings of a live run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInputError
from penstock.experiments import store
from penstock.experiments.control.live import BASE_RATE, LATENCY_MS, LiveReading, judged, live_rates
from penstock.experiments.e_stream.live import SECONDS, EStreamLive
from penstock.experiments.store import CaseStore
from penstock.experiments.sweep import live_sweep

RISE = 3 * BASE_RATE


def reading(at: float, offered: float, backlog: float, latency_ms: float = 100.0, held: int = 1) -> LiveReading:
    return LiveReading(at, offered, offered, backlog, latency_ms, held)


def test_a_step_is_judged_from_its_rise_to_an_empty_queue() -> None:
    readings = [
        reading(0, BASE_RATE, 10),
        reading(10, RISE, 100),
        reading(20, RISE, 900, LATENCY_MS + 1),
        reading(22, RISE, 950, held=4),
        reading(30, RISE, 300, held=4),
        reading(32, RISE, 200, held=4),
    ]
    decision = {"from": 1, "to": 4, "at": 14.0, "expected": {"catch_up_s": 17.0}}
    assert judged(readings, [decision]) == {
        "met_s": 12,
        "catch_up_s": 18.0,
        "predicted_catch_up_s": 17.0,
        "slot_hours": pytest.approx((22 + 4 * 10) / 3600),
        "outside_s": 2,
        "changes": 1.0,
    }


def test_without_a_growth_there_is_nothing_to_catch_up_with() -> None:
    assert judged([reading(0, BASE_RATE, 1), reading(1, RISE, 1)], [])["met_s"] is None


def test_loads_have_their_shapes() -> None:
    assert live_rates("step", 100)[0] * 3 == live_rates("step", 100)[-1] == RISE
    assert max(live_rates("sine", 120)) == pytest.approx(RISE)
    assert live_rates("spike", 100)[-1] == BASE_RATE
    with pytest.raises(BadInputError, match="unknown load 'ramp'"):
        live_rates("ramp", 100)


def test_cases_are_run_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    told: list[tuple[int, int]] = []

    def run_case(_self: EStreamLive, case: dict[str, Any]) -> dict[str, Any]:
        run.append(case["load"])
        return {}

    monkeypatch.setattr(EStreamLive, "run_case", run_case)
    monkeypatch.setattr(EStreamLive, "lines", lambda *_: [])

    def sweep(most: int | None) -> object:
        return live_sweep("e-stream", folder=tmp_path, progress=lambda *at: told.append(at), most=most)

    assert sweep(2) is None
    assert run == ["step", "sine"]
    assert told[-1] == (2, 3)
    assert sweep(2) is not None
    assert run == ["step", "sine", "spike"]
    assert told[-1] == (3, 3)

    # by other code all are run again, and first the one nothing is kept of
    monkeypatch.setattr(store, "code_version", lambda: "another")
    CaseStore(tmp_path, "e-stream-live").path_of({"load": "sine", "seconds": SECONDS}).unlink()
    run.clear()
    assert sweep(2) is None
    assert run == ["sine", "step"]
