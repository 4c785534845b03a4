"""SAM, slot-aware mapping (Shukla and Simmhan, Algorithm 6): full bundles get their own slots, the rest is packed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.errors import Refusal, Shortage
from penstock.base.tolerance import TOLERANCE, covers, exceeds, first_smallest
from penstock.planning.placement.contract import PlacedBundle, Placement, PlacementRequest, Room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cluster.topology import Slot
    from penstock.planning.allocation.contract import ThreadBundle
    from penstock.planning.placement.contract import OperatorRequest

MOST_COMPARISONS = 1_000_000_000
"""Max comparisons of a bundle with a slot; these take about ten seconds."""


@dataclass(frozen=True, slots=True)
class Sam:
    """Sweeps the operators, one bundle each, until all are placed.

    An exclusive bundle takes the next EMPTY slot: on the node placed on last, then on the following nodes, cyclic.
    Any other bundle takes the best-fitting slot: the one with the smallest cpu + memory left that covers both,
    the first of those that tie.
    O(bundles) for exclusive bundles, O(slots) for each of the others.
    """

    name: ClassVar[str] = "sam"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        sharing = sum(count for operator in request.operators for count, b in operator.bundles if not b.exclusive)
        if sharing * len(room.cluster.slots) > MOST_COMPARISONS:
            most, limit = (
                MOST_COMPARISONS // len(room.cluster.slots),
                f"the limit of placer {self.name} on so many slots",
            )
            shortage = Shortage(request.pipeline, "bundles that share slots", sharing, most, limit, "pipeline")
            return Refusal(self.name, (shortage,), more_slots_may_help=False)
        slots = _Slots(room)
        placed: list[PlacedBundle] = []
        for operator, bundle in _sweeps(request):
            position = slots.next_empty() if bundle.exclusive else slots.best_fit(bundle)
            if position is None:
                return slots.refusal(operator, bundle)
            reason = slots.reason(position, bundle) if request.explain else ""
            slots.take(position, bundle)
            placed.append(PlacedBundle(operator, bundle.threads, room.cluster.slots[position], reason))
        return Placement(request.pipeline, self.name, tuple(placed))


def _sweeps(request: PlacementRequest) -> Iterator[tuple[str, ThreadBundle]]:
    """One bundle of every operator in turn, until none is left."""
    queues = [(operator.name, _one_by_one(operator)) for operator in request.operators]
    while queues:
        waiting = []
        for name, bundles in queues:
            if (bundle := next(bundles, None)) is not None:
                yield name, bundle
                waiting.append((name, bundles))
        queues = waiting


def _one_by_one(operator: OperatorRequest) -> Iterator[ThreadBundle]:
    for count, bundle in operator.bundles:
        yield from repeat(bundle, count)


class _Slots:
    """Remaining room of every slot, and the position of the next empty one."""

    def __init__(self, room: Room) -> None:
        count = len(room.cluster.slots)
        self._room = room
        self._cpu = np.ones(count)
        self._memory = np.ones(count)
        self._left = np.full(count, 2.0)
        self._empty = np.ones(count, dtype=bool)
        self._node_of = np.repeat(np.arange(len(room.slots)), room.slots)
        self._first_slot = np.concatenate(([0], np.cumsum(room.slots)))
        self._last_node = 0

    def next_empty(self) -> int | None:
        """Return the first empty slot from those of the last node on, then from the beginning; None: all have some."""
        for start in (int(self._first_slot[self._last_node]), 0):
            empty = self._empty[start:]
            if empty.any():
                return start + int(empty.argmax())
        return None

    def best_fit(self, bundle: ThreadBundle) -> int | None:
        covers = (self._cpu >= bundle.cpu - TOLERANCE) & (self._memory >= bundle.memory - TOLERANCE)
        left = np.where(covers, self._left, np.inf)
        best = first_smallest(left, 1.0) if left.size else 0
        return best if left.size and covers[best] else None

    def take(self, slot: int, bundle: ThreadBundle) -> None:
        self._last_node = int(self._node_of[slot])
        if self._empty[slot]:
            self._empty[slot] = False
        if bundle.exclusive:
            self._cpu[slot] = self._memory[slot] = -1.0
        else:
            self._cpu[slot] -= bundle.cpu
            self._memory[slot] -= bundle.memory
        self._left[slot] = self._cpu[slot] + self._memory[slot]

    def reason(self, slot: int, bundle: ThreadBundle) -> str:
        if bundle.exclusive:
            return "a full bundle: the next empty slot, for itself"
        return (
            f"best fit for cpu {bundle.cpu:.3g}, memory {bundle.memory:.3g}: "
            f"the slot had cpu {self._cpu[slot]:.3g}, memory {self._memory[slot]:.3g} left"
        )

    def refusal(self, operator: str, bundle: ThreadBundle) -> Refusal:
        if bundle.exclusive:
            shortage = Shortage(operator, "empty slot", 1, 0, f"the cluster of {len(self._empty)} slots")
            return Refusal(Sam.name, (shortage,))
        if (self._cpu < -TOLERANCE).all():
            shortage = Shortage(operator, "slot that no full bundle has for itself", 1, 0, "the cluster")
            return Refusal(Sam.name, (shortage,))
        missing = np.maximum(bundle.cpu - self._cpu, bundle.memory - self._memory)
        closest = first_smallest(missing, 1.0)
        slot: Slot = self._room.cluster.slots[closest]
        of_cpu = covers(bundle.cpu - self._cpu[closest], bundle.memory - self._memory[closest], 1.0)
        needed, offered = (bundle.cpu, self._cpu) if of_cpu else (bundle.memory, self._memory)
        shortage = Shortage(
            operator,
            f"{'cpu' if of_cpu else 'memory'} of one slot",
            needed,
            max(0.0, float(offered[closest])),
            f"slot {slot}",
        )
        return Refusal(Sam.name, (shortage,), more_slots_may_help=not exceeds(max(bundle.cpu, bundle.memory), 1))
