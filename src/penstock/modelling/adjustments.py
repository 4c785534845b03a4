"""Models at another pace of the cores.

The pace is how many pieces of a fixed work a core does in a second it is wanted (`penstock.runtime.passage`). Where
cores are f times slower, what is CPU takes f times as long and what is waiting does not. Something that keeps u of a
core busy takes `1 + u (f - 1)` times as long.

A trial's batches were B seconds of an operator's work and o of the engine's, which is all CPU. Its operator used
u of a core, so `u (B + o) / B` while it was at work. Batches would hold B seconds of work at any pace, so
`I' = I / (1 + u (B + o) / B (f - 1)) * (B + o) / (B + o f)`. The last factor is that of the part of the time in which
it was at work, too.

Code that mostly waits runs on cores that have just woken up, and sees a slower pace than code that keeps them busy:
paces compare only where operators wait alike.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.modelling.model import Model, Point


ASSUMED_BATCH_SECONDS = 1.0
"""What batches of trials held where a model does not say."""
_OF_THE_ENGINE = (
    "batch_overhead_ms",
    "batch_cpu_ms",
    "worker_batch_cpu_ms",
    "handling_us",
    "column_handling_us",
    "column_handling_cpu_us",
    "own_batch_ms",
)
"""What a model says of the engine's needs."""
LEAST_WEIGHT = 0.01
MOSTLY_WAITS = 0.5
"""Of a core: an operator that uses less at its best mostly waits."""


def slowed(cpu: float, slower: float) -> float:
    """How many times as long something takes on cores `slower` times slower that keeps `cpu` of a core busy."""
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
    """All told for the mean pace of their points, so that they can be compared; those that mostly wait each for the
    mean of its own."""
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
    """The model as it would have been measured at `pace`. The engine's needs are taken to have been measured at the
    mean pace of the points, and so are points that do not say theirs. Where none does, all were measured at `unsaid`;
    where that is not known either, the model stays as it is."""
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
"""An operator keeps its core busy that wants it for so much of the time it is at work."""
USUALLY_AT_WORK = 0.9
"""Of the time, where a point does not say."""


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
"""Of an operator's time: one that does next to nothing may have been measured to be faster than one that does none."""


def handling_seconds(models: Iterable[Model]) -> float:
    """p: the mean over the models that say it; 0 where none does."""
    microseconds = [us for model in models if (us := _of_columns(model)) is not None]
    return mean(microseconds) / 1e6 if microseconds else 0.0


def handling_cpu_seconds(models: Iterable[Model]) -> float:
    """The CPU of p: all of it where a model does not say how much."""
    microseconds = [us - _waiting(model) for model in models if (us := _of_columns(model)) is not None]
    return mean(microseconds) / 1e6 if microseconds else 0.0


def without_handling(model: Model, *, gets_rows: bool = False) -> Model:
    """`gets_rows`: what comes before it in its thread is code per row too, and hands its dicts on: no time goes into
    making them either."""
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
    """Models of 0.1 do not tell it from that of rows."""
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
