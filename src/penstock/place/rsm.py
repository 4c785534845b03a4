"""RSM, resource-aware mapping (Shukla and Simmhan, Algorithm 5): R-Storm's rule in units of slots."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.cluster.topology import Slot
from penstock.errors import Refusal, Shortage
from penstock.place.contract import OperatorRequest, PlacedBundle, Placement, Request, Room

if TYPE_CHECKING:
    from collections.abc import Iterator

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

_SLACK = 1e-9


class ThreadDemand(StrEnum):
    AVERAGE = "average"
    """The allocation's cpu and memory divided by its threads."""
    SINGLE_THREAD = "single-thread"
    """C(1) and M(1), the document's literal text."""


@dataclass(frozen=True, slots=True)
class Rsm:
    """Sweeps the operators, one thread each, until all are placed; every thread to the nearest node that can take it.

    `d = memory_weight*(M_j - m)^2 + cpu_weight*(C_j - c)^2 + network_weight*net(ref, j)`: C_j, M_j is what node j has
    left (slots x 1.00), ref the node of the thread placed last, net 0 on it, 0.5 in its rack, 1 elsewhere. CPU is
    pooled over a node's slots, memory is not: the thread takes the lowest slot with enough memory.
    O(threads x nodes), vectorised over the nodes.
    """

    name: ClassVar[str] = "rsm"
    whole_cluster: ClassVar[bool] = False

    demand: ThreadDemand = ThreadDemand.AVERAGE
    cpu_weight: float = 1.0
    memory_weight: float = 1.0
    network_weight: float = 1.0

    def place(self, request: Request, room: Room) -> Placement | Refusal:
        cpu_left = room.slots.astype(float)
        memory_left = room.slots.astype(float)
        slot_memory = [np.ones(slots) for slots in room.slots.tolist()]
        roomiest_slot = np.where(room.slots > 0, 1.0, 0.0)
        nodes = room.cluster.nodes
        network = _Network(room)
        last = 0
        placed: list[PlacedBundle] = []
        for operator, cpu, memory in self._sweeps(request):
            distance = (
                self.memory_weight * (memory_left - memory) ** 2
                + self.cpu_weight * (cpu_left - cpu) ** 2
                + self.network_weight * network.terms(last)
            )
            fits = (cpu_left >= cpu - _SLACK) & (roomiest_slot >= memory - _SLACK)
            distance[~fits] = np.inf
            best = int(np.argmin(distance))
            if not fits[best]:
                return _refusal(operator.name, cpu, memory, cpu_left, roomiest_slot, room)
            slot = int(np.argmax(slot_memory[best] >= memory - _SLACK))
            slot_memory[best][slot] -= memory
            roomiest_slot[best] = slot_memory[best].max()
            cpu_left[best] -= cpu
            memory_left[best] -= memory
            last = best
            reason = ""
            if request.explain:
                reason = f"nearest node with room: distance {distance[best]:.3g}; lowest slot with {memory:.3g} memory"
            placed.append(PlacedBundle(operator.name, 1, Slot(nodes[best].name, slot), reason))
        return Placement(request.pipeline, self.name, tuple(placed))

    def _sweeps(self, request: Request) -> Iterator[tuple[OperatorRequest, float, float]]:
        demands = [self._demand_of_thread(operator) for operator in request.operators]
        left = [operator.threads for operator in request.operators]
        while any(left):
            for position, operator in enumerate(request.operators):
                if left[position]:
                    left[position] -= 1
                    yield operator, *demands[position]

    def _demand_of_thread(self, operator: OperatorRequest) -> tuple[float, float]:
        if self.demand is ThreadDemand.SINGLE_THREAD and operator.single_thread is not None:
            return operator.single_thread
        cpu = sum(count * bundle.cpu for count, bundle in operator.bundles)
        memory = sum(count * bundle.memory for count, bundle in operator.bundles)
        return cpu / operator.threads, memory / operator.threads


class _Network:
    """net(ref, j) for all nodes j at once."""

    def __init__(self, room: Room) -> None:
        self._rack = room.rack
        self._by_rack: dict[int, FloatArray] = {}

    def terms(self, reference: int) -> FloatArray:
        rack = int(self._rack[reference])
        if rack not in self._by_rack:
            self._by_rack[rack] = np.where(self._rack == rack, 0.5, 1.0)
        terms = self._by_rack[rack].copy()
        terms[reference] = 0.0
        return terms


def _refusal(
    operator: str, cpu: float, memory: float, cpu_left: FloatArray, roomiest_slot: FloatArray, room: Room
) -> Refusal:
    """Whichever of cpu and memory is missing at the node that comes closest to having both."""
    missing = np.maximum(cpu - cpu_left, memory - roomiest_slot)
    closest = int(np.argmin(missing))
    name = room.cluster.nodes[closest].name
    if memory - roomiest_slot[closest] >= cpu - cpu_left[closest]:
        shortage = Shortage(operator, "memory of one slot", memory, float(roomiest_slot[closest]), f"node {name}")
    else:
        shortage = Shortage(operator, "cpu in slots", cpu, float(cpu_left[closest]), f"node {name}")
    hopeless = memory > 1 + _SLACK or cpu > float(room.slots.max()) + _SLACK
    return Refusal("rsm", (shortage,), more_slots_may_help=not hopeless)
