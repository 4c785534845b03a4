"""What P-Deployer's packing knows of the threads to place: what each needs, and what it saves beside others.

The threads of one operator are alike, so everything is kept per operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from penstock.cluster.resources import CPU

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.contract import PlacementRequest, Room


Neighbours: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]"


class PackingTasks:
    """Demands of one thread of every operator, in units of the resource, and how many threads are left to place.

    A thread's CPU is that of Eq. 3: `local + c_t * moved`, where moved is what it exchanges with threads on other
    nodes. `demand` holds it with nothing co-located. Every thread of operator j on a node saves a thread of operator k
    there `S / (P_j P_k) * c_t,k` points, and both together `S / (P_j P_k) * (c_t,j + c_t,k)`, S being the tuples/s
    between j and k in both directions.
    """

    def __init__(self, request: PlacementRequest, room: Room) -> None:
        operators = request.operators
        names = [dimension.name for dimension in room.dimensions]
        self.cpu_axis = names.index(CPU) if CPU in names else None
        self.memory_axis = room.memory_axis
        self.threads = np.array([operator.threads for operator in operators], dtype=np.int64)
        self.left = self.threads.copy()
        self.demand = np.array([operator.demand for operator in operators], dtype=float)
        self.demand = self.demand.reshape(len(operators), len(names))
        self.moving_cpu = np.array([operator.moving_cpu for operator in operators], dtype=float)
        self._talking = self._exchanged(request)
        self._neighbours: dict[float, list[Neighbours | None]] = {}
        if self.cpu_axis is not None:
            local = [
                operator.demand[self.cpu_axis] if operator.local_cpu is None else operator.local_cpu
                for operator in operators
            ]
            self.demand[:, self.cpu_axis] = np.array(local, dtype=float) + self.moving_cpu * self._moved(request)

    @property
    def memory(self) -> NDArray[np.float64]:
        return self.demand[:, self.memory_axis] if self.memory_axis is not None else np.zeros(len(self.demand))

    @property
    def cpu(self) -> NDArray[np.float64]:
        return self.demand[:, self.cpu_axis] if self.cpu_axis is not None else np.zeros(len(self.demand))

    def _moved(self, request: PlacementRequest) -> NDArray[np.float64]:
        """Tuples/s one thread exchanges with other operators."""
        moved = np.zeros(len(self.threads))
        for (sender, receiver), rate in zip(request.streams, request.rates, strict=False):
            if sender != receiver:
                moved[sender] += rate / self.threads[sender]
                moved[receiver] += rate / self.threads[receiver]
        return moved

    def _exchanged(self, request: PlacementRequest) -> list[dict[int, float]]:
        """Of every operator, those it talks to and the tuples/s between one thread of each.

        A stream from an operator to itself, or without a rate, or that costs nothing to move, saves nothing.
        """
        table: list[dict[int, float]] = [{} for _ in self.threads]
        for (sender, receiver), rate in zip(request.streams, request.rates, strict=False):
            if sender != receiver and self.moving_cpu[sender] + self.moving_cpu[receiver] > 0:
                pairs = float(self.threads[sender] * self.threads[receiver])
                table[sender][receiver] = table[sender].get(receiver, 0.0) + rate / pairs
                table[receiver][sender] = table[receiver].get(sender, 0.0) + rate / pairs
        return table

    def neighbours_on(self, cpu_capacity: float) -> list[Neighbours | None]:
        """Of every operator: those it talks to, what a thread of it saves one of theirs, and what the two save in all,
        as shares of a node's CPU; None where it saves nobody anything."""
        rows = self._neighbours.get(cpu_capacity)
        if rows is None:
            rows = self._neighbours[cpu_capacity] = []
            for operator, row in enumerate(self._talking):
                others = np.array(list(row), dtype=np.int64)
                exchanged = np.array(list(row.values()), dtype=float) / cpu_capacity
                own = exchanged * self.moving_cpu[others]
                both = own + exchanged * self.moving_cpu[operator]
                rows.append((others, own, both) if row else None)
        return rows
