"""A pipeline or plan made ready to run fused: everything about it that can be wrong before Spark is started."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.allocation.pipeline import demands_of
from penstock.clock import Stopwatch
from penstock.cluster.cores import cores_here
from penstock.dataflow.code import is_sparks_own
from penstock.dataflow.endpoints import is_driven_by_load
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind, Pipeline
from penstock.dataflow.rates import gains
from penstock.errors import BadInputError
from penstock.jobs.find import ModelsLike, RunnableLike, find_code_beside, find_models_for, logic_of, runnable
from penstock.jobs.fused_results import closing_notes, predictions, unmeasured_ends
from penstock.modelling.doubts import doubts_about
from penstock.modelling.machine import this_machine
from penstock.modelling.model import Model
from penstock.modelling.per_tuple_overhead import (
    handling_cpu_seconds,
    handling_seconds,
    without_handling,
)
from penstock.modelling.shape import shape_of
from penstock.prediction.crews import crews_of
from penstock.prediction.fused import FusedSetup, fused_threads, rows_of_batch
from penstock.prediction.rehearsed import correction_by, correction_for, rehearsed_cpu_seconds
from penstock.report.figures import RecentBatches
from penstock.report.result import RunResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.dataflow.logic import Logic
    from penstock.modelling.library import ModelLibrary
    from penstock.modelling.model import Rehearsal
    from penstock.planning.file import SavedPlan
    from penstock.prediction.crews import Crews
    from penstock.prediction.rate import Demands
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.report.report import BatchObservation, Report

ASSUMED_OVERHEAD_SECONDS = 0.15
"""What the engine needs for a batch where no model says."""
ASSUMED_BATCH_CPU_SECONDS = 0.1
"""CPU the engine needs for a batch where no model says."""
BATCH_SECONDS = 2.0
"""Batches of a run hold at most so much work: the engine's own part of one is about a tenth of a second, and only a run
that falls behind fills them."""
INTERVAL_MS = 100
"""From one batch to the next, at least, where nobody says."""
FIGURES_SECONDS = 1.0
"""A listener hears figures this often."""
UNKNOWN_RATE = 1e9
"""What comes of a source of the user's own is not known: threads are chosen as for more than can be done."""
FIRST_ROWS = 50
"""Tuples per slot of the first batch where no model says how many are a second of work."""


@dataclass(frozen=True)
class PlannedRun:
    """What a plan says about running it: rate, threads of each operator over all slots, slots, and its prediction."""

    rate: float
    threads: Mapping[str, int]
    slots: int
    rates: Mapping[str, float | None]


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
    interval_ms: int = INTERVAL_MS
    """From one batch to the next, at least."""

    @property
    def all_threads(self) -> dict[str, int]:
        """Of each operator over all slots."""
        return {name: count * self.slots for name, count in self.threads.items()}

    @property
    def predicted_rate(self) -> float | None:
        return None if self.setup is None else self.setup.rate(self.interval_ms / 1000)

    def result(self, report: Report, load: Load, **more: Any) -> RunResult:
        """A source of the user's own decides by itself what a batch holds: what is predicted is for batches as they
        came. A report counts the tuples of all k sources of the user's own, the formula those of each: a batch of r of
        the one holds `r / k` of the other, and the rate of the formula is a k-th of the report's."""
        setup, notes = self.setup, self.notes
        own_source = not is_driven_by_load(self.pipeline)
        sources = len(self.pipeline.sources) if own_source else 1
        # where batches are taken as they came, the interval is in how many tuples they held
        interval = 0.0 if own_source else self.interval_ms / 1000
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
    pipeline: RunnableLike,
    rate: float | str | Load | None,
    slots: int | None,
    models: ModelsLike,
    *,
    search: bool,
    threads: Mapping[str, int] | None = None,
    interval_ms: int = INTERVAL_MS,
    here: bool = True,
) -> FusedJob:
    """Everything about a run that can be known, and be wrong, before Spark is started. `threads`: over all slots, those
    of a run that goes on, instead of what plan, pipeline and models say. `here`: its slots share the cores of this
    machine; elsewhere each has its own."""
    if interval_ms < 1:
        raise BadInputError(f"interval_ms=: expected at least 1, found {interval_ms}")
    find_code_beside(pipeline)
    pipeline_to_run, plan = runnable(pipeline)
    planned = None if plan is None else planned_run(plan)
    if rate is None and planned is not None:
        rate = planned.rate
    if search:
        load = Load.constant(1.0)
    elif rate is None:
        if is_driven_by_load(pipeline_to_run):
            raise BadInputError("rate=: expected tuples/s; only a plan has a rate of its own")
        load = Load.constant(UNKNOWN_RATE)
    else:
        load = rate if isinstance(rate, Load) else parse_load(str(rate))
    demands = demands_to_run(pipeline_to_run, find_models_for(plan, models))
    plan_rates = planned.rates if planned else None
    if threads is not None:
        known = {name: threads[name] for name in pipeline_to_run.operators if name in threads}
        planned = PlannedRun(load.peak_rate, known, slots or 1, plan_rates or {})
    most_work = most_work_seconds(interval_ms / 1000)
    most_rate = math.inf if search else load.peak_rate
    slots = slots or (planned.slots if planned else None) or cores_here()
    cores = cores_here() if here else slots
    setup = fused_setup(pipeline_to_run, planned, demands, slots, most_rate, cores, most_work)
    unknown = [
        n for n, operator in pipeline_to_run.operators.items() if operator.kind is Kind.OPERATOR and demands[n] is None
    ]
    # what is declared says nothing of time: batches cut by it would hold as much as if it took none
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
        interval_ms=interval_ms,
    )


