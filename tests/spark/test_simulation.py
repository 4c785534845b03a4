"""A run on Spark, and the simulation of the same plan with the same load and the engine's time for a batch.

Operators only wait, so a busy machine changes little; what it does change is the engine's time, which is taken from the
run itself. The bounds are wide for all that: `bench/simulation_truth.py` prints the errors.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest

import penstock
from penstock.base.files import temporary_folder
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.engines.fused.preparation import FusedJob, prepare, spec_of
from penstock.engines.fused.run import Hooks, run_fused
from penstock.modelling.model import MeasuredOn, Model, Point
from penstock.report.report import BatchObservation
from penstock.report.simulated_result import measured_of
from penstock.runs.config import RunConfig
from penstock.spark.session.process_tree import MachineUsage, share_of_others

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),  # pyspark's own
    pytest.mark.long("it compares times, which wants a machine to itself"),
]

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


class Attempt(NamedTuple):
    document: dict[str, Any]
    """Of the report."""
    overhead_ms: float
    """What the engine needed for a batch."""
    others: float
    """The part of the machine others used, a virtual machine's host among them."""


def run(session: Any, plan: penstock.Plan, rate: float, seconds: float) -> Attempt:
    job = prepare(plan, RunConfig(rate=rate, models=LIBRARY))
    with temporary_folder("run") as folder:
        return run_job(session, job, seconds, folder)


def run_job(session: Any, job: FusedJob, seconds: float, folder: Path) -> Attempt:
    spec = spec_of(job, replace(job.config, seconds=seconds, warm_up=2.0), "simulated", folder)
    batches: list[BatchObservation] = []
    began = MachineUsage.now()
    report = run_fused(session, spec, Hooks(batches.append))
    others = share_of_others(began, MachineUsage.now())
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)
    gaps = [
        after.finished - before.finished - max(slot.wall_seconds for slot in after.slots)
        for before, after in pairwise(batches[1:])
    ]
    return Attempt(job.result(report, job.load).document(), 1000 * float(np.median(gaps)), others)


ATTEMPTS = 3
DISTURBED = 0.1


def give_up(missed: list[str], attempts: list[Attempt]) -> NoReturn:
    """A host that takes the cores away makes waits longer, which no simulation knows of."""
    if all(attempt.others > DISTURBED for attempt in attempts):
        pytest.skip(f"others used {[round(attempt.others, 2) for attempt in attempts]} of the machine: {missed}")
    pytest.fail(f"{missed}")


def test_a_saturated_run_does_what_its_simulation_does(session: Any) -> None:
    plan = penstock.plan(WAITS, 150, models=LIBRARY)
    attempts, missed = [], []
    for _ in range(ATTEMPTS):
        attempts.append(attempt := run(session, plan, 500, 7))
        result = penstock.simulate(
            plan,
            500,
            mode="fused",
            models=LIBRARY,
            batch_overhead_ms=attempt.overhead_ms,
            measured=measured_of(attempt.document, "run"),
        )
        assert not attempt.document["stable"]
        assert not result.stable
        rate = result.first.comparison["rate"]["simulated_error"]
        assert rate is not None
        if abs(rate) < 0.2:
            return
        missed.append(f"the simulated rate was off by {rate:.2f}")
    give_up(missed, attempts)


def test_a_run_that_keeps_up_is_as_late_as_its_simulation(session: Any) -> None:
    plan = penstock.plan(WAITS, 150, models=LIBRARY)
    attempts, missed = [], []
    for _ in range(ATTEMPTS):
        attempts.append(attempt := run(session, plan, 60, 7))
        result = penstock.simulate(
            plan,
            Load.constant(60),
            mode="fused",
            models=LIBRARY,
            batch_overhead_ms=attempt.overhead_ms,
            measured=measured_of(attempt.document, "run"),
        )
        assert result.stable
        compared = result.first.comparison
        rate, latency = compared["rate"]["simulated_error"], compared["latency_p50_ms"]["simulated_error"]
        assert rate is not None
        assert latency is not None
        if attempt.document["stable"] and abs(rate) < 0.1 and abs(latency) < 0.5:
            return
        missed.append(f"the simulated rate was off by {rate:.2f}, the latency by {latency:.2f}")
    give_up(missed, attempts)
