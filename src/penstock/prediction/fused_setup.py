"""How a pipeline runs fused: threads, crews, batch sizes and costs, from the models of its operators.

Rehearsals, runs of the whole pipeline in its profile, correct what the models of the single operators say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.dataflow.code import is_sparks_own
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import gains
from penstock.modelling.model import Model
from penstock.modelling.per_tuple_overhead import handling_cpu_seconds, handling_seconds, without_handling
from penstock.modelling.shape import shape_of
from penstock.prediction.crews import crews_of
from penstock.prediction.fused import FusedSetup, fused_threads, rows_of_batch
from penstock.prediction.rehearsed import correction_by, correction_for, rehearsed_cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Rehearsal
    from penstock.prediction.crews import Crews
    from penstock.prediction.rate import Demands

ASSUMED_OVERHEAD_SECONDS = 0.15
"""What the engine needs for a batch where no model says."""
ASSUMED_BATCH_CPU_SECONDS = 0.1
"""CPU the engine needs for a batch where no model says."""
BATCH_SECONDS = 2.0
"""Batches of a run hold at most so much work: the engine's own part of one is about a tenth of a second, and only a run
that falls behind fills them."""


@dataclass(frozen=True)
class PlannedRun:
    """What a plan says about running it: rate, threads of each operator over all slots, slots, and its prediction."""

    rate: float
    threads: Mapping[str, int]
    slots: int
    rates: Mapping[str, float | None]


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


def batch_cpu_seconds(models: list[Model]) -> float:
    """CPU the engine needs for a micro-batch, as the models say."""
    batch_cpu_ms = [model.measured_on.batch_cpu_ms for model in models if model.measured_on.batch_cpu_ms is not None]
    return sum(batch_cpu_ms) / len(batch_cpu_ms) / 1000 if batch_cpu_ms else ASSUMED_BATCH_CPU_SECONDS


def batch_overhead_seconds(models: list[Model]) -> float:
    """What a micro-batch takes whatever it holds, as the models say."""
    overheads_ms = [m.measured_on.batch_overhead_ms for m in models if m.measured_on.batch_overhead_ms is not None]
    return sum(overheads_ms) / len(overheads_ms) / 1000 if overheads_ms else ASSUMED_OVERHEAD_SECONDS
