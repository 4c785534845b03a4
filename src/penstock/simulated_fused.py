"""A plan simulated as `penstock run` executes it: fused, every slot with the whole pipeline, batch by batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.rates import flows
from penstock.errors import BadInputError
from penstock.planning.plan import finite
from penstock.report.report import EMBEDDED_NODE, Audit, Report, summarise
from penstock.report.simulated_result import PipelineResult, SimulatedResult
from penstock.running import fused_setup, planned_run
from penstock.simulated_job import Mode, PlannedJob, Wishes, positive
from penstock.simulation.fused_run import FusedScenario, sent_per_tuple, simulate_fused
from penstock.simulation.sources import Emission
from penstock.simulation.system import NANOSECONDS

if TYPE_CHECKING:
    from penstock.prediction.fused import FusedSetup

FUSED_INTERVAL_MS = 100.0
"""How often a fused run looks for tuples."""
MOST_TUPLES = 50_000_000
"""Of a source in a fused simulation: their due times are held in memory."""


def setup_of(job: PlannedJob, slots: int | None, cores: int | None, overhead_ms: float | None) -> FusedSetup:
    for what, count in (("--slots", slots), ("--cores", cores)):
        if count is not None and count < 1:
            raise BadInputError(f"{what}: expected at least 1, found {count}")
    unknown = [name for name, one in job.demands.items() if one is None]
    if unknown:
        raise BadInputError(f"{job.where}: operator '{unknown[0]}' has no model: how long a batch takes is not known")
    planned = planned_run(job.saved)
    used = slots or planned.slots
    setup = fused_setup(job.pipeline, planned, job.demands, used, job.load.peak_rate, cores or used)
    if overhead_ms is None:
        return setup
    own = positive(overhead_ms, "batch overhead") / 1000
    return replace(setup, overhead_seconds=own, trial_overhead_seconds=setup.overhead_seconds)


def simulate_job_fused(job: PlannedJob, setup: FusedSetup, wishes: Wishes) -> SimulatedResult:
    if job.load.expected(wishes.seconds) > MOST_TUPLES:
        raise BadInputError(f"load: more than {MOST_TUPLES:,} tuples in {wishes.seconds:g} s; simulate fewer seconds")
    until = round(wishes.seconds * NANOSECONDS)
    draws = np.random.default_rng(wishes.seed)
    due = Emission(job.load, wishes.options.arrivals, draws, until).take(until, MOST_TUPLES) / NANOSECONDS
    carried = flows(job.pipeline)
    senders = [stream.sender for stream in job.pipeline.streams]
    interval = FUSED_INTERVAL_MS if wishes.batch_interval_ms is None else wishes.batch_interval_ms
    scenario = FusedScenario(
        setup,
        due,
        wishes.seconds,
        positive(interval, "batch interval") / 1000,
        sent_per_tuple(list(setup.gains), senders, carried),
    )
    batches = simulate_fused(scenario, wishes.progress)
    done = sum(batch.tuples for batch in batches)
    began = batches[0].finished if batches else 0.0
    last = batches[-1].finished if batches else wishes.seconds
    offered = job.load.rate_between(began + wishes.warm_up, last)
    report = summarise(batches, offered, wishes.warm_up, Audit(done, 0, 0, 0, 0), began=0.0)
    engine = setup.batch_cpu_seconds * report.batches / report.seconds if report.seconds else 0.0
    report = replace(report, engine_cpu=engine)
    slot = setup.use(report.sustained_rate)
    latencies = [batch.latencies for batch in batches if batch.finished - began >= wishes.warm_up]
    return SimulatedResult(
        pipelines=(
            PipelineResult(
                pipeline=job.pipeline.name,
                mode=str(Mode.FUSED),
                load=job.load,
                report=report,
                predicted_rate=finite(setup.rate()),
                predicted_bottleneck=_longest(setup),
                predicted_latency_ms={},
                predicted_slots=dict.fromkeys(report.slots, (slot.cpu, slot.memory_mb)),
                bottleneck=None if report.stable else _fused_bottleneck(setup),
                latencies=np.concatenate(latencies) if latencies else np.empty(0),
                overload_shows_most=True,
            ),
        ),
        seconds=wishes.seconds,
        warm_up=wishes.warm_up,
        seed=wishes.seed,
        engine="batches",
        nodes={EMBEDDED_NODE: _added(report)},
    )


def _added(report: Report) -> tuple[float, float]:
    cpus, memories = zip(*report.slots.values(), strict=True) if report.slots else ((), ())
    return report.engine_cpu + sum(cpus), float(sum(memories))


def _longest(setup: FusedSetup) -> str | None:
    """The operator that takes most of a batch."""
    each = max(1, setup.most_rows // setup.slots)
    shares = {name: setup.busy_seconds(name, each) for name in setup.modelled}
    return max(shares, key=shares.__getitem__, default=None)


def _fused_bottleneck(setup: FusedSetup) -> str:
    if setup.rate() < setup.slots_rate():
        return f"the machine's {setup.cores} cores (cpu)"
    return f"'{_longest(setup)}' takes most of a batch (service)"
