"""P-Deployer's mapping (Algorithm 1): bin packing in which threads that talk take less room together.

One node is open at a time. It takes the fitting thread with the largest priority (`OpenNode`) until none fits, then the
next node is opened, in declared order. If an operator has no task profile, moving its tuples costs nothing: its threads
save nothing beside others, and only CPU and memory are packed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import numpy as np
from pydantic import Field

from penstock.base.errors import Refusal, Shortage
from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.base.tolerance import TOLERANCE, first_largest, whole_down
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT
from penstock.planning.placement.board import Board, no_node
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.slots import bundled, slot_limit, slots_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacementRequest, Room


# The open node of P-Deployer's packing: its threads, and the value of each further thread there.


class OpenNode:
    """Everything is normalised by the node's capacity. `s = C_max - C` plus the saving by threads already here (Eq. 5),
    `p = a_r s - a_c (C - r_cpu)^2 - a_m (M - r_memory)^2` (Eq. 6), r being the remainder before placing and a_c, a_m
    the mean demand of a thread of the pipeline. A thread fits if the node's exact total after placing, savings
    included, does.

    A thread put on the node changes r, which is one number, and the savings of its neighbours. So of `p = (a_r s - a_c
    C^2 - a_m M^2) + 2 a_c r_cpu C + 2 a_m r_memory M - terms that are the same for all` the bracket is kept, and
    brought up to date for the neighbours alone.
    """

    def __init__(
        self,
        tasks: PackingTasks,
        capacity: NDArray[np.float64],
        free: NDArray[np.float64],
        saving_weight: float,
    ) -> None:
        self._tasks = tasks
        self._capacity = np.where(capacity > 0, capacity, 1.0)
        self._left = free / self._capacity
        self._demand = tasks.demand / self._capacity
        cpu, memory = tasks.cpu_axis, tasks.memory_axis
        nothing = np.zeros(len(tasks.left))
        self.cpu_capacity = float(self._capacity[cpu]) if cpu is not None else 1.0
        """Points of CPU that are 1.0 here."""
        self._neighbours = tasks.neighbours_on(self.cpu_capacity)
        self._most = self._demand[:, cpu] if cpu is not None else nothing
        self._cpu = self._most.copy()
        """C of one more thread, beside the present ones."""
        self._total = self._most.copy()
        """Growth of the node's total with one more thread: C_max - s."""
        self._memory = self._demand[:, memory] if memory is not None else nothing
        self._cpu_left = float(self._left[cpu]) if cpu is not None else 0.0
        self._memory_left = float(self._left[memory]) if memory is not None else 0.0
        self._others = [axis for axis in range(len(capacity)) if axis not in (cpu, memory)]
        self._saving_weight = saving_weight
        shares = tasks.threads / max(int(tasks.threads.sum()), 1)
        self._cpu_weight = float(self._most @ shares)
        self._memory_weight = float(self._memory @ shares)
        self._kept = -self._cpu_weight * self._cpu**2 - self._memory_weight * self._memory**2
        self._never = tasks.left == 0
        """Operators of which no further thread can come here: none is left, or the node has too little of something
        that only gets less."""
        if self._others:
            self._never |= (self._demand[:, self._others] > self._left[self._others] + TOLERANCE).any(axis=1)
        self._largest_memory = float(self._memory[~self._never].max(initial=0.0))
        self._worth_scale = (saving_weight + 2 * self._cpu_weight) * float(self._most.max(initial=0.0))
        self._worth_scale += 2 * self._memory_weight * float(self._memory.max(initial=0.0))
        self._worth = np.empty(len(nothing))
        self._of_memory = np.empty(len(nothing))

    def priorities(self) -> NDArray[np.float64]:
        """p of one more thread of every operator, whether it fits or not."""
        saved = self._saving_weight * (self._most - self._total)
        cpu = self._cpu_weight * (self._cpu - self._cpu_left) ** 2
        memory = self._memory_weight * (self._memory - self._memory_left) ** 2
        priority: NDArray[np.float64] = saved - cpu - memory
        return priority

    def fits(self) -> NDArray[np.bool_]:
        """Whether one more thread of every operator fits within the node's totals."""
        fits: NDArray[np.bool_] = ~self._never & (self._total <= self._cpu_left + TOLERANCE)
        fits &= self._memory <= self._memory_left + TOLERANCE
        return fits

    def best(self, largest: float) -> int | None:
        """Return the operator of the next thread: the first of those with the largest priority; None if no remaining
        thread fits. `largest` is the max memory one slot of the node still takes, as a share of the node's."""
        most_memory = min(self._memory_left, largest) + TOLERANCE
        if most_memory < self._largest_memory:
            self._never |= self._memory > most_memory
            self._largest_memory = float(self._memory[~self._never].max(initial=0.0))
        worth = np.multiply(self._cpu, 2 * self._cpu_weight * self._cpu_left, out=self._worth)
        worth += np.multiply(self._memory, 2 * self._memory_weight * self._memory_left, out=self._of_memory)
        worth += self._kept
        unfit = self._total > self._cpu_left + TOLERANCE
        unfit |= self._never
        worth[unfit] = -np.inf
        best = first_largest(worth, self._worth_scale) if len(worth) else 0
        return best if len(worth) and worth[best] > -np.inf else None

    def put(self, operator: int) -> None:
        """One thread more. The caller counts it off `tasks.left` first."""
        self._cpu_left -= float(self._total[operator])
        self._memory_left -= float(self._memory[operator])
        if not self._tasks.left[operator]:
            self._never[operator] = True
        if self._others:
            self._left[self._others] -= self._demand[operator, self._others]
            self._never |= (self._demand[:, self._others] > self._left[self._others] + TOLERANCE).any(axis=1)
        neighbourhood = self._neighbours[operator]
        if neighbourhood is not None:
            neighbours, own, both = neighbourhood
            before = self._cpu[neighbours]
            after = before - own
            self._cpu[neighbours] = after
            self._total[neighbours] -= both
            # C^2 falls by before^2 - after^2 = own (before + after)
            self._kept[neighbours] += self._saving_weight * both + self._cpu_weight * own * (before + after)

    def saving(self, operator: int) -> float:
        """s of one more thread, as a share of the node's CPU."""
        return float(self._most[operator] - self._total[operator])

    def cpu_of(self, operator: int) -> float:
        """Return the CPU of one more thread beside the present ones, as a share of the node's."""
        return float(self._cpu[operator])

    def free(self) -> NDArray[np.float64]:
        """Return the remainder, in units of the resources."""
        left = self._left.copy()
        for axis, amount in (
            (self._tasks.cpu_axis, self._cpu_left),
            (self._tasks.memory_axis, self._memory_left),
        ):
            if axis is not None:
                left[axis] = amount
        return left * self._capacity

    def reason(self, operator: int) -> str:
        """Why a thread of this operator comes next."""
        return (
            f"largest priority, {self.priorities()[operator]:.3g}, of what fits the open node: saves "
            f"{self.saving(operator):.3g} of its cpu, of which {self._cpu_left:.3g} is left, and takes "
            f"{self._memory[operator]:.3g} of the {self._memory_left:.3g} memory left"
        )


