"""A run on Spark, and the simulation of the same plan with the same load and the engine's time for a batch.

Operators only wait, so a busy machine changes little; what it does change is the engine's time, which is taken from the
run itself. The bounds are wide for all that: `bench/simulation_truth.py` prints the errors.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.report.report import BatchObservation
from penstock.report.simulated_result import measured_of
from penstock.running import prepare
from penstock.spark.fused import FusedRun, run_fused

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own

TRIAL_OVERHEAD = 0.1


def wait_10(row: dict[str, Any]) -> dict[str, Any]:
    threading.Event().wait(0.01)
    return row


def wait_20(row: dict[str, Any]) -> dict[str, Any]:
    threading.Event().wait(0.02)
    return row


def model(name: str, seconds: float) -> Model:
    """As trials of 1 s of work would measure it: t threads do `t / seconds`, less the engine's part of the time."""
    points = tuple(
        Point(threads=t, rate=t / seconds / (1 + TRIAL_OVERHEAD), cpu=0.02 * t, memory=0.01) for t in (1, 2, 4, 8)
    )
    return Model(name, points, MeasuredOn(batch_seconds=1.0, batch_overhead_ms=1000 * TRIAL_OVERHEAD))


LIBRARY = penstock.ModelLibrary.of([model("wait_10", 0.01), model("wait_20", 0.02)])
WAITS = (
    penstock.pipeline("waits")
    .source("s")
    .then("wait_10", logic=Logic(wait_10))
    .then("wait_20", logic=Logic(wait_20))
    .sink("out")
    .build()
)


def run(session: Any, plan: penstock.Plan, rate: float, seconds: float) -> tuple[Any, float]:
    """The report's document, and the milliseconds the engine needed for a batch."""
    job = prepare(plan, rate, None, LIBRARY, search=False)
    fused = FusedRun(job.pipeline, job.logic, job.threads, job.load, job.slots, job.most_rows)
    batches: list[BatchObservation] = []
    report = run_fused(session, fused, seconds, warm_up=2, watch=batches.append)
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)
    gaps = [
        after.finished - before.finished - max(slot.wall_seconds for slot in after.slots)
        for before, after in pairwise(batches[1:])
    ]
    return job.result(report, job.load).document(), 1000 * float(np.median(gaps))


ATTEMPTS = 3
"""A host that takes the cores away for seconds spoils a run, not three in a row."""


def test_a_saturated_run_does_what_its_simulation_does(session: Any) -> None:
    plan = penstock.plan(WAITS, 150, models=LIBRARY)
    errors = []
    for _ in range(ATTEMPTS):
        document, overhead_ms = run(session, plan, 500, 7)
        measured = measured_of(document, "run")
        result = penstock.simulate(
            plan, 500, mode="fused", models=LIBRARY, batch_overhead_ms=overhead_ms, measured=measured
        )
        assert not document["stable"]
        assert not result.stable
        rate = result.first.comparison["rate"]["simulated_error"]
        assert rate is not None
        errors.append(rate)
        if abs(rate) < 0.2:
            return
    pytest.fail(f"the simulated rate was off by {errors}")


def test_a_run_that_keeps_up_is_as_late_as_its_simulation(session: Any) -> None:
    plan = penstock.plan(WAITS, 150, models=LIBRARY)
    errors = []
    for _ in range(ATTEMPTS):
        document, overhead_ms = run(session, plan, 60, 7)
        measured = measured_of(document, "run")
        result = penstock.simulate(
            plan, Load.constant(60), mode="fused", models=LIBRARY, batch_overhead_ms=overhead_ms, measured=measured
        )
        assert result.stable
        compared = result.first.comparison
        rate, latency = compared["rate"]["simulated_error"], compared["latency_p50_ms"]["simulated_error"]
        assert rate is not None
        assert latency is not None
        errors.append((rate, latency))
        if document["stable"] and abs(rate) < 0.1 and abs(latency) < 0.5:
            return
    pytest.fail(f"the simulated rate and latency were off by {errors}")
