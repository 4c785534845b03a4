"""One pipeline in a ledger: what a slot may take of it, what its threads share, and who talks to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.resources import CPU, MEMORY
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.contract import PlacementRequest, Room


class Row:
    """One slot of a pipeline: threads by operator, and what it can still take."""

    __slots__ = ("counts", "left")

    def __init__(self, left: list[float]) -> None:
        self.counts: dict[int, int] = {}
        self.left = left

    def copy(self) -> Row:
        twin = Row(self.left.copy())
        twin.counts = self.counts.copy()
        return twin


@dataclass(frozen=True)
class LedgerPipeline:
    """A pipeline in the ledger. Operators are numbered through all pipelines; its own start at `first`."""

    request: PlacementRequest
    first: int
    offer: NDArray[np.float64]
    """What one slot of every node may take of it (nodes x what a slot limits)."""
    open: NDArray[np.bool_]
    """Nodes it may enter, for those outside the ledger."""
    shared: tuple[tuple[frozenset[int], float, bool, bool], ...]
    """Memory in common: operators, MB, whether per slot, and whether in the heap."""
    weights: NDArray[np.float64]
    """Q of the network cost (`penstock.placement.compact.graph`)."""

    @property
    def operators(self) -> range:
        return range(self.first, self.first + len(self.request.operators))


def slot_need(demand: tuple[float, ...], off_heap: float, room: Room) -> list[float]:
    """What a slot's limits count of one thread: its heap; in a plan, where a slot is a share of the node, all of it."""
    if room.slot_memory_shared:
        return list(demand)
    return [max(demand[room.memory_axis] - off_heap, 0.0)] if room.memory_axis is not None else [0.0]


def slot_offer(request: PlacementRequest, room: Room) -> NDArray[np.float64]:
    limit = np.minimum(slot_limit(request, room), 1e18)
    if not room.slot_memory_shared:
        alone: NDArray[np.float64] = limit[:, None]
        return alone
    free_slots = np.maximum(room.slots - room.slots_taken, 1)[:, None]
    share: NDArray[np.float64] = np.minimum(
        room.capacity / np.maximum(room.slots, 1)[:, None], room.free.clip(min=0.0) / free_slots
    )
    for axis, dimension in enumerate(room.dimensions):
        if dimension.name == MEMORY:
            share[:, axis] = np.minimum(share[:, axis], limit)
        elif dimension.name != CPU:
            share[:, axis] = 1e18
    return share


def talk(request: PlacementRequest) -> NDArray[np.float64]:
    threads = np.maximum(np.array([operator.threads for operator in request.operators], dtype=float), 1.0)
    table = np.zeros((len(threads), len(threads)))
    for sender, receiver in request.streams:
        table[sender, receiver] += 1
        table[receiver, sender] += 1
    pull: NDArray[np.float64] = table / np.outer(threads, threads)
    return pull
