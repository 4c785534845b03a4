"""A pipeline or plan made ready to run fused: everything about it that can be wrong before Spark is started."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.cluster.cores import cores_here
from penstock.dataflow.aggregate import Emit
from penstock.dataflow.endpoints import file_end, is_driven_by_load, reading_of, writing_of
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.inputs.finders import RunnableLike, find_code_beside, find_models_for, logic_of, runnable
from penstock.modelling.library import demands_to_run, doubts_about
from penstock.modelling.machine import this_machine
from penstock.modelling.model import Model
from penstock.planning.prediction.fused import PlannedRun, fused_setup, most_work_seconds
from penstock.planning.prediction.placement import closing_seconds
from penstock.report.figures import RecentBatches
from penstock.report.result import RunResult
from penstock.runs.config import FUSED, RunConfig
from penstock.runs.environment import is_on_this_machine, local_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.logic import Logic
    from penstock.planning.files import SavedPlan
    from penstock.planning.prediction.fused import FusedSetup
    from penstock.planning.prediction.placement import Demands
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.report.report import BatchObservation, Report


# Predictions in the report of a fused run, and notes on parts that they leave out.


def unmeasured_ends(pipeline: Pipeline, demands: Demands, *, rehearsed: bool) -> list[str]:
    """What the prediction leaves out: the load generator and sinks that only count take next to nothing, and what files
    take is in what was rehearsed."""
    notes = []
    for name, operator in pipeline.operators.items():
        reads = operator.kind is Kind.SOURCE and not reading_of(operator).is_load
        writes = operator.kind is Kind.SINK and writing_of(operator).keeps_rows
        known = isinstance(demands[name], Model) or (rehearsed and file_end(operator) is not None)
        if (reads or writes) and not known:
            notes.append(
                f"what {operator.kind} '{name}' needs to {'read' if reads else 'write'} is in no model: the prediction "
                "leaves it out"
            )
    return notes


def closing_notes(pipeline: Pipeline, setup: FusedSetup, rate: float, interval_seconds: float) -> list[str]:
    """What latency, predicted and measured, leaves out: it ends when a tuple's batch is committed."""
    steady = setup.steady_batch(rate, interval_seconds)
    return [
        f"operator '{name}' sends windows on when they are closed: half of its tuples are in what has left it "
        f"{closing_seconds(aggregate, *steady):.1f} s after they were due, as predicted; latency is counted until a "
        "tuple's batch is committed"
        for name, operator in pipeline.operators.items()
        if (aggregate := operator.aggregate) is not None and aggregate.emit is Emit.CLOSED and steady is not None
    ]


def predictions(setup: FusedSetup, interval_seconds: float, sources: int, *, own_source: bool) -> dict[str, Any]:
    """What a result is told of it: rates are of all `sources` together. The latency of a source of the user's own is
    counted from when Spark took a tuple in: it is that of the batch."""

    def use(rate: float) -> tuple[float, float]:
        slot = setup.use(rate / sources)
        return slot.cpu, slot.memory_mb

    def latency(rate: float, pace: float | None) -> Mapping[str, float] | None:
        run = setup if pace is None else setup.at_pace(pace)
        if own_source:
            return {"p50": 1000 * run.batch_seconds(run.most_rows)}
        return run.latency_ms(rate / sources, interval_seconds)

    return {
        "predicted_use": use,
        "models_pace": setup.pace,
        "rate_at_pace": lambda pace: sources * setup.at_pace(pace).rate(interval_seconds),
        "latency_at": latency,
    }


FIGURES_SECONDS = 1.0
"""A listener hears figures this often."""
UNKNOWN_RATE = 1e9
"""What comes of a source of the user's own is not known: threads are chosen as for more than can be done."""
FIRST_ROWS = 50
"""Tuples per slot of the first batch where no model says how many are a second of work."""


@dataclass(frozen=True)
class FusedJob:
    """A pipeline ready to be run, whichever way: code, threads of each operator in one slot, batches, a prediction."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    threads: Mapping[str, int]
    slots: int
    load: Load
    most_rows: int
    batch_seconds: float | None
    notes: tuple[str, ...]
    plan_rates: Mapping[str, float | None] | None
    setup: FusedSetup | None
    """What is predicted comes from here; None: no operator has a model."""
    slot_memory_mb: float | None = None
    """That of the plan, where there is one."""
    config: RunConfig = field(default_factory=RunConfig)

    @property
    def all_threads(self) -> dict[str, int]:
        """Of each operator over all slots."""
        return {name: count * self.slots for name, count in self.threads.items()}

    @property
    def interval_seconds(self) -> float:
        """Seconds from one batch to the next, at least."""
        return self.config.batch_interval_ms / 1000

    @property
    def predicted_rate(self) -> float | None:
        return None if self.setup is None else self.setup.rate(self.interval_seconds)

    def result(self, report: Report, load: Load, **more: Any) -> RunResult:
        """A source of the user's own decides by itself what a batch holds: what is predicted is for batches as they
        came. A report counts the tuples of all k sources of the user's own, the formula those of each: a batch of r of
        the one holds `r / k` of the other, and the rate of the formula is a k-th of the report's."""
        setup, notes = self.setup, self.notes
        own_source = not is_driven_by_load(self.pipeline)
        sources = len(self.pipeline.sources) if own_source else 1
        # where batches are taken as they came, the interval is in how many tuples they held
        interval = 0.0 if own_source else self.interval_seconds
        if setup is not None and own_source and report.batches:
            rows = max(1, round(report.sustained_rate * report.seconds / report.batches))
            setup = replace(setup, most_rows=max(1, round(rows / sources)))
            evenly = f", as many of each of {sources} sources" if sources > 1 else ""
            notes = (
                *notes,
                f"what is predicted is for batches of {rows:,} tuples, as they came on average{evenly}",
                *unmeasured_ends(self.pipeline, setup.demands, rehearsed=setup.correction is not None),
            )
        if setup is not None and not own_source:
            notes = (*notes, *closing_notes(self.pipeline, setup, report.offered_rate, interval))
        return RunResult(
            self.pipeline.name,
            self.slots,
            self.threads,
            None if setup is None else sources * setup.rate(interval),
            replace(report, notes=(*notes, *report.notes)),
            load,
            plan_rates=self.plan_rates,
            own_source=own_source,
            **({} if setup is None else predictions(setup, interval, sources, own_source=own_source)),
            **more,
        )


