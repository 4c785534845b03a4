"""A model: the rate, CPU and memory of one slot of an operator, by its number of threads; and its conversion to slower
cores, to one core, or to calls without the handling of rows."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from penstock.base.errors import BadInputError
from penstock.base.files import Amount, Count, Name, Positive, Spec
from penstock.base.tolerance import covers
from penstock.dataflow.logic import Per

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Point(Spec):
    """One measured thread count: its peak stable rate, and CPU and memory at that rate (1.0 = the whole slot).

    CPU is that of the slot's whole process tree; memory is the operator's addition to the base, the memory of a worker
    without it. The spreads are half the range over repeated trials, if there were any.
    """

    threads: Count
    rate: Annotated[Positive, Field(le=1e30)]
    cpu: Amount
    memory: Amount
    rate_spread: Amount | None = None
    cpu_spread: Amount | None = None
    memory_spread: Amount | None = None
    operator_cpu: Amount | None = None
    """The part of the CPU the operator's own process used, in cores: `operator_cpu / rate` seconds for a tuple."""
    engine_cpu: Amount | None = None
    """The part the engine used meanwhile, in cores. The two may come to more than 1 where other cores were free."""
    others_cpu: Amount | None = None
    """The part of the machine that other processes, and its host, used meanwhile: much of it, and rates are too low."""
    pace: Positive | None = None
    """CPU speed meanwhile: pieces of a fixed work that a core did in a second in which it was wanted."""
    busy: Annotated[float, Field(gt=0, le=1)] | None = None
    """The part of the time in which the code was at work at that rate; the rest was the engine's, or there was nothing
    to do. So a slot with always something to do, and no engine, would do `rate / busy`."""
    batch_spread: Amount | None = None
    """Variation of the time for a batch: the standard deviation as a part of the mean."""
    provenance: dict[str, str] = Field(default_factory=dict)
    """Origin of each figure, by the name of the figure."""


class RehearsedBatches(Spec):
    """Batches of one size, as fast as they went: a typical one."""

    tuples: Count
    seconds: Positive
    cpu_seconds: Amount
    """Of Spark's whole process tree, code among it."""


class Rehearsal(Spec):
    """A whole pipeline, run fused on one machine with small and with large batches, when its operators had been
    measured."""

    pipeline: str
    slots: Count
    threads: dict[Name, Count]
    """Threads of each operator in one slot."""
    small: RehearsedBatches
    large: RehearsedBatches
    pace: Positive | None = None
    """CPU speed meanwhile."""
    shape: str | None = None
    """Shape of the pipeline at that time (`penstock.modelling.fingerprint`)."""

    @model_validator(mode="after")
    def _sizes_differ(self) -> Self:
        if self.small.tuples >= self.large.tuples:
            raise ValueError("small.tuples: expected fewer than large.tuples")
        return self


