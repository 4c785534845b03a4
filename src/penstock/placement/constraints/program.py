"""An integer program that rules placements out: threads per node within all limits and constraints but those of slots.

Variables are x(n, o), the threads of operator o on node n, and y(n, o), whether there are any. A slot's own limits are
left out but for the heap of all slots of a node together, so a program without a solution proves that there is no
placement, and one with a solution proves nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.dataflow.constraints import SharedPer
from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.constraints.where import allowed
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from penstock.placement.contract import PlacementRequest, Room

MOST_VARIABLES = 4000
MOST_SECONDS = 5.0


def impossible(request: PlacementRequest, room: Room) -> bool:
    """Whether the program has no solution; False also where it is too large, or cannot be solved here."""
    nodes, operators = len(room.slots), len(request.operators)
    if find_spec("scipy") is None or 2 * nodes * operators > MOST_VARIABLES or not nodes:
        return False
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - heavy, and optional
    from scipy.sparse import csr_array  # noqa: PLC0415

    rows = _Rows(request, room)
    row, column, value = zip(*rows.at, strict=True)
    matrix = csr_array((value, (row, column)), shape=(len(rows.low), 2 * nodes * operators))
    x_most = np.where(np.array(allowed(request, room)).T, [o.threads for o in request.operators], 0.0)
    result: Any = milp(
        np.zeros(2 * nodes * operators),
        constraints=LinearConstraint(matrix, rows.low, rows.high),
        integrality=np.ones(2 * nodes * operators),
        bounds=Bounds(0.0, np.concatenate([x_most.ravel(), np.ones(nodes * operators)])),
        options={"time_limit": MOST_SECONDS},
    )
    return bool(result.status == 2)


class _Rows:
    def __init__(self, request: PlacementRequest, room: Room) -> None:
        self._nodes, self._operators = len(room.slots), len(request.operators)
        self.at: list[tuple[int, int, float]] = []
        """Row, column and value of what is not 0."""
        self.low: list[float] = []
        self.high: list[float] = []
        position = {operator.name: k for k, operator in enumerate(request.operators)}
        for k, operator in enumerate(request.operators):
            everywhere = {(n, k): 1.0 for n in range(self._nodes)}
            self._add(everywhere, operator.threads, operator.threads)
            own = operator.constraints
            for n in range(self._nodes):
                most = min(operator.threads, own.most_per_node or operator.threads)
                self._add({(n, k): 1.0}, -np.inf, 0.0, {(n, k): -float(most)})
            if own.most_per_rack is not None:
                for rack in np.unique(room.rack).tolist():
                    there = np.flatnonzero(room.rack == rack).tolist()
                    self._add({(n, k): 1.0 for n in there}, 0.0, own.most_per_rack)
        for n in range(self._nodes):
            for a, b in request.constraints.apart_on_nodes:
                self._add({}, 0.0, 1.0, {(n, position[a]): 1.0, (n, position[b]): 1.0})
            self._resources(request, room, n, position)

    def _resources(self, request: PlacementRequest, room: Room, n: int, position: dict[str, int]) -> None:
        for axis in range(len(room.dimensions)):
            taken = {(n, k): operator.demand[axis] for k, operator in enumerate(request.operators)}
            limit = room.capacity[n, axis] * (1 + TOLERANCE)
            self._add(taken, -np.inf, limit)
            if axis == room.memory_axis:
                # What is shared is there wherever any one of the sharers is.
                for shared in request.constraints.shared_memory:
                    for name in shared.operators:
                        self._add(taken, -np.inf, limit, {(n, position[name]): shared.mb})
        if room.memory_axis is not None:
            axis = room.memory_axis
            own = [max(o.demand[axis] - o.constraints.off_heap_mb, 0.0) for o in request.operators]
            heap = {(n, k): amount for k, amount in enumerate(own)}
            most = float(slot_limit(request, room)[n] * room.slots[n]) * (1 + TOLERANCE)
            self._add(heap, -np.inf, most)
            for shared in request.constraints.shared_memory:
                if shared.per is SharedPer.SLOT and shared.heap:
                    for name in shared.operators:
                        self._add(heap, -np.inf, most, {(n, position[name]): shared.mb})

    def _add(
        self,
        x: dict[tuple[int, int], float],
        low: float,
        high: float,
        y: dict[tuple[int, int], float] | None = None,
    ) -> None:
        size = self._nodes * self._operators
        row = len(self.low)
        self.at += [(row, n * self._operators + k, weight) for (n, k), weight in x.items()]
        self.at += [(row, size + n * self._operators + k, weight) for (n, k), weight in (y or {}).items()]
        self.low.append(low)
        self.high.append(high)
