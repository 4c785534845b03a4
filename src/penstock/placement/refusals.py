"""Why a thread found no node: which resource was missing, how much of it, and where it came closest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE, first_largest, first_smallest
from penstock.errors import Refusal, Shortage
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.placement.board import Board
    from penstock.placement.contract import PlacementRequest, Room

SLOTS = "slots"


def one_slot(resource: str) -> str:
    """The name of a resource where the limit of a single slot is what was missed."""
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
    """Per node, what is missing of each axis and, in the last column, of a slot, as shares of the demand."""
    columns = [_short(demand[axis], free[:, axis]) for axis in axes]
    slot = np.where(largest == -np.inf, 1.0, _short(memory, np.maximum(largest, 0.0)))
    return np.column_stack([*columns, slot])


def _short(needed: float, offered: NDArray[np.float64]) -> NDArray[np.float64]:
    share = (needed - offered) / max(abs(needed), TOLERANCE)
    return np.where(share > TOLERANCE, share, 0.0)