class MeasuredOn(Spec):
    """Conditions of a measurement, so that a plan can warn when they differ."""

    what: str = ""
    cpu: str | None = None
    cores: Count | None = None
    slot_memory_mb: Positive | None = None
    spark: str | None = None
    date: str | None = None
    batch_seconds: Positive | None = None
    """Seconds of work in a batch of the trials."""
    batch_overhead_ms: Amount | None = None
    """Milliseconds the engine needed for a batch, whatever its size."""
    batch_cpu_ms: Amount | None = None
    """The CPU the engine needed for a batch, whatever was in it."""
    worker_batch_cpu_ms: Amount | None = None
    """The CPU a worker needed for a batch with next to nothing in it: it is in the `operator_cpu` of every point."""
    others_cpu: Amount | None = None
    """The most that other processes used of the machine while a point was measured."""
    still_rising: bool = False
    """The profile ended while more threads did more."""
    code: str | None = None
    """The fingerprint of the code that was measured."""
    gets: str | None = None
    """The columns of the tuples it was measured with."""
    selectivity: Amount | None = None
    """Tuples it sent for each that it got, of those sampled before it was measured."""
    samples: Count | None = None
    """Number of samples that reached it then."""
    per: Per | None = None
    """The argument of one call of the code."""
    handling_us: Amount | None = None
    """Microseconds a worker needed for a tuple with an operator that gets it the same way and does nothing: they are in
    the rate of every point, and operators that run fused need them once."""
    column_handling_us: Amount | None = None
    """The part of it that code over columns would need too: the rest is for making dicts of rows, and rows of dicts."""
    column_handling_cpu_us: Amount | None = None
    """CPU of that part, if it is known: the rest of it is spent waiting for Spark."""
    own_batch_ms: Amount | None = None
    """For an operator that is Spark's own: milliseconds it adds to a batch, whatever its size (shuffles, state)."""
    keyed_us: Amount | None = None
    """Microseconds of CPU for a row of an aggregation at its peak in a placed run, which executes it by itself."""
    base_memory_mb: Amount | None = None
    """Memory of a worker without any operator: a slot holds this, and the memory in the models of its operators."""
    java_memory_mb: Amount | None = None
    """Resident memory of Spark's Java process at the end of the rehearsals, in MB."""
    rehearsals: tuple[Rehearsal, ...] = ()
    """Rehearsals of its pipeline, at the end of the profile that measured it."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_rehearsals_tell(cls, data: Any) -> Any:
        """Models of before say what a tuple took that passed through a slot in which nothing was done with it."""
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if name not in {"passing_us", "passing_cpu_us"}}


@dataclass(frozen=True)
class Model:
    """Measured points in order of rising threads.

    Between points everything is linear, before the first it falls to 0 at 0 threads, after the last it is flat.
    """

    name: str
    points: tuple[Point, ...]
    measured_on: MeasuredOn = field(default_factory=MeasuredOn)

    def __post_init__(self) -> None:
        if not self.points:
            raise BadInputError(f"model '{self.name}': expected at least one point")
        counts = [point.threads for point in self.points]
        for before, after in pairwise(counts):
            if after <= before:
                raise BadInputError(f"model '{self.name}': thread counts must rise, found {after} after {before}")

    @cached_property
    def _threads(self) -> list[int]:
        return [point.threads for point in self.points]

    def rate(self, threads: float) -> float:
        """I(t), the peak rate of a slot with `threads` threads."""
        return self._interpolate(threads, self._rates)

    def cpu(self, threads: float) -> float:
        """C(t), the CPU of a slot at the peak rate of `threads` threads."""
        return self._interpolate(threads, self._cpus)

    def memory(self, threads: float) -> float:
        """M(t), the memory of a slot at the peak rate of `threads` threads."""
        return self._interpolate(threads, self._memories)

    def rate_spread(self, threads: float) -> float:
        """Return half the range of I(t) over repeated trials; 0 if there were none."""
        return self._interpolate(threads, [point.rate_spread or 0.0 for point in self.points])

    def batch_spread(self, threads: float) -> float:
        """Return the variation of the time for a batch as a part of its mean; 0 if no point has it."""
        return self._interpolate(threads, [point.batch_spread or 0.0 for point in self.points])

    def busy(self, threads: float) -> float | None:
        """The part of the time in which `threads` threads were at work at their peak rate; None where points do not
        say. Before the first point it is that of the first."""
        known = [point.busy for point in self.points if point.busy is not None]
        if len(known) < len(self.points):
            return None
        return self._interpolate(max(threads, self._threads[0]), known)

    def threads_for(self, rate: float) -> int:
        """T(w), the smallest MEASURED thread count whose peak rate is at least `rate`."""
        for point in self.points:
            if covers(point.rate, rate, self.peak_rate):
                return point.threads
        raise BadInputError(
            f"model '{self.name}': one slot supports at most {self.peak_rate:g} tuples/s, asked for {rate:g}"
        )

    @cached_property
    def peak_rate(self) -> float:
        """The highest rate one slot supports, with any number of threads."""
        return max(self._rates)

    @cached_property
    def peak_threads(self) -> int:
        """The smallest measured thread count that reaches the peak rate."""
        return next(point.threads for point in self.points if covers(point.rate, self.peak_rate))

    @cached_property
    def _rates(self) -> list[float]:
        return [point.rate for point in self.points]

    @cached_property
    def _cpus(self) -> list[float]:
        return [point.cpu for point in self.points]

    @cached_property
    def _memories(self) -> list[float]:
        return [point.memory for point in self.points]

    def _interpolate(self, threads: float, values: Sequence[float]) -> float:
        if threads <= 0:
            return 0.0
        counts = self._threads
        right = bisect_left(counts, threads)
        if right == len(counts):
            return values[-1]
        if counts[right] == threads:
            return values[right]
        left_count, left_value = (counts[right - 1], values[right - 1]) if right else (0, 0.0)
        part = (threads - left_count) / (counts[right] - left_count)
        return left_value + part * (values[right] - left_value)


@dataclass(frozen=True, slots=True)
class FixedDemand:
    """A demand that does not depend on the rate: sources, sinks and Spark's own operators without a model."""

    cpu: float
    memory: float


