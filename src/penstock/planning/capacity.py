"""The highest rate a cluster sustains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataflow.rates import checked_rate
from penstock.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.allocate.contract import Allocator
    from penstock.cluster.topology import Cluster
    from penstock.place.contract import Placer
    from penstock.planning.planner import Planner

DEFAULT_STEP = 10.0
MOST_STEPS = 100_000_000


@dataclass(frozen=True, slots=True)
class Capacity:
    """`allocated` is the highest rate whose slots suffice, `planned` the highest that could also be placed.

    Both are multiples of the step, 0 where not even one step fits.
    """

    allocated: float
    planned: float


def capacity(planner: Planner, cluster: Cluster, allocator: Allocator, placer: Placer, step: float) -> Capacity:
    """The highest multiple of `step` whose plan fits the cluster.

    Slots needed need not grow with the rate from one step to the next, so after a first step that does not fit is
    found by doubling, every step up to where even twice the slots would not do is looked at from above.
    """
    checked_rate(step, "step")
    slots = len(cluster.slots)

    def needed(multiple: int) -> int:
        return planner.allocate(multiple * step, allocator).slots_with_ends

    allocated = _highest(lambda multiple: needed(multiple) <= slots, lambda multiple: needed(multiple) > 2 * slots)
    planned = allocated
    while planned and not (
        needed(planned) <= slots and isinstance(planner.plan(planned * step, allocator, placer), Plan)
    ):
        planned -= 1
    return Capacity(allocated * step, planned * step)


def _highest(fits: Callable[[int], bool], hopeless: Callable[[int], bool]) -> int:
    """The largest whole number that fits, looking no further than the first power of two that is hopeless."""
    limit = 1
    while not hopeless(limit) and limit < MOST_STEPS:
        limit *= 2
    return next((multiple for multiple in range(limit, 0, -1) if fits(multiple)), 0)


def as_number(rate: float) -> float:
    """Whole rates without a fraction, so that 280 reads as 280."""
    return int(rate) if math.isclose(rate, round(rate)) else rate
