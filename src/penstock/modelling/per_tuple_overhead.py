"""Models without what a worker does with every tuple, whatever the operator: taking it from Spark and giving it back.

A trial has one operator, so its rate has that in it: p seconds a tuple. Operators that run fused, one behind the other,
hand tuples on, and p is paid once for all of them. Code per row needs dicts made of columns, and columns of dicts: that
stays in its model, but is paid once for neighbours that share a thread. A round of t threads of a trial takes
`S = t / I * w` seconds, with w the part of the time in which it was at work (`B / (B + o)` where the model does not
say: B of work and o of the engine a batch); without handling, `S - t p`.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

from penstock.modelling.cpu_speed import ASSUMED_BATCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.modelling.model import Model, Point

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