SOURCE_DEMAND = FixedDemand(cpu=0.10, memory=0.15)
SINK_DEMAND = FixedDemand(cpu=0.10, memory=0.20)
AGGREGATE_DEMAND = FixedDemand(cpu=0.20, memory=0.20)
"""Assumed demand of an aggregation, or another of Spark's own operators, without a model: a guess, until it is
profiled."""


# Models of aggregations in placed runs. Spark does not execute them there: a slot has one thread for them, which keeps
# its core busy at its peak, `I = 1 / keyed seconds`.


def as_placed(model: Model) -> Model:
    """Return the model of an operator as a placed run executes it."""
    on = model.measured_on
    if not on.keyed_us:
        return model
    measured = model.points[0]
    point = Point(
        threads=1,
        rate=1e6 / on.keyed_us,
        cpu=1.0,
        memory=measured.memory,
        operator_cpu=1.0,
        others_cpu=measured.others_cpu,
        pace=measured.pace,
        busy=1.0,
        provenance={"rate": "CPU of a slot's own aggregation for a row of its samples"},
    )
    return replace(model, points=(point,))


# Models at another CPU speed.
#
# The speed ("pace") is how many pieces of a fixed work a core does in a second that it is wanted
# (`penstock.runtime.cpu_speed`).
# Slower cores, by f times, take f times as long for CPU work and no longer for waiting. Something that keeps u of a
# core busy takes `1 + u (f - 1)` times as long.
#
# A trial's batches were B seconds of an operator's work and o of the engine's, which is all CPU. Its operator used
# u of a core, so `u (B + o) / B` while it was at work. Batches would hold B seconds of work at any speed, so
# `I' = I / (1 + u (B + o) / B (f - 1)) * (B + o) / (B + o f)`. The last factor is that of the part of the time in which
# it was at work, too.
#
# Code that mostly waits runs on cores that have just woken up, and sees a slower speed than code that keeps them busy:
# speeds compare only if operators wait alike.


ASSUMED_BATCH_SECONDS = 1.0
"""Seconds of work in batches of trials if a model does not have them."""
_OF_THE_ENGINE = (
    "batch_overhead_ms",
    "batch_cpu_ms",
    "worker_batch_cpu_ms",
    "handling_us",
    "column_handling_us",
    "column_handling_cpu_us",
    "own_batch_ms",
    "keyed_us",
)
"""Fields of a model for the engine's needs."""
LEAST_WEIGHT = 0.01
MOSTLY_WAITS = 0.5
"""Part of a core: an operator that uses less at its best mostly waits."""


def slowed(cpu: float, slower: float) -> float:
    """Return how many times as long something takes on cores `slower` times slower if it keeps `cpu` of a core busy."""
    return 1 + min(1.0, cpu) * (slower - 1)


def pace_of(models: Iterable[Model]) -> float | None:
    """The mean over all points that say theirs, each weighing as much as it used CPU: an operator that waits sees the
    core only when it has just woken up."""
    weighted = [
        (point.pace, max(LEAST_WEIGHT, _cpu(point)))
        for model in models
        for point in model.points
        if point.pace is not None
    ]
    return sum(pace * weight for pace, weight in weighted) / sum(weight for _, weight in weighted) if weighted else None


def _cpu(point: Point) -> float:
    return point.cpu if point.operator_cpu is None else point.operator_cpu


