"""RSM, resource-aware mapping (Shukla and Simmhan, Algorithm 5): R-Storm's rule in units of slots."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.errors import Refusal, Shortage
from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.base.tolerance import TOLERANCE, covers, first_smallest
from penstock.cluster.topology import Slot
from penstock.planning.placement.contract import OperatorRequest, PlacedBundle, Placement, PlacementRequest, Room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class ThreadDemand(StrEnum):
    AVERAGE = "average"
    """The allocation's cpu and memory divided by its threads."""
    SINGLE_THREAD = "single-thread"
    """C(1) and M(1), the document's literal text."""


@dataclass(frozen=True, slots=True)
class Rsm:
    """Sweeps the operators, one thread each, until all are placed; every thread to the nearest node that can take it,
    the first declared of those that tie.

    `d = memory_weight*(M_j - m)^2 + cpu_weight*(C_j - c)^2 + network_weight*net(ref, j)`: C_j, M_j is what node j has
    left (slots x 1.00), ref the node of the thread placed last, net 0 on it, 0.5 in its rack, 1 elsewhere. CPU is
    pooled over a node's slots, memory is not: the thread takes the lowest slot with enough memory.
    O(threads x (nodes + operators)): placing a thread changes the distances of one node only.
    """

    name: ClassVar[str] = "rsm"
    whole_cluster: ClassVar[bool] = False
    keeps_resources: ClassVar[bool] = False

    demand: ThreadDemand = ThreadDemand.AVERAGE
    cpu_weight: Weight = 1.0
    memory_weight: Weight = 1.0
    network_weight: Weight = 1.0

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        demands = np.array([self._demand_of_thread(operator) for operator in request.operators])
        nodes = _Nodes(room, demands[:, 0], demands[:, 1], self.cpu_weight, self.memory_weight)
        last = 0
        placed: list[PlacedBundle] = []
        for position in _sweeps(request):
            operator = request.operators[position]
            best, distance = nodes.nearest(position, last, self.network_weight)
            if not np.isfinite(distance):
                return nodes.refusal(operator.name, position)
            slot = nodes.take(position, best)
            last = best
            reason = ""
            if request.explain:
                reason = (
                    f"nearest node with room, at distance {distance:.3g}; "
                    f"its lowest slot with {demands[position, 1]:.3g} memory left"
                )
            placed.append(PlacedBundle(operator.name, 1, slot, reason))
        return Placement(request.pipeline, self.name, tuple(placed))

    def _demand_of_thread(self, operator: OperatorRequest) -> tuple[float, float]:
        if self.demand is ThreadDemand.SINGLE_THREAD and operator.single_thread is not None:
            return operator.single_thread
        cpu = sum(count * bundle.cpu for count, bundle in operator.bundles)
        memory = sum(count * bundle.memory for count, bundle in operator.bundles)
        return cpu / operator.threads, memory / operator.threads


def _sweeps(request: PlacementRequest) -> Iterator[int]:
    left = [operator.threads for operator in request.operators]
    waiting = [position for position, threads in enumerate(left) if threads]
    while waiting:
        for position in waiting:
            left[position] -= 1
            yield position
        waiting = [position for position in waiting if left[position]]


class _Nodes:
    """Free resources of every node, and their distance from the demand of a thread of every operator."""

    def __init__(
        self,
        room: Room,
        cpu: NDArray[np.float64],
        memory: NDArray[np.float64],
        cpu_weight: float,
        memory_weight: float,
    ) -> None:
        self._room = room
        self._cpu, self._memory = cpu, memory
        self._cpu_weight, self._memory_weight = cpu_weight, memory_weight
        self._scale = (cpu_weight + memory_weight) * float(room.slots.max(initial=0)) ** 2
        """The distance of an empty node to a thread that needs nothing: squares of this size are subtracted."""
        self._cpu_left = room.slots.astype(float)
        self._memory_left = room.slots.astype(float)
        self._slot_memory = [[1.0] * slots for slots in room.slots.tolist()]
        self._roomiest = np.where(room.slots > 0, 1.0, 0.0)
        self._distance = np.stack([self._from_operator(position) for position in range(len(cpu))])
        self._network = {int(rack): np.where(room.rack == rack, 0.5, 1.0) for rack in np.unique(room.rack)}

    def _from_operator(self, position: int) -> NDArray[np.float64]:
        cpu, memory = self._cpu[position], self._memory[position]
        distance = self._memory_weight * (self._memory_left - memory) ** 2
        distance += self._cpu_weight * (self._cpu_left - cpu) ** 2
        fits = (self._cpu_left >= cpu - TOLERANCE) & (self._roomiest >= memory - TOLERANCE)
        return np.where(fits, distance, np.inf)

    def nearest(self, position: int, reference: int, network_weight: float) -> tuple[int, float]:
        own = self._distance[position]
        distance = own + network_weight * self._network[int(self._room.rack[reference])]
        distance[reference] = own[reference]
        best = first_smallest(distance, self._scale + network_weight)
        return best, float(distance[best])

    def take(self, position: int, node: int) -> Slot:
        memory = float(self._memory[position])
        slots = self._slot_memory[node]
        index = next(number for number, left in enumerate(slots) if left >= memory - TOLERANCE)
        slots[index] -= memory
        self._roomiest[node] = roomiest = max(slots)
        self._cpu_left[node] = cpu_left = self._cpu_left[node] - self._cpu[position]
        self._memory_left[node] = memory_left = self._memory_left[node] - memory
        distance = self._memory_weight * (memory_left - self._memory) ** 2
        distance += self._cpu_weight * (cpu_left - self._cpu) ** 2
        distance[(self._cpu > cpu_left + TOLERANCE) | (self._memory > roomiest + TOLERANCE)] = np.inf
        self._distance[:, node] = distance
        return Slot(self._room.cluster.nodes[node].name, index)

    def refusal(self, operator: str, position: int) -> Refusal:
        """Whichever of cpu and memory is missing at the node that comes closest to having both."""
        cpu, memory = float(self._cpu[position]), float(self._memory[position])
        closest = first_smallest(np.maximum(cpu - self._cpu_left, memory - self._roomiest), 1.0)
        at = f"node {self._room.cluster.nodes[closest].name}"
        roomiest, cpu_left = float(self._roomiest[closest]), float(self._cpu_left[closest])
        if covers(memory - roomiest, cpu - cpu_left, scale=1.0):
            shortage = Shortage(operator, "memory of one slot", memory, roomiest, at)
        else:
            shortage = Shortage(operator, "cpu in slots", cpu, cpu_left, at)
        hopeless = memory > 1 + TOLERANCE or cpu > float(self._room.slots.max()) + TOLERANCE
        return Refusal(Rsm.name, (shortage,), more_slots_may_help=not hopeless)
