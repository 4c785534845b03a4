"""The peer of `production_like`: Storm's resource-aware scheduler with its default strategy, as far as it decides what
is placed.

One thread at a time, pipelines in the order of their priority, each all or nothing:

- threads: breadth first from the sources, one of every operator in turn;
- racks, then nodes of a rack: those that have most threads of the pipeline first, then by effective resources, which is
  the least share, over the resources, of all that is free (in the cluster, in the rack); then by the mean share;
- the first node that has the CPU and the memory, and a slot whose heap takes the thread, gets it.

Nothing is moved and nothing is tried twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.planning.placement.contract import Room
from penstock.planning.placement.placers.r_storm import breadth_first, thread_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster
    from penstock.planning.placement.contract import PlacementRequest

SLACK = 1e-6


class Peer:
    """What is left of the cluster, and the threads of the pipeline that is being placed."""

    def __init__(self, cluster: Cluster) -> None:
        self._room = Room(cluster, slot_memory_shared=False)
        self._free = self._room.free.copy()
        self._free_slots = self._room.slots.copy()
        self._rack = self._room.rack
        self._racks = [np.flatnonzero(self._rack == rack) for rack in range(int(self._rack.max()) + 1)]
        self._rack_free = np.array([self._free[nodes].sum(axis=0) for nodes in self._racks])

    def place(self, request: PlacementRequest) -> bool:
        before = self._free.copy(), self._free_slots.copy(), self._rack_free.copy()
        self._on_node = np.zeros(len(self._free))
        self._on_rack = np.zeros(len(self._racks))
        self._heaps: dict[int, list[float]] = {}
        self._heap_limit = np.inf if request.slot_memory is None else request.slot_memory
        order = breadth_first(len(request.operators), request.streams, request.sources)
        for operator in thread_order(order, [each.threads for each in request.operators]):
            if not self._place_thread(np.array(request.operators[operator].demand)):
                self._free, self._free_slots, self._rack_free = before
                return False
        return True

    def _place_thread(self, demand: NDArray[np.float64]) -> bool:
        for rack in _best_first(self._rack_free, self._on_rack):
            nodes = self._racks[rack]
            for position in _best_first(self._free[nodes], self._on_node[nodes]):
                if self._take(int(nodes[position]), demand):
                    return True
        return False

    def _take(self, node: int, demand: NDArray[np.float64]) -> bool:
        if (self._free[node] < demand - SLACK).any():
            return False
        memory = float(demand[self._room.memory_axis or 0])
        heaps = self._heaps.get(node, [])
        slot = next((k for k, left in enumerate(heaps) if left >= memory - SLACK), None)
        if slot is None:
            if not self._free_slots[node] or memory > self._heap_limit + SLACK:
                return False
            self._free_slots[node] -= 1
            heaps = self._heaps.setdefault(node, [])
            heaps.append(min(self._heap_limit, float(self._room.slot_memory[node])))
            slot = len(heaps) - 1
        heaps[slot] -= memory
        self._free[node] -= demand
        rack = int(self._rack[node])
        self._rack_free[rack] -= demand
        self._on_node[node] += 1
        self._on_rack[rack] += 1
        return True


def _best_first(free: NDArray[np.float64], threads: NDArray[np.float64]) -> list[int]:
    share = free / np.maximum(free.sum(axis=0), 1e-300)
    order: list[int] = np.lexsort((-share.mean(axis=1), -share.min(axis=1), -threads)).tolist()
    return order


def placed_by_peer(cluster: Cluster, requests: Sequence[tuple[PlacementRequest, int]]) -> list[str]:
    """The pipelines the peer places, the lowest number of priority first."""
    peer = Peer(cluster)
    return [request.pipeline for request, _ in sorted(requests, key=lambda entry: entry[1]) if peer.place(request)]