def at_one_pace(models: Iterable[Model]) -> list[Model]:
    """Return all models converted to the mean CPU speed of their points, so that they can be compared; those that
    mostly wait each to the mean of its own."""
    measured = list(models)
    busy = pace_of(model for model in measured if not mostly_waits(model))
    compared = []
    for model in measured:
        pace = pace_of([model]) if mostly_waits(model) else busy
        compared.append(model if pace is None else at_pace(model, pace))
    return compared


def mostly_waits(model: Model) -> bool:
    return max(_cpu(point) for point in model.points) < MOSTLY_WAITS


def at_pace(model: Model, pace: float, unsaid: float | None = None) -> Model:
    """Return the model as measured at CPU speed `pace`. The engine's needs, and points without a speed, count as
    measured at the mean speed of the points. If no point has one, all count as measured at `unsaid`; without that the
    model stays as it is."""
    before = pace_of([model]) or unsaid
    if before is None:
        return model
    slower = before / pace
    on = model.measured_on
    engine = {name: slower * value for name in _OF_THE_ENGINE if (value := getattr(on, name)) is not None}
    return replace(
        model,
        points=tuple(
            _point_at(
                point,
                (point.pace or before) / pace,
                on.batch_seconds or ASSUMED_BATCH_SECONDS,
                (on.batch_overhead_ms or 0.0) / 1000,
            )
            for point in model.points
        ),
        measured_on=on.model_copy(update=engine),
    )


def _point_at(point: Point, slower: float, work: float, overhead: float) -> Point:
    longer = slowed(_cpu(point) * (work + overhead) / work, slower) * (work + overhead * slower) / (work + overhead)
    more = slower / longer
    return point.model_copy(
        update={
            "rate": point.rate / longer,
            "cpu": min(1.0, more * point.cpu),
            "operator_cpu": None if point.operator_cpu is None else more * point.operator_cpu,
            "engine_cpu": None if point.engine_cpu is None else more * point.engine_cpu,
            "pace": None if point.pace is None else point.pace / slower,
            "busy": None
            if point.busy is None
            else min(1.0, point.busy * (work + overhead) / (work + overhead * slower)),
        }
    )


# Limit models to one core per slot: trials may have used other cores that were free.


CORE_BOUND = 0.9
"""Part of its time at work for which a core-bound operator keeps its core busy."""
USUALLY_AT_WORK = 0.9
"""Part of the time at work, if a point does not have it."""


def keeps_core_busy(point: Point) -> bool:
    return (point.operator_cpu or 0.0) >= CORE_BOUND * (point.busy or USUALLY_AT_WORK)


def within_one_core(model: Model) -> Model:
    """More threads than keep the core busy do no more: a rise is that of free cores, or of the machine. A tuple's CPU
    stays as it was seen."""
    busy = next((point for point in model.points if keeps_core_busy(point)), None)
    if busy is None:
        return model
    return replace(model, points=tuple(_at_most(point, busy) for point in model.points))


def _at_most(point: Point, busy: Point) -> Point:
    if point.threads <= busy.threads or point.rate <= busy.rate:
        return point
    part = busy.rate / point.rate
    scaled = {name: getattr(point, name) for name in ("operator_cpu", "engine_cpu", "busy")}
    less = {name: None if value is None else part * value for name, value in scaled.items()}
    return point.model_copy(update={"rate": busy.rate, **less})


# Models without the handling of a tuple by the worker, whatever the operator: taking it from Spark and giving it back.
#
# A trial has one operator, so its rate includes the handling: p seconds a tuple. Operators that run fused, one after
# the other, hand tuples on, and p is paid once for all of them. Code per row needs dicts made of columns, and columns
# of dicts: that stays in its model, but is paid once for neighbours that share a thread. A round of t threads of a
# trial takes `S = t / I * w` seconds, with w the part of the time in which it was at work (`B / (B + o)` if the model
# does not record it: B of work and o of the engine a batch); without handling, `S - t p`.


LEAST_LEFT = 0.05
"""Min part left of an operator's time: one that does next to nothing may have been measured to be faster than one that
does none."""


