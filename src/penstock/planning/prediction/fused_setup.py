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
from penstock.dataflow.rates import gains, topological_order
from penstock.modelling.adjustments import handling_cpu_seconds, handling_seconds, without_handling
from penstock.modelling.fingerprint import shape_of
from penstock.modelling.model import Model
from penstock.planning.prediction.fused import FusedSetup, fused_threads, rows_of_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Rehearsal
    from penstock.planning.prediction.rate import Demands


# Which operators of a fused slot share threads.
#
# The engine's rule (`penstock.runtime.steps.plan_pools`), for planning, which knows no engine: neighbours with one
# thread each stay in one thread; an operator with several has its own, so that its waiting is another's working time.


_ENTRANCE = -1

Crews = tuple[tuple[str, ...], ...]


def crews_of(pipeline: Pipeline, threads: Mapping[str, int], sparks_own: Collection[str]) -> Crews:
    """`sparks_own` operators are in none; what they send enters a slot anew."""
    crews: list[tuple[list[str], int]] = []
    crew_of: dict[str, set[int]] = {}
    level: dict[str, int] = {}
    head: dict[int, int] = {}
    """By how many of Spark's own operators came before: the crew with one thread that takes what enters."""
    for name in topological_order(pipeline):
        senders = [stream.sender for stream in pipeline.inputs(name)]
        level[name] = max((level[sender] for sender in senders), default=0) + (name in sparks_own)
        before = set[int]().union(*(crew_of[sender] for sender in senders)) or {_ENTRANCE}
        if name in sparks_own:
            crew_of[name] = {_ENTRANCE}
            continue
        if not _has_code(pipeline, name):
            crew_of[name] = before
            continue
        entered = head.get(level[name], _ENTRANCE)
        count = threads.get(name, 1)
        crew = min(entered if crew_before == _ENTRANCE else crew_before for crew_before in before)
        joins = count == 1 and crew != _ENTRANCE and crews[crew][1] == 1 and before <= {crew, _ENTRANCE}
        if joins and (_ENTRANCE not in before or crew == entered):
            crews[crew][0].append(name)
        else:
            crews.append(([name], count))
            crew = len(crews) - 1
            if count == 1 and before == {_ENTRANCE}:
                head[level[name]] = crew
        crew_of[name] = {crew}
    return tuple(tuple(names) for names, _ in crews)


def _has_code(pipeline: Pipeline, name: str) -> bool:
    operator = pipeline.operators[name]
    return operator.kind is Kind.OPERATOR or operator.run is not None or operator.logic is not None


# What the whole takes beyond its parts: the formula of a fused run, set right by rehearsals of the pipeline.
#
# Models are of operators alone. What Spark needs to make tuples, to carry them to code and back, to read and write
# files, and what slots lose by sharing a machine, is in none of them. So a profile ends by running the pipeline as a
# whole, as fast as it goes, with batches of n1 and of n2 tuples on r slots: they took T1 and T2 seconds, where the
# formula says F1 and F2. From then on a batch of n tuples on s slots is taken to need
#
# T(n) = k F(n) + a + c n / min(s, cores)      seconds.
#
# Where tuples took longer than the formula says, `c = r ((T2 - T1) - (F2 - F1)) / (n2 - n1)` seconds of a slot each and
# k = 1: what Spark needs for a tuple stays, however many threads its operators get. Where they took less, c = 0 and
# `k = (T2 - T1) / (F2 - F1)`. Either way `a = T1 - k F1 - c n1 / r`. Between numbers of slots that were rehearsed
# everything is linear, outside of them flat.


LEAST_LEFT = 0.05
"""Of what the formula says: a rehearsal that took hardly any time was none."""


@dataclass(frozen=True, slots=True)
class Correction:
    """k, a and c, and the pace of the cores they were measured at."""

    factor: float = 1.0
    batch_seconds: float = 0.0
    tuple_seconds: float = 0.0
    """Of a slot."""
    pace: float | None = None

    def applied(self, seconds: float, tuples: int, slots: int) -> float:
        """To a batch for which the formula says `seconds`."""
        corrected = self.factor * seconds + self.batch_seconds + self.tuple_seconds * tuples / slots
        return max(LEAST_LEFT * seconds, corrected)

    def slowed(self, slower: float) -> Correction:
        """On cores so many times slower: all of it is taken to be CPU."""
        return replace(
            self, batch_seconds=slower * self.batch_seconds, tuple_seconds=slower * self.tuple_seconds, pace=None
        )

    def towards(self, other: Correction, part: float) -> Correction:
        def between(here: float, there: float) -> float:
            return here + part * (there - here)

        return Correction(
            between(self.factor, other.factor),
            between(self.batch_seconds, other.batch_seconds),
            between(self.tuple_seconds, other.tuple_seconds),
            self.pace if part < 1 / 2 else other.pace,
        )


def correction_by(rehearsal: Rehearsal, formula: Callable[[int], float]) -> Correction:
    """`formula` says how long a batch takes as it was rehearsed."""
    small, large = rehearsal.small, rehearsal.large
    predicted = formula(large.tuples) - formula(small.tuples)
    took = max(LEAST_LEFT * predicted, large.seconds - small.seconds)
    if took >= predicted:
        factor, each = 1.0, (took - predicted) / (large.tuples - small.tuples)
    else:
        factor, each = took / predicted, 0.0
    batch = small.seconds - factor * formula(small.tuples) - each * small.tuples
    return Correction(factor, batch, rehearsal.slots * each, rehearsal.pace)


def correction_for(slots: int, known: Sequence[tuple[int, Correction]]) -> Correction | None:
    """Of `slots`, from what is `known` of some numbers of them."""
    ordered = sorted(known, key=lambda entry: entry[0])
    if not ordered:
        return None
    for (fewer, before), (more, after) in pairwise(ordered):
        if fewer <= slots <= more:
            return before.towards(after, (slots - fewer) / (more - fewer))
    return ordered[0][1] if slots <= ordered[0][0] else ordered[-1][1]


def rehearsed_cpu_seconds(rehearsal: Rehearsal) -> float:
    """Of Spark's whole process tree, code among it: the slope of the two sizes."""
    small, large = rehearsal.small, rehearsal.large
    return max(0.0, large.cpu_seconds - small.cpu_seconds) / (large.tuples - small.tuples)


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
