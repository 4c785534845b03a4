"""Joint: carries out the decision of the joint allocator; first-fit decreasing if nothing was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.tolerance import TOLERANCE, covers, tie_key
from penstock.planning.placement.contract import PlacedBundle, Placement
from penstock.planning.placement.slots import free_slots, too_few, too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.base.errors import Refusal
    from penstock.cluster.topology import Slot
    from penstock.planning.allocation.contract import Pattern, ThreadBundle
    from penstock.planning.placement.contract import PlacementRequest, Room


@dataclass(frozen=True, slots=True)
class Joint:
    """Slot after slot takes the next pattern: O(bundles).

    Without patterns: exclusive bundles get a slot each, the others go first fit, the largest in the scarcest dimension
    first, with CPU and memory kept per slot. Equal bundles are placed together: O(kinds of bundles x slots).
    """

    name: ClassVar[str] = "joint"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        slots = free_slots(room)
        if (refused := too_large(self.name, request, slots)) is not None:
            return refused
        if not request.patterns:
            return _first_fit(self.name, request, slots)
        needed = sum(count for count, _ in request.patterns)
        if needed > len(slots):
            return too_few(self.name, request, needed, len(slots))
        patterns = (pattern for count, pattern in request.patterns for _ in range(count))
        return Placement(
            request.pipeline,
            self.name,
            tuple(
                PlacedBundle(operator, threads, slot, _reason(operator, pattern) if request.explain else "")
                for slot, pattern in zip(slots, patterns, strict=False)
                for operator, threads in pattern
            ),
        )


def _reason(operator: str, pattern: Pattern) -> str:
    others = [f"{name} {threads}" for name, threads in pattern if name != operator]
    return f"the allocation put it beside {', '.join(others)}" if others else "the allocation gave it this slot alone"


def _first_fit(by: str, request: PlacementRequest, slots: list[Slot]) -> Placement | Refusal:
    left = np.ones((len(slots), 2))
    placed: list[PlacedBundle] = []
    for operator, count, bundle in _largest_first(request):
        fits = _fitting(left, bundle, count)
        if fits.sum() < count:
            return too_few(by, request, len(slots) + 1, len(slots))
        for slot in np.flatnonzero(fits).tolist():
            reason = f"first slot with cpu {bundle.cpu:.3g}, memory {bundle.memory:.3g} left" if request.explain else ""
            number = int(fits[slot])
            placed += [PlacedBundle(operator, bundle.threads, slots[slot], reason)] * number
            left[slot] -= [number * bundle.cpu, number * bundle.memory]
        if bundle.exclusive:
            left[np.flatnonzero(fits)] = -1.0
    return Placement(request.pipeline, by, tuple(placed))


def _largest_first(request: PlacementRequest) -> Iterator[tuple[str, int, ThreadBundle]]:
    bundles = [(o.name, count, bundle) for o in request.operators for count, bundle in o.bundles if count]
    cpu = sum(count * bundle.cpu for _, count, bundle in bundles)
    memory = sum(count * bundle.memory for _, count, bundle in bundles)
    by_cpu = covers(cpu, memory)
    yield from (entry for entry in bundles if entry[2].exclusive)
    shared = [entry for entry in bundles if not entry[2].exclusive]
    yield from sorted(shared, key=lambda entry: -tie_key(entry[2].cpu if by_cpu else entry[2].memory, 1.0))


def _fitting(left: NDArray[np.float64], bundle: ThreadBundle, count: int) -> NDArray[np.int64]:
    """Return how many of `count` equal bundles each slot takes, first slots first."""
    if bundle.exclusive:
        fits = (left >= 1 - TOLERANCE).all(axis=1).astype(np.int64)
    else:
        demand = np.array([bundle.cpu, bundle.memory])
        fits = np.where((left >= -TOLERANCE).all(axis=1), count, 0)
        for axis in np.flatnonzero(demand > 0).tolist():
            with np.errstate(over="ignore"):
                room = np.floor(np.minimum((left[:, axis] + TOLERANCE) / demand[axis], count))
            fits = np.minimum(fits, np.maximum(room, 0).astype(np.int64))
    before = np.concatenate(([0], np.cumsum(fits)[:-1]))
    taken: NDArray[np.int64] = np.minimum(np.maximum(count - before, 0), fits)
    return taken