def prepare(
    pipeline: RunnableLike, config: RunConfig | None = None, *, threads: Mapping[str, int] | None = None
) -> FusedJob:
    """Check everything about a run that can be wrong before Spark is started. `threads`: over all slots, those of a run
    that is resumed, instead of those of plan, pipeline and models."""
    config = (config or RunConfig()).for_engine(FUSED)
    search, models, load = config.find_max, config.models, config.load
    slots = config.slots or local_slots(config.master)
    here = is_on_this_machine(config)
    find_code_beside(pipeline)
    pipeline_to_run, plan = runnable(pipeline)
    planned = None if plan is None else planned_run(plan)
    if load is None and planned is not None:
        load = parse_load(str(planned.rate))
    if search:
        load = Load.constant(1.0)
    elif load is None:
        if is_driven_by_load(pipeline_to_run):
            raise BadInputError("rate=: expected tuples/s; only a plan has a rate of its own")
        load = Load.constant(UNKNOWN_RATE)
    demands = demands_to_run(pipeline_to_run, find_models_for(plan, models))
    plan_rates = planned.rates if planned else None
    if threads is not None:
        known = {name: threads[name] for name in pipeline_to_run.operators if name in threads}
        planned = PlannedRun(load.peak_rate, known, slots or 1, plan_rates or {})
    most_work = most_work_seconds(config.batch_interval_ms / 1000)
    most_rate = math.inf if search else load.peak_rate
    slots = slots or (planned.slots if planned else None) or cores_here()
    cores = cores_here() if here else slots
    setup = fused_setup(pipeline_to_run, planned, demands, slots, most_rate, cores, most_work)
    unknown = [
        n for n, operator in pipeline_to_run.operators.items() if operator.kind is Kind.OPERATOR and demands[n] is None
    ]
    # declared demands have no time: batches sized by them would hold as much as if operators took none
    untimed = any(
        operator.kind is Kind.OPERATOR and not isinstance(demands[n], Model)
        for n, operator in pipeline_to_run.operators.items()
    )
    modelled = any(isinstance(demand, Model) for demand in demands.values())
    logic = logic_of(pipeline_to_run)
    notes = [f"operator '{name}' has no model: its work is not in the prediction" for name in unknown if modelled]
    notes += doubts_about(pipeline_to_run, demands, here=this_machine() if here else None, code=logic)
    if modelled and slots > cores:
        notes.append(f"{slots} slots share {cores} cores here")
    return FusedJob(
        pipeline=pipeline_to_run,
        logic=logic,
        threads=setup.threads,
        slots=slots,
        load=load,
        most_rows=FIRST_ROWS * slots if untimed else setup.most_rows,
        batch_seconds=most_work if untimed or search else None,
        notes=tuple(notes),
        plan_rates=plan_rates,
        setup=setup if modelled else None,
        slot_memory_mb=None if plan is None else plan.slots.memory_mb,
        config=config,
    )


def planned_run(plan: SavedPlan) -> PlannedRun:
    threads = {name: planned.threads for name, planned in plan.operators.items()}
    return PlannedRun(plan.rate, threads, max(1, plan.slots.used), _plan_rates(plan, "plan"))


def _plan_rates(plan: SavedPlan, where: str) -> dict[str, float | None]:
    rates = plan.prediction.get("rate")
    if not isinstance(rates, dict) or not all(rate is None or isinstance(rate, int | float) for rate in rates.values()):
        raise BadInputError(f"{where}: prediction.rate: expected tuples/s by routing")
    return dict(rates)


def batch_hearer(
    listener: Listener, load: Load | None, seconds: float | None
) -> tuple[Callable[[BatchObservation], None], Callable[[], Figures | None]]:
    """Who hears of every batch of a run and tells the listener, and the figures of late for whoever asks. Figures take
    time to work out, so the listener hears them once a second."""
    recent, since_figures = RecentBatches(load, seconds), Stopwatch()

    def hear(batch: BatchObservation) -> None:
        nonlocal since_figures
        recent.add(batch)
        listener.on_batch(batch)
        if since_figures.seconds() >= FIGURES_SECONDS and (figures := recent.figures()) is not None:
            since_figures = Stopwatch()
            listener.on_figures(figures)

    return hear, recent.figures
