"""A slot is one core: what threads did beyond that, they did on cores that were free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.modelling.model import Model, Point

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
