"""Models without what a worker does with every tuple, whatever the operator: taking it from Spark and giving it back.

A trial has one operator, so its rate has that in it: p seconds a tuple. Operators that run fused, one behind the other,
hand tuples on, and p is paid once for all of them. A round of t threads of a trial takes `S = t / I * B / (B + o)`
seconds (B of work and o of the engine a batch); without handling, `S - t p`.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

from penstock.modelling.pace import ASSUMED_BATCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.modelling.model import Model, Point

LEAST_LEFT = 0.05
"""Of an operator's time: one that does next to nothing may have been measured to be faster than one that does none."""


def handling_seconds(models: Iterable[Model]) -> float:
    """The mean over the models that say it; 0 where none does."""
    told = [m.measured_on.handling_us for m in models if m.measured_on.handling_us is not None]
    return mean(told) / 1e6 if told else 0.0


def without_handling(model: Model) -> Model:
    handling = (model.measured_on.handling_us or 0.0) / 1e6
    if handling == 0:
        return model
    on = model.measured_on
    work, overhead = on.batch_seconds or ASSUMED_BATCH_SECONDS, (on.batch_overhead_ms or 0.0) / 1000
    part = work / (work + overhead)
    return replace(
        model,
        points=tuple(_point_without(point, handling, part) for point in model.points),
        measured_on=on.model_copy(update={"handling_us": None}),
    )


def _point_without(point: Point, handling: float, part: float) -> Point:
    each = part / point.rate
    left = max(LEAST_LEFT * each, each - handling) / each
    cpu = point.operator_cpu
    changed = {"rate": point.rate / left}
    if cpu is not None:
        changed["operator_cpu"] = max(LEAST_LEFT * cpu, cpu - handling * point.rate) / left
    return point.model_copy(update=changed)
