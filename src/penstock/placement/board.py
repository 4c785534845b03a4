"""What is left of the room while one pipeline is being placed, thread by thread."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.slots import Fill, NodeSlots, fill_of, slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstock.placement.contract import PlacementRequest, Room


class TouchedNode:
    """One node that has taken threads of the pipeline: what it has left."""

    __slots__ = ("free", "slots", "version")

    def __init__(self, free: list[float], slots: NodeSlots) -> None:
        self.free = free
        self.slots = slots
        self.version = 0


class Board:
    """What is left of the room while one pipeline is being placed. The room itself is not changed."""

    def __init__(self, request: PlacementRequest, room: Room) -> None:
        self.room = room
        self.free = np.array(room.free.T, order="C")
        self.limit = slot_limit(request, room)
        self.largest = np.where(room.slots > room.slots_taken, self.limit, -np.inf)
        self.slack = TOLERANCE * float(self.limit.max(initial=0.0)) if room.memory_axis is not None else 0.0
        self.log: list[int] = []
        """The node of every assignment, in order."""
        self.touched: dict[int, TouchedNode] = {}
        self._written = 0
        self._fill: Fill = fill_of(room)
        axis = room.memory_axis
        self._smallest = 0.0 if axis is None else min((o.demand[axis] for o in request.operators), default=0.0)

    def state(self, node: int) -> TouchedNode:
        """The state of a node that is about to take a thread."""
        state = self.touched.get(node)
        if state is None:
            room = self.room
            slots = NodeSlots(
                int(room.slots_taken[node]),
                int(room.slots[node]),
                float(self.limit[node]),
                self._fill,
                self._smallest,
            )
            state = self.touched[node] = TouchedNode(self.free[:, node].tolist(), slots)
        return state

    def assign(self, node: int, thread: Fits) -> int:
        """Put one thread on a node that can take it; returns its slot."""
        state = self.state(node)
        free = state.free
        for axis, amount in enumerate(thread.demand):
            free[axis] -= amount
        state.version += 1
        self.log.append(node)
        return state.slots.put(thread.memory, self.slack)

    def write(self) -> None:
        """Bring the arrays up to date with what the touched nodes have left."""
        for node in set(self.log[self._written :]):
            state = self.touched[node]
            self.free[:, node] = state.free
            self.largest[node] = state.slots.largest
        self._written = len(self.log)


class Fits:
    """Whether nodes can take one more thread of a demand, with room in `axes` and in a slot."""

    def __init__(self, board: Board, demand: tuple[float, ...], axes: Iterable[int], *, strict: bool = False) -> None:
        room = board.room
        self.demand = demand
        self.memory = 0.0 if room.memory_axis is None else demand[room.memory_axis]
        self.least = tuple(
            (axis, _least(demand[axis], float(room.capacity[:, axis].max(initial=0.0)), strict=strict)) for axis in axes
        )
        self.least_slot = self.memory - board.slack
        self._board = board

    def every(self) -> NDArray[np.bool_]:
        """For every node, as of the arrays of the board."""
        board = self._board
        fits: NDArray[np.bool_] = board.largest >= self.least_slot
        for axis, least in self.least:
            fits &= board.free[axis] >= least
        return fits

    def now(self, node: int) -> bool:
        """For one node, as of now."""
        board = self._board
        state = board.touched.get(node)
        if state is None:
            return bool(board.largest[node] >= self.least_slot) and all(
                board.free[axis, node] >= least for axis, least in self.least
            )
        if state.slots.largest < self.least_slot:
            return False
        free = state.free
        return all(free[axis] >= least for axis, least in self.least)


def _least(demand: float, capacity: float, *, strict: bool) -> float:
    """What a node must have left. R-Storm's printed rule (`strict`) asks for more than the demand."""
    return float(np.nextafter(demand, inf)) if strict else demand - TOLERANCE * capacity
