"""Models at another pace of the cores.

The pace is how many pieces of a fixed work a core does in a second it is wanted (`penstock.runtime.cpu_speed`). Where
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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.modelling.model import Model, Point

ASSUMED_BATCH_SECONDS = 1.0
"""What batches of trials held where a model does not say."""
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
    engine = {
        name: None if value is None else slower * value
        for name, value in (
            ("batch_overhead_ms", on.batch_overhead_ms),
            ("batch_cpu_ms", on.batch_cpu_ms),
            ("worker_batch_cpu_ms", on.worker_batch_cpu_ms),
            ("handling_us", on.handling_us),
        )
    }
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
