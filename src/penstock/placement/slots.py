"""The slots one pipeline has on one node, and the order in which they fill up."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.resources import CPU
from penstock.cluster.topology import Slot
from penstock.dataflow.tolerance import covers, tie_key
from penstock.placement.contract import PlacedBundle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from penstock.placement.contract import PlacementRequest, Room


class Fill(Enum):
    """Which of a node's slots takes the next thread."""

    PACK = "pack"
    """The first open slot with room, else the next one is opened: a slot is a process, and the fewer the
    better."""
    SPREAD = "spread"
    """The roomiest slot, unopened ones included, ties to the lowest index: a slot is one core of the node."""


def fill_of(room: Room) -> Fill:
    return Fill.SPREAD if room.slot_memory_shared else Fill.PACK


def cpu_axis(room: Room) -> int:
    """Which of the room's dimensions is CPU; every cluster has it."""
    return next(axis for axis, dimension in enumerate(room.dimensions) if dimension.name == CPU)


def slot_limit(request: PlacementRequest, room: Room) -> NDArray[np.float64]:
    """The most memory one slot of each node may take of this pipeline."""
    if request.slot_memory is None:
        return room.slot_memory
    return np.minimum(room.slot_memory, request.slot_memory)


class NodeSlots:
    """What the open slots of one pipeline on one node can still take, and how many more it may open."""

    __slots__ = ("_first", "_fit", "_pack", "_smallest", "fresh", "largest", "limit", "open")

    def __init__(self, taken: int, total: int, limit: float, fill: Fill, smallest: float = 0.0) -> None:
        """`taken` of `total` slots belong to other pipelines; `smallest` is the least memory of any thread to
        come: a slot with less left is never looked at again."""
        self.limit = limit
        self.open: list[float] = []
        self.fresh = total - taken
        self.largest = limit if self.fresh > 0 else -inf
        self._first = taken
        self._fit = 0
        self._smallest = smallest
        self._pack = fill is Fill.PACK

    def put(self, memory: float, slack: float) -> int:
        """Give one thread that fits (`memory <= largest + slack`) a slot, and return the slot's index."""
        rooms = self.open
        if self._pack:
            position = self._fit
            while position < len(rooms) and rooms[position] < memory - slack:
                position += 1
        else:
            position = max(range(len(rooms)), key=lambda slot: tie_key(rooms[slot], self.limit), default=0)
            if self.fresh and (not rooms or not covers(rooms[position], self.limit)):
                position = len(rooms)
        if position == len(rooms):
            rooms.append(self.limit)
            self.fresh -= 1
        rooms[position] -= memory
        if self._pack:
            while self._fit < len(rooms) and rooms[self._fit] < self._smallest - slack:
                self._fit += 1
        if not self.fresh:
            self.largest = max(rooms)
        return self._first + position


def bundled(
    request: PlacementRequest,
    room: Room,
    operators: ArrayLike,
    nodes: ArrayLike,
    slots: ArrayLike,
    reasons: Sequence[str] = (),
) -> tuple[PlacedBundle, ...]:
    """Bundles from one decision per thread: runs of an operator's consecutive threads on one slot become one
    bundle.

    The bundles stand in the order of their first threads, so an operator's threads keep their order. A bundle's
    reason is that of its first thread, where reasons were asked for.
    """
    operator = np.array(operators, dtype=np.int64)
    if not len(operator):
        return ()
    width = int(room.slots.max()) + 1
    place = np.array(nodes, dtype=np.int64) * width + np.array(slots, dtype=np.int64)
    by_operator = np.argsort(operator, kind="stable")
    operator, place = operator[by_operator], place[by_operator]
    starts = np.flatnonzero(np.r_[True, (operator[1:] != operator[:-1]) | (place[1:] != place[:-1])])
    counts = np.diff(np.r_[starts, len(operator)])
    decided = np.argsort(by_operator[starts], kind="stable")
    starts, counts = starts[decided], counts[decided]
    first_threads = by_operator[starts].tolist()
    names = [wanted.name for wanted in request.operators]
    known: dict[int, Slot] = {}
    bundles = []
    rows = zip(operator[starts].tolist(), place[starts].tolist(), counts.tolist(), first_threads, strict=True)
    for who, where, threads, thread in rows:
        slot = known.get(where)
        if slot is None:
            slot = known[where] = Slot(room.cluster.nodes[where // width].name, where % width)
        bundles.append(PlacedBundle(names[who], threads, slot, reasons[thread] if reasons else ""))
    return tuple(bundles)
