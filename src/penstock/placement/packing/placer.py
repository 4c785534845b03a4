"""P-Deployer's mapping (Algorithm 1): bin packing in which threads that talk take less room together.

One node is open at a time. It takes the fitting thread with the largest priority (`OpenNode`) until none fits, then the
next node is opened, in declared order. Where an operator has no task profile, moving its tuples costs nothing: its
threads save nothing beside others, and what is left is packing by CPU and memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from penstock.cluster.resources import CPU_POINTS_PER_SLOT
from penstock.dataflow.tolerance import TOLERANCE, whole_down
from penstock.errors import Refusal, Shortage
from penstock.placement.board import Board
from penstock.placement.contract import Placement
from penstock.placement.packing.node import OpenNode
from penstock.placement.packing.slots import slots_of
from penstock.placement.packing.tasks import PackingTasks
from penstock.placement.refusals import no_node
from penstock.placement.slots import bundled, slot_limit
from penstock.registry import Weight  # noqa: TC001 - options are checked by their annotations at run time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.placement.contract import PlacementRequest, Room


BEYOND = 1e100
"""No node has so much of anything; squares of more are no numbers."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The published rule. `saving_weight` is a_r, how much a saved point of CPU is worth beside filling the node;
    `nodes` is the budget: the most nodes a pipeline may use. O((threads + nodes) x operators).
    """

    saving_weight: Weight = 1.0
    nodes: Annotated[int, Field(ge=1)] | None = None

    name: ClassVar[str] = "packing"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        tasks = PackingTasks(request, room)
        packed = pack(tasks, request, room, self.saving_weight, self.nodes)
        if tasks.left.any():
            return _refusal(request, room, tasks, packed, self.nodes)
        bundles = bundled(request, room, packed.operators, packed.nodes, packed.slots, packed.reasons)
        return Placement(request.pipeline, self.name, bundles)


@dataclass
class Packed:
    """Operator, node and slot of every thread placed, in the order of packing, and what the nodes have left."""

    board: Board
    operators: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def pack(
    tasks: PackingTasks, request: PlacementRequest, room: Room, saving_weight: float, budget: int | None
) -> Packed:
    """Algorithm 1. What finds no node stays in `tasks.left`."""
    board = Board(request, room)
    packed = Packed(board)
    memory, slack = tasks.memory, board.slack
    smallest = float(memory.min(initial=np.inf)) if len(memory) else 0.0
    used = 0
    waiting = int(tasks.left.sum())
    if tasks.demand.max(initial=0.0) > BEYOND:
        return packed
    # The first thread on a node saves nothing: where the least demand of any is not there, none fits.
    least = tasks.demand.min(axis=0, initial=np.inf) - TOLERANCE * room.capacity
    for node in np.flatnonzero((room.slots > room.slots_taken) & (room.free >= least).all(axis=1)).tolist():
        if not waiting or used == budget:
            break
        slots = slots_of(room, node, float(board.limit[node]), slack, smallest)
        whole = float(room.capacity[node, room.memory_axis]) if room.memory_axis is not None else 0.0
        open_node = OpenNode(tasks, room.capacity[node], room.free[node], saving_weight)
        before = len(packed.operators)
        while waiting:
            operator = open_node.best(slots.largest / whole if whole > 0 else slots.largest)
            if operator is None:
                break
            packed.operators.append(operator)
            packed.nodes.append(node)
            cpu = open_node.cpu_of(operator) * open_node.cpu_capacity / CPU_POINTS_PER_SLOT
            packed.slots.append(slots.put(cpu, float(memory[operator])))
            if request.explain:
                packed.reasons.append(open_node.reason(operator))
            tasks.left[operator] -= 1
            open_node.put(operator)
            waiting -= 1
        if len(packed.operators) > before:
            used += 1
            board.free[:, node] = open_node.free()
            board.largest[node] = slots.largest
    return packed


def _refusal(request: PlacementRequest, room: Room, tasks: PackingTasks, packed: Packed, budget: int | None) -> Refusal:
    """Of the first operator with a thread that fits no empty node, else of the first with a thread left."""
    used = len(set(packed.nodes))
    fresh = int(np.count_nonzero(room.slots > room.slots_taken)) - used
    if used == budget and fresh:
        # Machines are taken from the largest down: where there are more than the budget, more of them change nothing.
        shortage = Shortage(request.pipeline, "nodes", used + 1, used, "the budget", "pipeline")
        return Refusal(Packing.name, (shortage,), more_slots_may_help=False)
    waiting = np.flatnonzero(tasks.left)
    hopeless = waiting[~_fits_an_empty_node(tasks, request, room)[waiting]]
    operator = int(hopeless[0] if len(hopeless) else waiting[0])
    # As the packing counts: CPU with nothing co-located, where profiles say what moving costs.
    operators = list(request.operators)
    operators[operator] = replace(operators[operator], demand=tuple(tasks.demand[operator].tolist()))
    counted = replace(request, operators=tuple(operators))
    lacking = no_node(Packing.name, counted, packed.board, operator, range(len(room.dimensions)))
    limit = float(slot_limit(request, room).max(initial=0.0))
    if room.slot_memory_shared and tasks.memory[operator] <= limit * (1 + TOLERANCE):
        # What no node of a plan has is CPU; more slots can mean a larger machine.
        return replace(lacking, more_slots_may_help=True, slots_missing=_slots_missing(request, room, tasks, packed))
    return lacking


def _slots_missing(request: PlacementRequest, room: Room, tasks: PackingTasks, packed: Packed) -> int:
    """How many slots the threads that are left fill at least, each with all it talks to on its node.

    Growth adds machines behind those that are there, and the largest are packed again as they were; only what smaller
    ones have left, which may be replaced, is taken off.
    """
    if tasks.cpu_axis is None:
        return 1
    local = np.array([operator.local_cpu or 0.0 for operator in request.operators])
    smaller = room.slots < room.slots.max()
    spare = float(packed.board.free[tasks.cpu_axis, smaller].sum())
    return max(1, whole_down((float(tasks.left @ local) - spare) / CPU_POINTS_PER_SLOT))


def _fits_an_empty_node(tasks: PackingTasks, request: PlacementRequest, room: Room) -> NDArray[np.bool_]:
    """Of every operator, whether a thread alone fits some node of the room with nothing on it."""
    fits = np.zeros(len(tasks.left), dtype=bool)
    kinds = np.column_stack([room.capacity, slot_limit(request, room), room.slots > 0])
    for *capacity, limit, has_slots in np.unique(kinds, axis=0).tolist():
        enough = tasks.demand <= np.array(capacity) * (1 + TOLERANCE)
        fits |= enough.all(axis=1) & (tasks.memory <= limit * (1 + TOLERANCE)) & bool(has_slots)
    return fits
