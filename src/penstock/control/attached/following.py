"""How many executors somebody's own query is to have: up at once, down late and in small steps, within its limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.control.attached.advice import DEFAULT_LOAD, advise, slots_to_keep_up
from penstock.control.attached.batches import arrivals
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.control.attached.advice import Advice
    from penstock.control.attached.batches import BatchSeen
    from penstock.control.attached.learning import LearnedModel

RECENT_BATCHES = 3
"""What arrives is at least the mean over so many."""
CATCH_UP_SECONDS = 60.0
"""What waits is to be worked off in so long."""
CALM_SECONDS = 900.0
"""Fewer executors only when fewer were enough for so long."""
LARGEST_STEP_DOWN = 0.4


@dataclass(frozen=True, slots=True)
class SizingGoal:
    """`target` is what must hold; executors stay within `minimum` and `maximum`."""

    rate: float | None = None
    latency_ms: float | None = None
    minimum: int = 1
    maximum: int | None = None
    calm_seconds: float = CALM_SECONDS
    load: float = DEFAULT_LOAD

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise BadInputError(f"minimum: expected at least 1, found {self.minimum}")
        if self.maximum is not None and self.maximum < self.minimum:
            raise BadInputError(f"maximum: {self.maximum} is below the minimum of {self.minimum}")

    def within(self, executors: int) -> int:
        return max(self.minimum, executors if self.maximum is None else min(executors, self.maximum))


@dataclass(frozen=True, slots=True)
class Sized:
    """A decision: `to` executors instead of `before`, and why; the same number is a decision too."""

    at: float
    before: int
    to: int
    why: str
    advice: Advice | None = None


@dataclass(frozen=True, slots=True)
class Calm:
    """Since when fewer executors would have been enough, and how many at the most were needed in that time."""

    since: float | None = None
    most: int = 0


def arriving(batches: Sequence[BatchSeen]) -> float:
    """Rows/s at the sources: the mean over the newest batches, or what the last one says where that is more, or a step
    would be followed three batches late. The first batch of all has what waited before there was a query."""
    rates = [rate for rate in arrivals(batches)[1:] if rate][-RECENT_BATCHES:]
    return max(sum(rates) / len(rates), rates[-1]) if rates else 0.0


def follow(
    model: LearnedModel,
    batches: Sequence[BatchSeen],
    wanted: SizingGoal,
    executors: int,
    cores: int,
    calm: Calm,
    now: float,
) -> tuple[Sized, Calm]:
    """needed = slots for what arrives (at least the target's rate) and what waits; clamped; up at once, down late."""
    rate = max(arriving(batches), wanted.rate or 0.0) or model.done_rate
    to_do = rate + (model.backlog or 0.0) / CATCH_UP_SECONDS
    advice = advise(model, rate=to_do, latency_ms=wanted.latency_ms, load=wanted.load)
    slots = slots_to_keep_up(model, to_do, wanted.latency_ms, wanted.load)
    # more slots than partitions do nothing
    needed = wanted.within(math.ceil((slots or model.partitions or executors * cores) / cores))
    seen = f"{rate:,.0f} rows/s arrive" + (f" and {model.backlog:,.0f} wait" if model.backlog else "")
    if needed > executors:
        return Sized(now, executors, needed, f"{seen}: {needed} executors are needed", advice), Calm()
    if needed == executors:
        return Sized(now, executors, executors, f"{seen}: {executors} executors are right", advice), Calm()
    calm = Calm(now, needed) if calm.since is None else replace(calm, most=max(calm.most, needed))
    waited = now - (calm.since or now)
    if waited < wanted.calm_seconds:
        why = f"{seen}: {needed} executors would do; fewer when that holds for {wanted.calm_seconds:g} s"
        return Sized(now, executors, executors, why, advice), calm
    step = max(1, int(LARGEST_STEP_DOWN * executors))
    to = wanted.within(max(calm.most, executors - step))
    return Sized(now, executors, to, f"{seen}: {calm.most} executors were enough for {waited:.0f} s", advice), Calm()
