"""The highest rate a cluster sustains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataflow.rates import checked_rate
from penstock.errors import BadInputError
from penstock.planning.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.allocation.contract import Allocator
    from penstock.cluster.topology import Cluster
    from penstock.placement.contract import Placer
    from penstock.planning.planner import Planner

DEFAULT_STEP = 10.0
MOST_STEPS = 100_000_000


@dataclass(frozen=True, slots=True)
class Capacity:
    """Multiples of the step, 0 where not even one step fits.

    `allocated` is the highest rate whose allocation (without sources and sinks, as the documents count) needs no more
    slots than there are, `placed` the highest up to it that the placer could also place, and `predicted` the
    rate that placement supports with slot-aware routing.
    """

    allocated: float
    placed: float
    predicted: float


def capacity(planner: Planner, cluster: Cluster, allocator: Allocator, placer: Placer, step: float) -> Capacity:
    """The highest multiple of `step` whose plan fits the cluster.

    Slots needed need not grow with the rate from one step to the next, so after a first step that does not fit is
    found by doubling, every step up to where even twice the slots would not do is looked at from above.
    """
    checked_rate(step, "step")
    if not planner.grows_with_rate:
        raise BadInputError(
            f"pipeline '{planner.pipeline.name}': no operator with a model gets more at a higher rate: any rate fits"
        )
    slots = len(cluster.slots)

    def needed(multiple: int) -> int:
        return planner.allocate(multiple * step, allocator).slots

    allocated = _highest(lambda multiple: needed(multiple) <= slots, lambda multiple: needed(multiple) > 2 * slots)
    for multiple in range(allocated, 0, -1):
        if needed(multiple) <= slots:
            plan = planner.plan(multiple * step, allocator, placer)
            if isinstance(plan, Plan):
                return Capacity(allocated * step, multiple * step, plan.prediction.slot_aware.rate)
    return Capacity(allocated * step, 0.0, 0.0)


def _highest(fits: Callable[[int], bool], hopeless: Callable[[int], bool]) -> int:
    """The largest whole number that fits, looking no further than the first power of two that is hopeless."""
    limit = 1
    while not hopeless(limit) and limit < MOST_STEPS:
        limit *= 2
    return next((multiple for multiple in range(limit, 0, -1) if fits(multiple)), 0)


def as_number(rate: float) -> float:
    """Whole rates without a fraction, so that 280 reads as 280."""
    return int(rate) if math.isclose(rate, round(rate)) else rate
