"""Exact: the min number of slots of any placement of these bundles, for small cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from pydantic import Field

from penstock.base.errors import Refusal, Shortage
from penstock.base.tolerance import TOLERANCE, tie_key, whole_up
from penstock.planning.placement.contract import PlacedBundle, Placement
from penstock.planning.placement.slots import free_slots, too_few, too_large

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planning.placement.contract import PlacementRequest, Room


class Item(NamedTuple):
    """A bundle that may share its slot."""

    operator: str
    threads: int
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Exact:
    """Branch and bound over the bundles that may share slots; exclusive bundles get one each.

    Bundles are taken largest first; of slots with the same room left only the first is tried, equal bundles keep their
    order, and a branch ends when the remaining bundles cannot fit into the remaining room. Exponential in the number of
    bundles that share, so it refuses beyond `bundles` of them, or after `steps` branches.
    """

    bundles: Annotated[int, Field(ge=1)] = 60
    steps: Annotated[int, Field(ge=1)] = 50_000

    name: ClassVar[str] = "exact"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        slots = free_slots(room)
        if (refused := too_large(self.name, request, slots)) is not None:
            return refused
        shared = sum(n for o in request.operators for n, b in o.bundles if not b.exclusive)
        if shared > self.bundles:
            return self._beyond(request, "bundles to share slots", shared, self.bundles)
        items = _items(request)
        alone = [(o.name, b.threads) for o in request.operators for n, b in o.bundles if b.exclusive for _ in range(n)]
        if (least := len(alone) + at_least(items)) > len(slots):
            return too_few(self.name, request, least, len(slots))
        packed = fewest_bins(items, self.steps)
        if packed is None:
            return self._beyond(request, "branches to look at", self.steps + 1, self.steps)
        if len(alone) + len(packed) > len(slots):
            return too_few(self.name, request, len(alone) + len(packed), len(slots))
        reason = f"one of the fewest slots possible: {len(packed)} for {shared} bundles that share" * request.explain
        bins = [[(name, threads)] for name, threads in alone] + [
            [(i.operator, i.threads) for i in row] for row in packed
        ]
        placed = tuple(
            PlacedBundle(name, threads, slot, reason)
            for slot, row in zip(slots, bins, strict=False)
            for name, threads in row
        )
        return Placement(request.pipeline, self.name, placed)

    def _beyond(self, request: PlacementRequest, what: str, needed: int, most: int) -> Refusal:
        closest = f"the limit of placer '{self.name}' (take joint, sam or compact, or raise it)"
        return Refusal(
            self.name, (Shortage(request.pipeline, what, needed, most, closest, "pipeline"),), more_slots_may_help=False
        )


def _items(request: PlacementRequest) -> list[Item]:
    items = [
        Item(operator.name, bundle.threads, bundle.cpu, bundle.memory)
        for operator in request.operators
        for count, bundle in operator.bundles
        if not bundle.exclusive
        for _ in range(count)
    ]

    def size(item: Item) -> tuple[float, float]:
        return tie_key(max(item.cpu, item.memory), 1.0), tie_key(item.cpu + item.memory, 1.0)

    return sorted(items, key=size, reverse=True)


def fewest_bins(items: Sequence[Item], steps: int) -> list[list[Item]] | None:
    """Bins of 1.0 x 1.0 for items in order of falling size; None where `steps` branches did not decide it."""
    search = _Search(items, steps)
    for bins in range(max(at_least(items), 1 if items else 0), len(items) + 1):
        packed = search.within(bins)
        if packed is not None:
            return packed
        if search.left <= 0:
            return None
    return []


def at_least(items: Sequence[Item]) -> int:
    """Bins that the sums of cpu and memory alone ask for."""
    return max(whole_up(sum(item.cpu for item in items)), whole_up(sum(item.memory for item in items)))


class _Search:
    """Depth first; `left` branches may still be looked at."""

    def __init__(self, items: Sequence[Item], steps: int) -> None:
        self._items = items
        self.left = steps
        self._rest = [
            (sum(item.cpu for item in items[n:]), sum(item.memory for item in items[n:])) for n in range(len(items) + 1)
        ]

    def within(self, bins: int) -> list[list[Item]] | None:
        room = [[1.0, 1.0] for _ in range(bins)]
        chosen: list[int] = []
        return self._packed(chosen, bins) if self._place(0, room, chosen) else None

    def _packed(self, chosen: list[int], bins: int) -> list[list[Item]]:
        rows: list[list[Item]] = [[] for _ in range(bins)]
        for item, bin_ in zip(self._items, chosen, strict=True):
            rows[bin_].append(item)
        return [row for row in rows if row]

    def _size(self, n: int) -> tuple[float, float]:
        return tie_key(self._items[n].cpu, 1.0), tie_key(self._items[n].memory, 1.0)

    def _place(self, n: int, room: list[list[float]], chosen: list[int]) -> bool:
        if n == len(self._items):
            return True
        if any(sum(left[axis] for left in room) < self._rest[n][axis] - TOLERANCE * len(room) for axis in (0, 1)):
            return False
        _, _, cpu, memory = self._items[n]
        equal = n > 0 and self._size(n) == self._size(n - 1)
        seen: set[tuple[float, float]] = set()
        for bin_ in range(chosen[-1] if equal else 0, len(room)):
            left = room[bin_]
            kind = tie_key(left[0], 1.0), tie_key(left[1], 1.0)
            if left[0] < cpu - TOLERANCE or left[1] < memory - TOLERANCE or kind in seen:
                continue
            seen.add(kind)
            self.left -= 1
            if self.left <= 0:
                return False
            before = left[0], left[1]
            left[0] -= cpu
            left[1] -= memory
            chosen.append(bin_)
            if self._place(n + 1, room, chosen):
                return True
            chosen.pop()
            left[0], left[1] = before
        return False
