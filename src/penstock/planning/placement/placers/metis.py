"""The Metis scheduler, P-Deployer's baseline: the graph of communicating threads is cut into one part for each node.

A thread weighs its share of the pipeline's CPU plus its share of the traffic, an edge what two threads exchange; METIS
balances the parts (by the CPU of the nodes) and keeps the cut small. It knows no limits: CPU may exceed that of a node.
Memory is checked here: if a part does not fit into its node's slots, the answer is a refusal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from penstock.base.errors import Refusal, Shortage
from penstock.base.tolerance import TOLERANCE, settled
from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.planning.placement.board import SLOTS, one_slot
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.slots import bundled, cpu_axis, slot_limit, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacementRequest, Room

GROUPS_PER_NODE = 4
"""An operator with more threads than this per node is cut in groups of threads, which are alike anyway."""

MOST_EDGES = 2_000_000

_PARTS = 1_000_000
"""METIS counts in whole numbers: weights are millionths of their sum."""


@dataclass(frozen=True, slots=True)
class Metis:
    """`seed` is METIS' own: the same seed, the same parts."""

    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0

    name: ClassVar[str] = "metis"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        nodes = np.flatnonzero(room.slots > room.slots_taken)
        if not len(nodes):
            return Refusal(self.name, (Shortage(request.pipeline, SLOTS, 1, 0, "the cluster", "pipeline"),))
        graph = ThreadGraph(request, room, GROUPS_PER_NODE * len(nodes))
        if graph.edges > MOST_EDGES:
            shortage = Shortage(
                request.pipeline,
                "edges between threads",
                graph.edges,
                MOST_EDGES,
                "the limit of this placer",
                "pipeline",
            )
            return Refusal(self.name, (shortage,), more_slots_may_help=False)
        parts = graph.cut(room.capacity[nodes, cpu_axis(room)], self.seed)
        return self._deal(request, room, graph, nodes[parts])

    def _deal(
        self, request: PlacementRequest, room: Room, graph: ThreadGraph, nodes: NDArray[np.int64]
    ) -> Placement | Refusal:
        """A slot for every thread of every part, the largest first."""
        limit = slot_limit(request, room)
        slack = TOLERANCE * float(limit.max(initial=0.0))
        memory = settled(np.array([_memory(operator.demand, room) for operator in request.operators], dtype=float))
        cpu = [operator.demand[cpu_axis(room)] / CPU_POINTS_PER_SLOT for operator in request.operators]
        of_thread = np.repeat(graph.operator, graph.size)
        on_node = np.repeat(nodes, graph.size)
        slots: list[int] = [0] * len(of_thread)
        order = np.lexsort((np.arange(len(of_thread)), -memory[of_thread], on_node))
        current, offer = -1, slots_of(room, 0, 0.0, slack, 0.0)
        for thread in order.tolist():
            node, operator = int(on_node[thread]), int(of_thread[thread])
            if node != current:
                current, offer = node, slots_of(room, node, float(limit[node]), slack, 0.0)
            needed = float(memory[operator])
            if needed > offer.largest + slack:
                resource = one_slot(room.dimensions[room.memory_axis or 0].name)
                closest = room.cluster.nodes[node].name
                shortage = Shortage(request.operators[operator].name, resource, needed, offer.largest, closest)
                return Refusal(self.name, (shortage,), more_slots_may_help=bool(needed <= limit.max() + slack))
            slots[thread] = offer.put(cpu[operator], needed)
        reasons: list[str] = []
        if request.explain:
            reasons = [
                f"its part of the graph of threads is node {room.cluster.nodes[n].name}'s" for n in on_node.tolist()
            ]
        return Placement(request.pipeline, self.name, bundled(request, room, of_thread, on_node, slots, reasons))


def _memory(demand: tuple[float, ...], room: Room) -> float:
    return demand[room.memory_axis] if room.memory_axis is not None else 0.0


