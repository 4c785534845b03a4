"""Which slot of a node each thread of a packing gets."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Protocol

from penstock.dataflow.tolerance import tie_key
from penstock.placement.slots import Fill, NodeSlots, fill_of

if TYPE_CHECKING:
    from penstock.placement.contract import Room


class Slots(Protocol):
    """The slots of one node."""

    @property
    def largest(self) -> float:
        """The most memory (MB) one of them still takes; -inf where there is none."""
        ...

    def put(self, cpu: float, memory: float) -> int:
        """Give a thread that fits a slot, and return the slot's index."""
        ...


def slots_of(room: Room, node: int, limit: float, slack: float, smallest: float) -> Slots:
    """In a plan a slot is a core, and threads spread over cores; on a whole cluster it is a process, and the fewer the
    better. `smallest` is the least memory of any thread to come."""
    taken, total = int(room.slots_taken[node]), int(room.slots[node])
    if fill_of(room) is Fill.SPREAD:
        return _Cores(taken, total, limit, slack)
    return _Processes(NodeSlots(taken, total, limit, Fill.PACK, smallest), slack)


class _Cores:
    """The least loaded slot with room for the thread: its load is the larger of CPU (cores) and memory (shares)."""

    def __init__(self, taken: int, total: int, limit: float, slack: float) -> None:
        self._limit = limit
        self._slack = slack
        self._first = taken
        self._rooms = [limit] * (total - taken)
        self._cpu = [0.0] * (total - taken)
        self._heap = [(0.0, slot) for slot in range(total - taken)]
        heapify(self._heap)
        self.largest = limit if self._rooms else -inf

    def put(self, cpu: float, memory: float) -> int:
        passed = []
        while True:
            entry = heappop(self._heap)
            slot = entry[1]
            if self._rooms[slot] >= memory - self._slack:
                break
            passed.append(entry)
        for entry in passed:
            heappush(self._heap, entry)
        self._rooms[slot] -= memory
        self._cpu[slot] += cpu
        full = 1 - self._rooms[slot] / self._limit if self._limit > 0 else 0.0
        heappush(self._heap, (tie_key(max(self._cpu[slot], full), 1.0), slot))
        if memory:
            self.largest = max(self._rooms)
        return self._first + slot


class _Processes:
    """The first open slot with room, else the next one, whatever CPU it takes: a process has no core of its own."""

    def __init__(self, slots: NodeSlots, slack: float) -> None:
        self._slots = slots
        self._slack = slack

    @property
    def largest(self) -> float:
        return self._slots.largest

    def put(self, cpu: float, memory: float) -> int:
        return self._slots.put(memory, self._slack)
