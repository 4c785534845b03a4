"""What nothing may exceed, and what may forbid a change: bounds, hours, a pause, advice only, a veto."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.elasticity.options import ElasticOptions
    from penstock.control.elasticity.verdict import SizeVerdict


@dataclass(frozen=True, slots=True)
class Bounds:
    """Units: minimum and maximum of the pipeline, and what quota, budget and partitions leave."""

    minimum: int = 1
    maximum: int | None = None
    divisor_of: int | None = None
    """Partitions of the source: sizes that divide it evenly are taken where one is near."""

    def clamp(self, units: int) -> int:
        most = units if self.maximum is None else min(units, self.maximum)
        return max(self.minimum, most)


NEAR = 1.2
"""A divisor of the partitions up to so many times the size is taken instead of it."""


def even(units: int, bounds: Bounds) -> int:
    """The next size that divides the partitions evenly, where that is near; never more units than partitions."""
    partitions = bounds.divisor_of
    if not partitions:
        return units
    if units >= partitions:
        return partitions
    for size in range(units, int(units * NEAR) + 1):
        if partitions % size == 0:
            return size
    return units


def forbidden(
    verdict: SizeVerdict, options: ElasticOptions, now: float, veto: Callable[[SizeVerdict], str | None] | None
) -> str | None:
    """Why this change may not be; None: it may."""
    if not options.enabled:
        return "following the load is paused"
    if int(now % 86_400 // 3600) in options.excluded_hours:
        return f"hour {int(now % 86_400 // 3600)} (UTC) is excluded"
    if veto is not None and (reason := veto(verdict)) is not None:
        return f"vetoed: {reason}"
    if options.advise_only:
        return "advice only"
    return None