# Threads to place in P-Deployer's packing: the demand of each, and its saving beside others.
#
# The threads of one operator are alike, so everything is kept per operator.


Neighbours: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]"


class PackingTasks:
    """Demands of one thread of every operator, in units of the resource, and the number of threads left to place.

    A thread's CPU is that of Eq. 3: `local + c_t * moved`, with `moved` the tuples/s it exchanges with threads on other
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
        """Return, for every operator, its neighbours and the tuples/s between one thread of each.

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
        """Return, for every operator: its neighbours, the saving of a thread of it for one of theirs, and the saving of
        the two together, as shares of a node's CPU; None if it saves nothing."""
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


BEYOND = 1e100
"""Above any amount that a node has; squares of larger numbers overflow."""


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
    # The first thread on a node saves nothing: if the least demand of any does not fit, none does.
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
    """Return the refusal for the first operator with a thread that fits no empty node, else for the first with a thread
    left."""
    used = len(set(packed.nodes))
    fresh = int(np.count_nonzero(room.slots > room.slots_taken)) - used
    if used == budget and fresh:
        # Machines are taken from the largest down: beyond the budget, more of them change nothing.
        shortage = Shortage(request.pipeline, "nodes", used + 1, used, "the budget", "pipeline")
        return Refusal(Packing.name, (shortage,), more_slots_may_help=False)
    waiting = np.flatnonzero(tasks.left)
    hopeless = waiting[~_fits_an_empty_node(tasks, request, room)[waiting]]
    operator = int(hopeless[0] if len(hopeless) else waiting[0])
    # The demand the packing uses: CPU with nothing co-located, if profiles contain the cost of moving.
    operators = list(request.operators)
    operators[operator] = replace(operators[operator], demand=tuple(tasks.demand[operator].tolist()))
    counted = replace(request, operators=tuple(operators))
    lacking = no_node(Packing.name, counted, packed.board, operator, range(len(room.dimensions)))
    limit = float(slot_limit(request, room).max(initial=0.0))
    if room.slot_memory_shared and tasks.memory[operator] <= limit * (1 + TOLERANCE):
        # CPU is missing on every node of a plan; more slots can mean a larger machine.
        return replace(lacking, more_slots_may_help=True, slots_missing=_slots_missing(request, room, tasks, packed))
    return lacking


def _slots_missing(request: PlacementRequest, room: Room, tasks: PackingTasks, packed: Packed) -> int:
    """Return the min slots that the remaining threads fill, each with all its neighbours on its node.

    Growth adds machines after the present ones, and the largest are packed again as they were; only the remainder of
    smaller ones, which may be replaced, is subtracted.
    """
    if tasks.cpu_axis is None:
        return 1
    local = np.array([operator.local_cpu or 0.0 for operator in request.operators])
    smaller = room.slots < room.slots.max()
    spare = float(packed.board.free[tasks.cpu_axis, smaller].sum())
    return max(1, whole_down((float(tasks.left @ local) - spare) / CPU_POINTS_PER_SLOT))


def _fits_an_empty_node(tasks: PackingTasks, request: PlacementRequest, room: Room) -> NDArray[np.bool_]:
    """Return, for every operator, whether a thread alone fits some empty node of the room."""
    fits = np.zeros(len(tasks.left), dtype=bool)
    kinds = np.column_stack([room.capacity, slot_limit(request, room), room.slots > 0])
    for *capacity, limit, has_slots in np.unique(kinds, axis=0).tolist():
        enough = tasks.demand <= np.array(capacity) * (1 + TOLERANCE)
        fits |= enough.all(axis=1) & (tasks.memory <= limit * (1 + TOLERANCE)) & bool(has_slots)
    return fits