def most_work_seconds(interval_seconds: float) -> float:
    """Seconds of work a batch of a run holds at most: `max(BATCH_SECONDS, interval)`. With less than the interval slots
    that fall behind would be done before the next batch may begin, and wait for it."""
    return max(BATCH_SECONDS, interval_seconds)


def fused_setup(
    pipeline: Pipeline,
    planned: PlannedRun | None,
    demands: Demands,
    slots: int | None,
    rate: float,
    cores: int,
    most_work: float = BATCH_SECONDS,
) -> FusedSetup:
    """How `pipeline` runs fused at up to `rate` tuples/s: on the slots given, else those of the plan, else a slot for
    every core; with the threads of the plan, else those declared, else those the models say. A batch holds `most_work`
    seconds of work at most."""
    slots = slots or (planned.slots if planned else None) or cores
    threads = fused_threads(gains(pipeline), demands, rate, slots)
    given = (
        planned.threads
        if planned
        else {n: operator.threads for n, operator in pipeline.operators.items() if operator.threads}
    )
    threads |= {name: -(-count // slots) for name, count in given.items()}
    setup = _of_models(pipeline, demands, threads, slots, cores)
    setup = _set_right(setup, pipeline, demands)
    return replace(setup, most_rows=rows_of_batch(setup, most_work))


def _set_right(setup: FusedSetup, pipeline: Pipeline, demands: Demands) -> FusedSetup:
    """By rehearsals, where there were any; what Spark's processes need is as the one with most slots says."""
    rehearsals = rehearsals_of(pipeline, demands)
    if not rehearsals:
        return setup
    as_models_say = {rehearsal.slots: _as_rehearsed(pipeline, demands, rehearsal) for rehearsal in rehearsals}
    fullest = max(rehearsals, key=lambda rehearsal: rehearsal.slots)
    code_cpu = as_models_say[fullest.slots].cpu_per_tuple
    sparks_cpu = max(0.0, rehearsed_cpu_seconds(fullest) - code_cpu)
    known = []
    for rehearsal in rehearsals:
        formula = replace(as_models_say[rehearsal.slots], sparks_cpu_seconds=sparks_cpu)
        known.append((rehearsal.slots, correction_by(rehearsal, formula.batch_seconds)))
    correction = correction_for(min(setup.slots, setup.cores), known)
    return replace(setup, sparks_cpu_seconds=sparks_cpu, correction=correction)


def _of_models(pipeline: Pipeline, demands: Demands, threads: Mapping[str, int], slots: int, cores: int) -> FusedSetup:
    """As the models of the operators say, each for itself."""
    modelled = [demand for demand in demands.values() if isinstance(demand, Model)]
    entering = len(pipeline.sources)
    crews = crews_of(pipeline, threads, sparks_own(pipeline, demands))
    return FusedSetup(
        gains(pipeline),
        handed_on(demands, crews),
        threads,
        slots,
        cores,
        1,
        batch_overhead_seconds(modelled),
        batch_cpu_seconds(modelled),
        handling_seconds=entering * handling_seconds(modelled),
        handling_cpu_seconds=entering * handling_cpu_seconds(modelled),
        crews=crews,
    )


def _as_rehearsed(pipeline: Pipeline, demands: Demands, rehearsal: Rehearsal) -> FusedSetup:
    cores = max(demand.measured_on.cores or 1 for demand in demands.values() if isinstance(demand, Model))
    threads = {**dict.fromkeys(pipeline.operators, 1), **rehearsal.threads}
    return _of_models(pipeline, demands, threads, rehearsal.slots, cores)


def rehearsals_of(pipeline: Pipeline, demands: Demands) -> list[Rehearsal]:
    """Those of the pipeline as it is that all its models know of: one that was measured anew since knows none."""
    known = [
        demand.measured_on.rehearsals
        for name, demand in demands.items()
        if isinstance(demand, Model) and pipeline.operators[name].kind is Kind.OPERATOR
    ]
    measured = {name for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR}
    return [
        rehearsal
        for rehearsal in (known[0] if known else ())
        if rehearsal.pipeline == pipeline.name
        and set(rehearsal.threads) == measured
        and rehearsal.shape in (None, shape_of(pipeline))
        and all(rehearsal in others for others in known)
    ]


def sparks_own(pipeline: Pipeline, demands: Demands) -> set[str]:
    """Operators that are part of the query itself: as they say, or their models."""
    return {
        name
        for name, operator in pipeline.operators.items()
        if is_sparks_own(operator)
        or (isinstance(model := demands[name], Model) and model.measured_on.per is Per.DATAFRAME)
    }


def handed_on(demands: Demands, crews: Crews) -> Demands:
    """Models without what a slot pays once for all its operators."""
    rows = {name for name, model in demands.items() if isinstance(model, Model) and model.measured_on.per is Per.ROW}
    behind_rows = {after for crew in crews for before, after in pairwise(crew) if {before, after} <= rows}
    return {
        name: without_handling(model, gets_rows=name in behind_rows) if isinstance(model, Model) else model
        for name, model in demands.items()
    }


def planned_run(plan: SavedPlan) -> PlannedRun:
    threads = {name: planned.threads for name, planned in plan.operators.items()}
    return PlannedRun(plan.rate, threads, max(1, plan.slots.used), _plan_rates(plan, "plan"))


def _plan_rates(plan: SavedPlan, where: str) -> dict[str, float | None]:
    rates = plan.prediction.get("rate")
    if not isinstance(rates, dict) or not all(rate is None or isinstance(rate, int | float) for rate in rates.values()):
        raise BadInputError(f"{where}: prediction.rate: expected tuples/s by routing")
    return dict(rates)


def demands_to_run(pipeline: Pipeline, library: ModelLibrary) -> Demands:
    """As planning knows them, but an operator nobody has a model of may run: None."""
    unknown = {
        name
        for name, operator in pipeline.operators.items()
        if operator.kind is Kind.OPERATOR
        and operator.model is None
        and not operator.is_declared
        and library.name_for(pipeline.name, name, None) not in library.models
    }
    known = Pipeline.of(
        pipeline.name, [operator for operator in pipeline.operators.values() if operator.name not in unknown], []
    )
    return {**demands_of(known, library), **dict.fromkeys(unknown)}


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


def batch_cpu_seconds(models: list[Model]) -> float:
    """CPU the engine needs for a micro-batch, as the models say."""
    batch_cpu_ms = [model.measured_on.batch_cpu_ms for model in models if model.measured_on.batch_cpu_ms is not None]
    return sum(batch_cpu_ms) / len(batch_cpu_ms) / 1000 if batch_cpu_ms else ASSUMED_BATCH_CPU_SECONDS


def batch_overhead_seconds(models: list[Model]) -> float:
    """What a micro-batch takes whatever it holds, as the models say."""
    overheads_ms = [m.measured_on.batch_overhead_ms for m in models if m.measured_on.batch_overhead_ms is not None]
    return sum(overheads_ms) / len(overheads_ms) / 1000 if overheads_ms else ASSUMED_OVERHEAD_SECONDS