class ThreadGraph:
    """Groups of threads, and their exchange. `most_groups` limits the groups of one operator."""

    def __init__(self, request: PlacementRequest, room: Room, most_groups: int) -> None:
        threads = np.array([operator.threads for operator in request.operators], dtype=np.int64)
        self._groups = np.minimum(threads, most_groups)
        self._first = np.concatenate(([0], np.cumsum(self._groups)))
        self._threads = threads
        self.operator = np.repeat(np.arange(len(threads)), self._groups)
        """The operator of every group."""
        within = np.arange(len(self.operator)) - self._first[self.operator]
        self.size = threads[self.operator] // self._groups[self.operator]
        self.size += within < threads[self.operator] % self._groups[self.operator]
        """Number of threads in each group."""
        # If there are no rates, or all are 0, every stream counts the same.
        rates = request.rates if any(request.rates) else (1.0,) * len(request.streams)
        self._streams = [(*ends, rate) for ends, rate in zip(request.streams, rates, strict=True) if ends[0] != ends[1]]
        self.edges = int(sum(int(self._groups[a]) * int(self._groups[b]) for a, b, _ in self._streams))
        points = [operator.threads * operator.demand[cpu_axis(room)] for operator in request.operators]
        traffic = np.zeros(len(threads))
        for sender, receiver, rate in self._streams:
            traffic[sender] += rate
            traffic[receiver] += rate
        weight = _shares(settled(np.array(points, dtype=float))) + _shares(settled(traffic))
        self._weight = weight[self.operator] * self.size / threads[self.operator]

    def cut(self, capacity: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
        """The part of every group, one part for each capacity."""
        import pymetis  # noqa: PLC0415 - an extra, and only this placer needs it

        if len(capacity) == 1 or len(self.operator) <= 1:
            return np.zeros(len(self.operator), dtype=np.int64)
        starts, adjacent, exchanged = self._adjacency()
        wanted = capacity / capacity.sum() if capacity.sum() > 0 else np.full(len(capacity), 1 / len(capacity))
        with _silent_library():
            partition = pymetis.part_graph(
                len(capacity),
                pymetis.CSRAdjacency(starts, adjacent),
                vweights=_whole(self._weight).tolist(),
                eweights=_whole(exchanged).tolist(),
                tpwgts=wanted.tolist(),
                options=pymetis.Options(seed=seed),
            )
        return np.array(partition.vertex_part, dtype=np.int64)

    def _adjacency(self) -> tuple[list[int], list[int], NDArray[np.float64]]:
        """Return the index at which the neighbours of every group start, the neighbours, and the volume exchanged with
        each; parallel streams add up."""
        senders: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
        receivers: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
        amounts: list[NDArray[np.float64]] = [np.zeros(0)]
        for sender, receiver, rate in self._streams:
            ours = np.arange(self._first[sender], self._first[sender + 1])
            theirs = np.arange(self._first[receiver], self._first[receiver + 1])
            pairs = np.repeat(ours, len(theirs)), np.tile(theirs, len(ours))
            share = self.size[pairs[0]] / self._threads[sender] * self.size[pairs[1]] / self._threads[receiver]
            senders += [pairs[0], pairs[1]]
            receivers += [pairs[1], pairs[0]]
            amounts += [rate * share, rate * share]
        count = len(self.operator)
        keys, position = np.unique(np.concatenate(senders) * count + np.concatenate(receivers), return_inverse=True)
        exchanged = np.zeros(len(keys))
        np.add.at(exchanged, position, np.concatenate(amounts))
        starts = np.searchsorted(keys, np.arange(count + 1) * count)
        return starts.tolist(), (keys % count).tolist(), exchanged


@contextlib.contextmanager
def _silent_library() -> Iterator[None]:
    """METIS prints to standard output where parts stay empty, which is no fault, into the middle of what others read
    there. What C has buffered is flushed before standard output is put back."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
        ctypes.CDLL(None).fflush(None)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _shares(amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    total = amounts.sum()
    return amounts / total if total > 0 else np.zeros(len(amounts))


def _whole(amounts: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers of at least 1 in proportion."""
    return np.maximum(1, np.rint(_shares(amounts) * _PARTS)).astype(np.int64)
