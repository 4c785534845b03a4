"""A plan simulated as `penstock run` executes it: fused, every slot with the whole pipeline, batch by batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError
from penstock.dataflow.formats import admission_of
from penstock.dataflow.pipeline import flows
from penstock.engines.fused.preparation import planned_cores, planned_run
from penstock.engines.simulated.preparation import Mode, PlannedJob, SimulationOptions
from penstock.planning.plan import finite
from penstock.planning.prediction.fused import fused_setup, most_work_seconds
from penstock.report.report import EMBEDDED_NODE, Audit, Report, summarise
from penstock.report.simulated_result import PipelineResult, SimulatedResult
from penstock.simulation.fused_run import FusedScenario, sent_per_tuple, simulate_fused
from penstock.simulation.layout import Emission
from penstock.simulation.scenario import (
    LEAST_INTERVAL_MS,
    LEAST_SECONDS,
    LONGEST_SECONDS,
    MOST_SECONDS,
    MOST_TUPLES,
    NANOSECONDS,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planning.prediction.fused import FusedSetup
    from penstock.report.report import BatchObservation

FUSED_INTERVAL_MS = 100.0
"""Milliseconds between two looks of a fused run for tuples."""
MOST_SLOTS = 1000
"""Of a fused simulation: what each did is told for every batch."""


def setup_of(
    job: PlannedJob, slots: int | None, cores: int | None, overhead_ms: float | None, interval_ms: float | None
) -> FusedSetup:
    for what, count in (("slots=", slots), ("cores=", cores)):
        if count is not None:
            within(what, count, 1, MOST_SLOTS)
    unknown = [name for name, demand in job.demands.items() if demand is None]
    if unknown:
        raise BadInputError(f"{job.where}: operator '{unknown[0]}' has no model: how long a batch takes is not known")
    planned = planned_run(job.saved)
    used = slots or planned.slots
    most_work = most_work_seconds(_interval_ms(interval_ms) / 1000)
    admission = admission_of(job.pipeline)
    shared = cores or planned_cores(job.saved, job.demands, used)
    setup = fused_setup(job.pipeline, planned, job.demands, used, job.load.peak_rate, shared, most_work, admission)
    if overhead_ms is None:
        return setup
    within("batch overhead", overhead_ms, LEAST_INTERVAL_MS, 1000 * LONGEST_SECONDS, " ms")
    own = overhead_ms / 1000
    return replace(setup, overhead_seconds=own, trial_overhead_seconds=setup.overhead_seconds)


def _interval_ms(given: float | None) -> float:
    interval = FUSED_INTERVAL_MS if given is None else given
    within("batch interval", interval, LEAST_INTERVAL_MS, 1000 * LONGEST_SECONDS, " ms")
    return interval


def simulate_job_fused(job: PlannedJob, setup: FusedSetup, options: SimulationOptions) -> SimulatedResult:
    within("seconds", options.seconds, LEAST_SECONDS, MOST_SECONDS, " s to simulate")
    if job.load.expected(options.seconds) > MOST_TUPLES:
        raise BadInputError(f"load: more than {MOST_TUPLES:,} tuples in {options.seconds:g} s; simulate fewer seconds")
    until = round(options.seconds * NANOSECONDS)
    draws = np.random.default_rng(options.seed)
    due = Emission(job.load, options.options.arrivals, draws, until).take(until, MOST_TUPLES) / NANOSECONDS
    carried = flows(job.pipeline)
    senders = [stream.sender for stream in job.pipeline.streams]
    interval = _interval_ms(options.batch_interval_ms)
    scenario = FusedScenario(
        setup,
        due,
        options.seconds,
        interval / 1000,
        sent_per_tuple(list(setup.gains), senders, carried),
    )
    batches = simulate_fused(scenario, options.tell_part)
    return fused_result(job, setup, batches, options.seconds, options.warm_up, options.seed, interval / 1000)


def fused_result(
    job: PlannedJob,
    setup: FusedSetup,
    batches: Sequence[BatchObservation],
    seconds: float,
    warm_up: float,
    seed: int,
    interval_seconds: float,
) -> SimulatedResult:
    """Return predicted beside simulated, from the batches of a run."""
    done = sum(batch.tuples for batch in batches)
    began = batches[0].finished if batches else 0.0
    last = batches[-1].finished if batches else seconds
    offered = job.load.rate_between(began + warm_up, last)
    report = summarise(batches, offered, warm_up, Audit(done, 0, 0, 0, 0), began=0.0)
    engine = setup.batch_cpu_seconds * report.batches / report.seconds if report.seconds else 0.0
    report = replace(report, engine_cpu=engine)
    forecast = setup.forecast(job.load.peak_rate, interval_seconds)
    slot = setup.use(report.sustained_rate)
    latencies = [batch.latencies for batch in batches if batch.finished - began >= warm_up]
    return SimulatedResult(
        pipelines=(
            PipelineResult(
                pipeline=job.pipeline.name,
                mode=str(Mode.FUSED),
                load=job.load,
                report=report,
                predicted_rate=None if forecast.max_rate is None else finite(forecast.max_rate.value),
                predicted_bottleneck=_longest(setup),
                predicted_latency_ms=forecast.latency_values or {},
                predicted_slots=dict.fromkeys(report.slots, (slot.cpu, slot.memory_mb)),
                bottleneck=None if report.stable else _fused_bottleneck(setup),
                latencies=np.concatenate(latencies) if latencies else np.empty(0),
                overload_shows_most=True,
                forecast=forecast,
            ),
        ),
        seconds=seconds,
        warm_up=warm_up,
        seed=seed,
        engine="batches",
        nodes={EMBEDDED_NODE: _added(report)},
    )


def _added(report: Report) -> tuple[float, float]:
    cpus, memories = zip(*report.slots.values(), strict=True) if report.slots else ((), ())
    return (report.engine_cpu or 0.0) + sum(cpus), float(sum(memories))


def _longest(setup: FusedSetup) -> str | None:
    """The operator that takes most of a batch."""
    each = max(1, setup.most_rows // setup.slots)
    shares = {name: setup.busy_seconds(name, each) for name in setup.modelled}
    return max(shares, key=shares.__getitem__, default=None)


def _fused_bottleneck(setup: FusedSetup) -> str:
    if setup.rate() < setup.slots_rate():
        return f"the machine's {setup.cores} cores (cpu)"
    return f"'{_longest(setup)}' takes most of a batch (service)"
