"""The remaining room while one pipeline is being placed, thread by thread."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal, Shortage
from penstock.base.tolerance import TOLERANCE, first_largest, first_smallest
from penstock.planning.placement.slots import Fill, NodeSlots, fill_of, slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacementRequest, Room


class TouchedNode:
    """The remaining room of one node that has taken threads of the pipeline."""

    __slots__ = ("free", "slots", "version")

    def __init__(self, free: list[float], slots: NodeSlots) -> None:
        self.free = free
        self.slots = slots
        self.version = 0


class Board:
    """The remaining room while one pipeline is being placed. The room itself is not changed."""

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
        """Return the answer for every node, from the arrays of the board."""
        board = self._board
        fits: NDArray[np.bool_] = board.largest >= self.least_slot
        for axis, least in self.least:
            fits &= board.free[axis] >= least
        return fits

    def now(self, node: int) -> bool:
        """Return the answer for one node, as it is now."""
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
    """Return the min amount that a node must have left. R-Storm's printed rule (`strict`) asks for more than the
    demand."""
    return float(np.nextafter(demand, inf)) if strict else demand - TOLERANCE * capacity


# Shortages: the resource a thread lacked, how much of it, and the closest node.


SLOTS = "slots"


def one_slot(resource: str) -> str:
    """Return the name of a resource for a shortage in a single slot."""
    return f"{resource} of one slot"


def no_node(by: str, request: PlacementRequest, board: Board, operator: int, axes: Sequence[int]) -> Refusal:
    """The refusal of a thread of `operator` when no node has room in every one of `axes` and in a slot.

    The closest node is the one that misses the least in total, each shortage as a share of the demand.
    """
    board.write()
    room, free, largest = board.room, board.free.T, board.largest
    wanted = request.operators[operator]
    demand = np.array(wanted.demand, dtype=float)
    if not len(free):
        return Refusal(by, (Shortage(wanted.name, SLOTS, 1, 0, "no node"),))
    memory = demand[room.memory_axis] if room.memory_axis is not None else 0.0
    missing = _missing(demand, memory, free, largest, axes)
    node = first_smallest(missing.sum(axis=1), 1.0)
    worst = first_largest(missing[node], 1.0)
    closest = room.cluster.nodes[node].name
    if worst < len(axes):
        axis = axes[worst]
        shortage = Shortage(
            wanted.name, room.dimensions[axis].name, float(demand[axis]), float(free[node, axis]), closest
        )
    elif largest[node] == -np.inf:
        shortage = Shortage(wanted.name, SLOTS, 1, 0, closest)
    else:
        resource = one_slot(room.dimensions[room.memory_axis or 0].name)
        shortage = Shortage(wanted.name, resource, float(memory), float(largest[node]), closest)
    empty = np.where(room.slots > 0, slot_limit(request, room), -np.inf)
    hopeless = _missing(demand, memory, room.capacity, empty, axes).sum(axis=1).min() > 0
    return Refusal(by, (shortage,), more_slots_may_help=not hopeless)


def no_slot(
    by: str,
    request: PlacementRequest,
    room: Room,
    operator: int,
    left: NDArray[np.float64],
    node: NDArray[np.int64],
) -> Refusal:
    """The refusal of a thread of `operator` when no slot has room in every dimension; `left` is what each
    slot can still take, `node` the node each belongs to."""
    wanted = request.operators[operator]
    if not len(left):
        return Refusal(by, (Shortage(wanted.name, SLOTS, 1, 0, "the cluster"),))
    short = np.column_stack([_short(amount, left[:, axis]) for axis, amount in enumerate(wanted.demand)])
    slot = first_smallest(short.sum(axis=1), 1.0)
    axis = first_largest(short[slot], 1.0)
    shortage = Shortage(
        wanted.name,
        one_slot(room.dimensions[axis].name),
        float(wanted.demand[axis]),
        float(left[slot, axis]),
        room.cluster.nodes[int(node[slot])].name,
    )
    whole = room.capacity / np.maximum(room.slots, 1)[:, None]
    if room.memory_axis is not None:
        whole[:, room.memory_axis] = np.minimum(whole[:, room.memory_axis], slot_limit(request, room))
    empty = np.column_stack([_short(amount, whole[:, axis]) for axis, amount in enumerate(wanted.demand)])
    return Refusal(by, (shortage,), more_slots_may_help=not empty.sum(axis=1).min() > 0)


def _missing(
    demand: NDArray[np.float64],
    memory: float,
    free: NDArray[np.float64],
    largest: NDArray[np.float64],
    axes: Sequence[int],
) -> NDArray[np.float64]:
    """Return, per node, the missing amount on each axis and, in the last column, of a slot, as shares of the demand."""
    columns = [_short(demand[axis], free[:, axis]) for axis in axes]
    slot = np.where(largest == -np.inf, 1.0, _short(memory, np.maximum(largest, 0.0)))
    return np.column_stack([*columns, slot])


def _short(needed: float, offered: NDArray[np.float64]) -> NDArray[np.float64]:
    share = (needed - offered) / max(abs(needed), TOLERANCE)
    return np.where(share > TOLERANCE, share, 0.0)