def handling_seconds(models: Iterable[Model]) -> float:
    """Return p: the mean over the models that have it; 0 if none has."""
    microseconds = [us for model in models if (us := _of_columns(model)) is not None]
    return mean(microseconds) / 1e6 if microseconds else 0.0


def handling_cpu_seconds(models: Iterable[Model]) -> float:
    """Return the CPU of p: all of it if a model does not give the part."""
    microseconds = [us - _waiting(model) for model in models if (us := _of_columns(model)) is not None]
    return mean(microseconds) / 1e6 if microseconds else 0.0


def without_handling(model: Model, *, gets_rows: bool = False) -> Model:
    """Return the model without handling. `gets_rows`: the operator before it in its thread is code per row too, and
    passes its dicts on, so no time goes into making them either."""
    on = model.measured_on
    per_tuple = ((on.handling_us if gets_rows else _of_columns(model)) or 0.0) / 1e6
    if per_tuple == 0:
        return model
    work, overhead = on.batch_seconds or ASSUMED_BATCH_SECONDS, (on.batch_overhead_ms or 0.0) / 1000
    part = work / (work + overhead)
    return replace(
        model,
        points=tuple(_point_without(point, per_tuple, _waiting(model) / 1e6, part) for point in model.points),
        measured_on=on.model_copy(
            update={"handling_us": None, "column_handling_us": None, "column_handling_cpu_us": None}
        ),
    )


def _of_columns(model: Model) -> float | None:
    """Return the handling of columns; models of 0.1 do not separate it from that of rows."""
    on = model.measured_on
    return on.handling_us if on.column_handling_us is None else on.column_handling_us


def _waiting(model: Model) -> float:
    """Microseconds of p that take no CPU."""
    on = model.measured_on
    if on.column_handling_us is None or on.column_handling_cpu_us is None:
        return 0.0
    return max(0.0, on.column_handling_us - on.column_handling_cpu_us)


def _point_without(point: Point, per_tuple: float, waiting: float, part: float) -> Point:
    each = (point.busy or part) / point.rate
    left = max(LEAST_LEFT * each, each - per_tuple) / each
    cpu = point.operator_cpu
    changed = {"rate": point.rate / left}
    if cpu is not None:
        changed["operator_cpu"] = max(LEAST_LEFT * cpu, cpu - (per_tuple - waiting) * point.rate) / left
    return point.model_copy(update=changed)


# The engine's cost of a micro-batch, as models have it, and the threads a rate needs.


ASSUMED_OVERHEAD_SECONDS = 0.15
"""Seconds the engine needs for a batch if no model has them."""
ASSUMED_BATCH_CPU_SECONDS = 0.1
"""CPU seconds the engine needs for a batch if no model has them."""


def batch_cpu_seconds(models: list[Model]) -> float:
    """CPU the engine needs for a micro-batch, as the models say."""
    batch_cpu_ms = [model.measured_on.batch_cpu_ms for model in models if model.measured_on.batch_cpu_ms is not None]
    return sum(batch_cpu_ms) / len(batch_cpu_ms) / 1000 if batch_cpu_ms else ASSUMED_BATCH_CPU_SECONDS


def batch_overhead_seconds(models: list[Model]) -> float:
    """Return the seconds of a micro-batch whatever it holds, by the models."""
    overheads_ms = [m.measured_on.batch_overhead_ms for m in models if m.measured_on.batch_overhead_ms is not None]
    return sum(overheads_ms) / len(overheads_ms) / 1000 if overheads_ms else ASSUMED_OVERHEAD_SECONDS


def fewest_threads(model: Model, rate: float) -> int:
    """Return the smallest number of threads whose peak rate, between measured points too, is `rate`; if there is none,
    that of the peak."""
    if not covers(model.peak_rate, rate):
        return model.peak_threads
    return 1 + bisect_left(
        range(1, model.peak_threads), x=True, key=lambda threads: covers(max_rate_up_to(model, threads), rate)
    )


def max_rate_up_to(model: Model, threads: int) -> float:
    """Return the highest rate of at most `threads` threads: a model may fall before it rises again."""
    return max([model.rate(threads), *(point.rate for point in model.points if point.threads <= threads)])
