"""What is made of the readings of a live run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import BadInputError, RunError
from penstock_lab import sweep as store
from penstock_lab.contract import CaseResult, Results
from penstock_lab.control.live import (
    BASE_RATE,
    LATENCY_MS,
    LiveReading,
    committed_tuples,
    counted,
    judged,
    live_rates,
)
from penstock_lab.experiments.live_experiments import (
    BELIEVED_COST,
    BUDGET,
    MISJUDGED,
    TARGETS,
    EStreamLive,
    PDeployerLive,
    believed_models,
)
from penstock_lab.experiments.live_experiments import E_STREAM_SECONDS as SECONDS
from penstock_lab.published_values import read_published
from penstock_lab.sweep import CaseStore, live_sweep

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


def test_the_last_tuples_are_missed_too() -> None:
    assert counted([0, 1, 1, 3], 6) == {"came": 3.0, "lost": 3.0, "doubled": 1.0}
    assert counted([], 2)["lost"] == 2


def test_what_a_run_took_in_stands_in_its_checkpoint(tmp_path: Path) -> None:
    """Batch 10 was planned and is not committed: it counts with whoever goes on."""
    checkpoint = tmp_path / "drivers" / "followed" / "run" / "checkpoint"
    for number, tuples in ((2, 30), (9, 140), (10, 170)):
        for kind, text in (("offsets", f'v1\n{{"batchTimestampMs":1}}\n{{"tuples": {tuples}}}'), ("commits", "v1\n{}")):
            if (kind, number) != ("commits", 10):
                (checkpoint / kind).mkdir(parents=True, exist_ok=True)
                (checkpoint / kind / str(number)).write_text(text)
    (checkpoint / "commits" / ".9.crc").write_text("")
    assert committed_tuples(tmp_path) == 140
    with pytest.raises(RunError, match="expected the checkpoint of one run, found 0"):
        committed_tuples(checkpoint)


def test_models_that_say_half_of_the_costs_take_a_second_round(tmp_path: Path) -> None:
    """In simulated time, where tuples cost what the models shipped say: twice as much as believed."""
    file = tmp_path / "models.json"
    file.write_text(json.dumps(believed_models(MISJUDGED, BELIEVED_COST)))
    deployed = penstock.deploy(
        MISJUDGED,
        TARGETS[MISJUDGED],
        budget=BUDGET,
        node_slots=1,
        models=file,
        simulated=True,
        truth={"*": 1 / BELIEVED_COST},
    )
    assert deployed.met
    first, second = deployed.rounds
    assert first.plan.nodes == 1 < second.plan.nodes
    right = penstock.deploy(MISJUDGED, TARGETS[MISJUDGED], budget=BUDGET, node_slots=1, simulated=True)
    assert len(right.rounds) == 1


def test_the_case_of_misjudged_models_is_told_apart() -> None:
    experiment = PDeployerLive()
    cases = experiment.cases(quick=False)
    assert [case for case in cases if "believed_cost" in case] == [
        {"pipeline": MISJUDGED, "rate": TARGETS[MISJUDGED], "believed_cost": BELIEVED_COST}
    ]
    rounds = [
        {"round": 1, "nodes": 1, "part_of_target": 0.6, "latency_ms": 1200.0, "profiling_cost": 0.031},
        {"round": 2, "nodes": 2, "part_of_target": 1.0, "latency_ms": None, "profiling_cost": None},
    ]
    results = Results(tuple(CaseResult(case, {"met": True, "why": "", "rounds": rounds}) for case in cases))
    lines = experiment.lines(results, read_published("p-deployer-live"))
    *courses, cost = lines
    assert len({line.where for line in courses}) == len(cases) == 5
    assert courses[-1].ours == "60 % on 1 in 1,200, 100 % on 2; met"
    assert cost.ours == "3.1 to 3.1 %"
    (chart,) = experiment.charts(results, read_published("p-deployer-live"))
    assert len({series.name for panel in chart.panels for series in panel.series}) == 5
