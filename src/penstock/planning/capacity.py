"""The highest rate a cluster sustains."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, Refusal
from penstock.base.tolerance import TOLERANCE
from penstock.dataflow.pipeline import checked_rate
from penstock.planning.planner import grow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.cluster.topology import Cluster
    from penstock.planning.allocation.contract import Allocator
    from penstock.planning.placement.contract import Placer
    from penstock.planning.plan import Plan
    from penstock.planning.planner import Planner

LEAST_DEFAULT_STEP = 10.0
MOST_STEPS = 2_000
"""Looked at one by one; each is an allocation of the whole pipeline."""
MOST_TUPLES = 1e12
FINEST = 1e12
"""More steps below the highest rate than this say nothing about it that floating point could tell apart."""


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


def default_step(planner: Planner, cluster: Cluster, allocators: Iterable[Allocator]) -> float:
    """Tens of tuples/s; where they fit by the thousands the next power of ten of which fewer than `MOST_STEPS` do."""
    step = LEAST_DEFAULT_STEP
    for allocator in allocators:
        while not _is_hopeless(planner, cluster, allocator, MOST_STEPS * step) and step < MOST_TUPLES:
            step *= 10
    return step


def capacity(planner: Planner, cluster: Cluster, allocator: Allocator, placer: Placer, step: float) -> Capacity:
    """The highest multiple of `step` whose plan fits the cluster.

    Slots needed do not always grow from one step to the next: a partial bundle can need less than a smaller one. But no
    operator's need falls by more than one bundle's, so a rate that needs all operators' bundles more than there is
    has none beyond it that fits; from there every step is looked at from above. What of that can also be placed is
    found by steps down, in strides where many are needed (`grow`).
    """
    checked_rate(step, "step")
    if not planner.grows_with_rate:
        raise BadInputError(
            f"pipeline '{planner.pipeline.name}': no operator with a model gets more at a higher rate: any rate fits"
        )
    slots = len(cluster.slots)

    def needed(multiple: int) -> int:
        return planner.allocate(multiple * step, allocator).slots

    allocated = _highest(
        lambda multiple: needed(multiple) <= slots,
        lambda multiple: _is_hopeless(planner, cluster, allocator, multiple * step),
        step,
    )
    if not allocated:
        return Capacity(0.0, 0.0, 0.0)

    def attempt(fewer: int) -> Plan | Refusal:
        """A refusal says whether more slots help; here it is a lower rate that does, and asks less of a thread."""
        answer = planner.plan((allocated - fewer) * step, allocator, placer)
        return replace(answer, more_slots_may_help=True, slots_missing=1) if isinstance(answer, Refusal) else answer

    fewer, answer = grow(0, allocated - 1, attempt)
    if isinstance(answer, Refusal):
        return Capacity(allocated * step, 0.0, 0.0)
    return Capacity(allocated * step, (allocated - fewer) * step, answer.prediction.slot_aware.rate)


def _is_hopeless(planner: Planner, cluster: Cluster, allocator: Allocator, rate: float) -> bool:
    """Needs so much more than there is that no rate beyond it fits."""
    return planner.allocate(rate, allocator).slots > len(cluster.slots) + planner.largest_bundles


def _highest(fits: Callable[[int], bool], hopeless: Callable[[int], bool], step: float) -> int:
    """The largest whole number that fits, where nothing beyond a hopeless one does."""
    reached, limit = 0, 1
    while not hopeless(limit):
        if limit * step > MOST_TUPLES:
            raise BadInputError(f"capacity: any rate fits, {MOST_TUPLES:g} tuples/s too; a model must need something")
        if limit > FINEST:
            raise BadInputError(f"step: {step:g} is too fine: {FINEST:g} of them fit; take a larger one")
        reached, limit = limit, limit * 2
    limit = reached + 1 + bisect_left(range(reached + 1, limit), x=True, key=hopeless)
    for looked_at, multiple in enumerate(range(limit, 0, -1)):
        if fits(multiple):
            return multiple
        if looked_at > MOST_STEPS:
            raise BadInputError(f"step: {step:g} is too fine: {MOST_STEPS} steps were looked at; take a larger one")
    return 0


def as_number(rate: float) -> float:
    """Whole rates without a fraction, so that 280 reads as 280."""
    return int(rate) if math.isclose(rate, round(rate), rel_tol=TOLERANCE) else rate
