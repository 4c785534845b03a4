"""A request as an earliest-finish-time placer sees it: vertices with their instances, and machines with their room.

Costs are those of one second of the stream: an operator's work is the CPU seconds its threads need for it, a transfer
takes the bytes of that second at the bandwidth of the slower end.

In a plan a machine is a slot, and an operator comes in the fewest equal instances of which any slot carries one. On a
whole cluster a machine is a node with the power of all its cores, and every thread is an instance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal, Shortage
from penstock.base.tolerance import TOLERANCE, first_largest, first_smallest
from penstock.cluster.topology import BYTES_PER_MEGABIT, CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.dataflow.task_graph import (
    Edge,
    capped_groups,
    communication_to_computation,
    convex_groups,
    forward,
    joined_pairs,
    kahn_order,
    merged,
)
from penstock.planning.placement.board import SLOTS, Board, Fits, no_node, one_slot
from penstock.planning.placement.contract import OperatorRequest
from penstock.planning.placement.placers.eft_schedule import Instances, Machines, Tasks, Transfer
from penstock.planning.placement.slots import bundled, cpu_axis, slot_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.planning.placement.contract import PlacedBundle, PlacementRequest, Room
    from penstock.planning.placement.placers.eft_schedule import Assigned, Schedule, Shortfall


FUSED = "fused vertex"
Group = list[int]
"""Positions of the operators of one vertex."""


@dataclass(frozen=True, slots=True)
class InstanceKind:
    """`count` equal instances of a vertex: threads by operator, and what one of them needs."""

    count: int
    threads: tuple[tuple[int, int], ...]
    demand: tuple[float, ...]
    """Amounts in the dimensions of the room."""
    work: float


@dataclass(frozen=True)
class Work:
    """A request and the room for it, in the terms of a schedule."""

    request: PlacementRequest
    room: Room
    groups: list[Group]
    kinds: list[list[InstanceKind]]
    machines: Machines

    @property
    def tasks(self) -> Tasks:
        vertex_of = {operator: vertex for vertex, group in enumerate(self.groups) for operator in group}
        traffic = self.request.traffic or (0.0,) * len(self.request.streams)
        return Tasks(
            tuple(tuple(Instances(kind.count, kind.work) for kind in kinds) for kinds in self.kinds),
            tuple(
                Transfer(vertex_of[sender], vertex_of[receiver], size)
                for (sender, receiver), size in zip(self.request.streams, traffic, strict=True)
                if vertex_of[sender] != vertex_of[receiver]
            ),
        )

    def kind_of(self, vertex: int) -> str:
        """Return the name of the vertex in a refusal."""
        return "operator" if len(self.groups[vertex]) == 1 else FUSED

    def name(self, vertex: int) -> str:
        return "+".join(self.request.operators[operator].name for operator in self.groups[vertex])


def work_of(by: str, request: PlacementRequest, room: Room, delta: float, *, capped: bool) -> Work | Refusal:
    """Vertices and machines; operators whose communication-to-computation ratio is above `delta` are fused.

    `capped`: only while one thread of each still fits a machine; otherwise a vertex that fits none is refused.
    """
    machines = _slots(room) if room.slot_memory_shared else _nodes(room)
    if not len(machines):
        first = next((operator.name for operator in request.operators), request.pipeline)
        return Refusal(by, (Shortage(first, SLOTS, 1, 0, "the cluster"),))
    units = _Units(by, request, room)
    groups = _groups(request, machines, units, delta, capped=capped)
    kinds = []
    for group in groups:
        kinds_of_group = units.instances(group)
        if isinstance(kinds_of_group, Refusal):
            return kinds_of_group
        kinds.append(kinds_of_group)
    return Work(request, room, groups, kinds, machines)


def _slots(room: Room) -> Machines:
    free = room.slots - room.slots_taken
    node = np.repeat(np.arange(len(free)), free)
    speed, bandwidth = speeds(room)
    return Machines(node, speed[node], bandwidth[node], np.zeros(len(node)))


def _nodes(room: Room) -> Machines:
    """The power of a node is that of all its cores; its queue holds what earlier pipelines take of it."""
    speed, bandwidth = speeds(room)
    axis = cpu_axis(room)
    cores = np.maximum(room.capacity[:, axis] / CPU_POINTS_PER_SLOT, TOLERANCE)
    taken = np.maximum(room.capacity[:, axis] - room.free[:, axis], 0.0) / CPU_POINTS_PER_SLOT
    return Machines(np.arange(len(cores)), cores * speed, bandwidth, taken / (cores * speed))


def speeds(room: Room) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes = room.cluster.nodes
    speed = np.array([node.speed for node in nodes], dtype=float)
    return speed, np.array([BYTES_PER_MEGABIT * node.bandwidth_mbps for node in nodes], dtype=float)


def _groups(request: PlacementRequest, machines: Machines, units: _Units, delta: float, *, capped: bool) -> list[Group]:
    if not any(request.traffic):
        return [[operator] for operator in range(len(request.operators))]
    per_work, per_byte = float((1 / machines.power).mean()), float((1 / machines.bandwidth).mean())
    costs = [per_work * units.work(operator) for operator in range(len(request.operators))]
    edges = merged(
        Edge(sender, receiver, per_byte * size)
        for (sender, receiver), size in zip(request.streams, request.traffic, strict=True)
    )
    order = kahn_order(len(costs), request.streams)
    edges = forward(order, edges)
    pairs = [(edge.sender, edge.receiver) for edge in edges]
    ratios = communication_to_computation(costs, edges)
    joined = joined_pairs(ratios, delta)
    if capped:
        return capped_groups(order, pairs, sorted(joined, key=lambda pair: -ratios[pair]), units.fits_somewhere)
    return convex_groups(order, pairs, joined)


class _Units:
    """Demands of operators and of groups of them, and what one empty machine offers, in the room's dimensions."""

    def __init__(self, by: str, request: PlacementRequest, room: Room) -> None:
        self._by = by
        self._operators = request.operators
        self._room = room
        self._planned = room.slot_memory_shared
        cpu = cpu_axis(room)
        self._work = [operator.threads * operator.demand[cpu] / CPU_POINTS_PER_SLOT for operator in request.operators]
        self._empty = machine_offer(request, room)

    def work(self, operator: int) -> float:
        return self._work[operator]

    def _kind(self, count: int, threads: Sequence[tuple[int, int]]) -> InstanceKind:
        work = sum(n * self._work[operator] / self._operators[operator].threads for operator, n in threads)
        return InstanceKind(count, tuple(threads), self._sum(threads), work)

    def _sum(self, threads: Sequence[tuple[int, int]]) -> tuple[float, ...]:
        return tuple(
            sum(count * amount for (_, count), amount in zip(threads, amounts, strict=True))
            for amounts in zip(*(self._operators[operator].demand for operator, _ in threads), strict=True)
        )

    def instances(self, group: Group) -> list[InstanceKind] | Refusal:
        """Return the instances of a group: in a plan the smallest number of which one fits any machine that can take a
        thread at all; on a whole cluster the threads of the operator with the most. Threads are dealt evenly. The
        schedule refuses instances that fit nowhere."""
        threads = [self._operators[operator].threads for operator in group]
        fewest = max(threads)
        wide_enough = self._fits(smallest := self._largest(group, fewest))
        if len(group) > 1 and not wide_enough.any():
            return self._too_big(group, smallest)
        if self._planned and wide_enough.any():
            refused = 0
            while fewest - refused > 1:
                middle = (refused + fewest) // 2
                if self._fits(self._largest(group, middle))[wide_enough].all():
                    fewest = middle
                else:
                    refused = middle
        marks = sorted({0, fewest, *(count % fewest for count in threads)})
        kinds = []
        for begin, end in pairwise(marks):
            parts = [(o, n // fewest + (begin < n % fewest)) for o, n in zip(group, threads, strict=True)]
            kinds.append(self._kind(end - begin, [(o, n) for o, n in parts if n]))
        return kinds

    def _largest(self, group: Group, instances: int) -> tuple[float, ...]:
        """Return the demand of the largest of `instances` instances."""
        return self._sum([(o, math.ceil(self._operators[o].threads / instances)) for o in group])

    def fits_somewhere(self, members: Group) -> bool:
        """Whether one thread of each fits one empty machine."""
        return bool(self._fits(self._sum([(operator, 1) for operator in members])).any())

    def _fits(self, demand: tuple[float, ...]) -> NDArray[np.bool_]:
        """Return for every node whether an empty machine of it could take this."""
        fits: NDArray[np.bool_] = np.all(np.array(demand) <= self._empty * (1 + TOLERANCE), axis=1)
        return fits

    def _too_big(self, group: Group, demand: tuple[float, ...]) -> Refusal:
        """Named after its operators, with the dimension that is missing most at the node that comes closest."""
        short = np.maximum(np.array(demand) - self._empty, 0.0) / np.maximum(np.array(demand), TOLERANCE)
        node = first_smallest(short.sum(axis=1), 1.0)
        axis = first_largest(short[node], 1.0)
        resource = self._room.dimensions[axis].name
        shortage = Shortage(
            "+".join(self._operators[operator].name for operator in group),
            one_slot(resource) if self._planned else resource,
            demand[axis],
            max(0.0, float(self._empty[node, axis])),
            f"an empty {self._room.cluster.nodes[node].name}",
            FUSED,
        )
        return Refusal(self._by, (shortage,), more_slots_may_help=False)


def machine_offer(request: PlacementRequest, room: Room) -> NDArray[np.float64]:
    """Return the offer of one empty machine of every node in every dimension.

    A slot of a plan has one core at most, its share of the memory, and the node's amount of the rest. On a whole
    cluster it is the node, with no more memory than one slot may take.
    """
    offer = room.capacity.copy()
    if room.memory_axis is not None:
        limit = slot_limit(request, room)
        offer[:, room.memory_axis] = np.minimum(offer[:, room.memory_axis], limit)
    if room.slot_memory_shared:
        cpu = cpu_axis(room)
        offer[:, cpu] = np.minimum(offer[:, cpu] / np.maximum(room.slots, 1), CPU_POINTS_PER_SLOT)
    offer[room.slots <= 0] = 0.0
    return offer


# Free resources of slots and nodes during an earliest-finish-time placement, and reasons for a refusal.


class SlotFloor:
    """The free slots of a plan. Dimensions beyond cpu and memory belong to the whole node."""

    def __init__(self, work: Work) -> None:
        room, machines = work.room, work.machines
        offer = machine_offer(work.request, room)
        self._work = work
        self._node = machines.node
        own = [axis for axis, d in enumerate(room.dimensions) if d.name in (CPU, MEMORY)]
        self._own = {axis: offer[machines.node, axis] for axis in own}
        self._shared = {axis: room.free[:, axis].copy() for axis in range(len(room.dimensions)) if axis not in own}
        self._slack = TOLERANCE * room.capacity.max(axis=0, initial=0.0)
        self._cpu = cpu_axis(room)
        self._points = machines.power / CPU_POINTS_PER_SLOT
        self.left = self._own[self._cpu] * self._points
        free = room.slots - room.slots_taken
        self._first = np.cumsum(free) - free
        self._number = np.arange(len(machines)) - self._first[machines.node] + room.slots_taken[machines.node]

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        fits = np.ones(len(self._node), dtype=bool)
        for axis, amount in enumerate(self._work.kinds[vertex][kind].demand):
            fits &= self._left_of(axis) >= amount - self._slack[axis]
        return fits

    def _left_of(self, axis: int) -> NDArray[np.float64]:
        return self._own[axis] if axis in self._own else self._shared[axis][self._node]

    def take(self, vertex: int, kind: int, machine: int) -> None:
        for axis, amount in enumerate(self._work.kinds[vertex][kind].demand):
            if axis in self._own:
                self._own[axis][machine] -= amount
            else:
                self._shared[axis][self._node[machine]] -= amount
        self.left[machine] = self._own[self._cpu][machine] * self._points[machine]

    def slot(self, position: int, assigned: Assigned) -> tuple[int, int]:
        return int(self._node[assigned.machine]), int(self._number[assigned.machine])

    def machine_of(self, slot: Slot) -> int | None:
        room = self._work.room
        if (node := room.cluster.find(slot.node)) is None:
            return None
        number = slot.number - int(room.slots_taken[node])
        return int(self._first[node]) + number if 0 <= number < room.slots[node] - room.slots_taken[node] else None

    def no_room(self, by: str, shortfall: Shortfall) -> Refusal:
        work, room = self._work, self._work.room
        demand = np.array(work.kinds[shortfall.vertex][shortfall.kind].demand)
        left = np.column_stack([self._left_of(axis) for axis in range(len(demand))])
        short = np.maximum(demand - left, 0.0) / np.maximum(demand, TOLERANCE)
        machine = first_smallest(short.sum(axis=1), 1.0)
        axis = first_largest(short[machine], 1.0)
        resource = room.dimensions[axis].name
        shortage = Shortage(
            work.name(shortfall.vertex),
            one_slot(resource) if axis in self._own else resource,
            float(demand[axis]),
            max(0.0, float(left[machine, axis])),
            f"slot {room.cluster.nodes[int(self._node[machine])].name}/{self._number[machine]}",
            work.kind_of(shortfall.vertex),
        )
        empty = machine_offer(work.request, room) + self._slack
        return Refusal(by, (shortage,), more_slots_may_help=bool((demand <= empty).all(axis=1).any()))


class NodeFloor:
    """The nodes of a whole cluster: every dimension is kept, and an instance goes into one slot of its node."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._board = Board(work.request, work.room)
        axes = range(len(work.room.dimensions))
        self._fits = [[Fits(self._board, kind.demand, axes) for kind in kinds] for kinds in work.kinds]
        self._cpu = cpu_axis(work.room)
        speed, _ = speeds(work.room)
        self._points = speed / CPU_POINTS_PER_SLOT
        self.left = work.room.free[:, self._cpu] * self._points
        self._slots: list[int] = []

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        self._board.write()
        return self._fits[vertex][kind].every()

    def take(self, vertex: int, kind: int, machine: int) -> None:
        fits = self._fits[vertex][kind]
        self._slots.append(self._board.assign(machine, fits))
        self.left[machine] -= fits.demand[self._cpu] * self._points[machine]

    def slot(self, position: int, assigned: Assigned) -> tuple[int, int]:
        return assigned.machine, self._slots[position]

    def machine_of(self, slot: Slot) -> int | None:
        return self._work.room.cluster.find(slot.node)

    def no_room(self, by: str, shortfall: Shortfall) -> Refusal:
        work = self._work
        kind = work.kinds[shortfall.vertex][shortfall.kind]
        name = work.name(shortfall.vertex)
        alone = replace(work.request, operators=(OperatorRequest(name, 1, kind.demand),), streams=(), traffic=())
        lacking = no_node(by, alone, self._board, 0, range(len(work.room.dimensions)))
        kind_of = work.kind_of(shortfall.vertex)
        return replace(lacking, shortages=tuple(replace(shortage, kind=kind_of) for shortage in lacking.shortages))


def refusal(by: str, work: Work, floor: SlotFloor | NodeFloor, shortfall: Shortfall) -> Refusal:
    """Why not all instances of a vertex found a machine: too few machines (rule 1), or too little room."""
    what = "slots" if work.room.slot_memory_shared else "nodes"
    kinds = work.kinds[shortfall.vertex]
    wanted = sum(kind.count for kind in kinds)
    machines = len(work.machines)
    kind = work.kind_of(shortfall.vertex)
    if wanted > machines:
        shortage = Shortage(
            work.name(shortfall.vertex), f"different {what}, one per instance", wanted, machines, "the cluster", kind
        )
        return Refusal(by, (shortage,))
    if not floor.fits(shortfall.vertex, shortfall.kind).any():
        return floor.no_room(by, shortfall)
    earlier = sum(placed.count for placed in kinds[: shortfall.kind])
    shortage = Shortage(
        work.name(shortfall.vertex),
        f"different {what} with room, one per instance",
        wanted,
        min(wanted, earlier + kinds[shortfall.kind].count - shortfall.wanted + shortfall.candidates),
        "the cluster",
        kind,
    )
    return Refusal(by, (shortage,))


def new_floor(work: Work) -> SlotFloor | NodeFloor:
    return SlotFloor(work) if work.room.slot_memory_shared else NodeFloor(work)


def held_now(work: Work) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Return, for the vertices that run already, the part of an instance of every kind that each machine holds, 0 to
    1."""
    current = work.request.current
    if not current:
        return {}
    machine_of = new_floor(work).machine_of
    table = {}
    for vertex, kinds in enumerate(work.kinds):
        for number, kind in enumerate(kinds):
            held = np.zeros(len(work.machines))
            for operator, threads in kind.threads:
                for slot, running in current.get(work.request.operators[operator].name, {}).items():
                    if (machine := machine_of(slot)) is not None:
                        held[machine] += min(1.0, running / threads) / len(kind.threads)
            if any(current.get(work.request.operators[operator].name) for operator, _ in kind.threads):
                table[vertex, number] = held
    return table


def bundles_of(work: Work, floor: SlotFloor | NodeFloor, scheduled: Schedule) -> tuple[PlacedBundle, ...]:
    """Return the threads of every slot for instances on machines."""
    operators: list[int] = []
    nodes: list[int] = []
    slots: list[int] = []
    reasons: list[str] = []
    explain = work.request.explain
    for position, each in enumerate(scheduled.assigned):
        node, slot = floor.slot(position, each)
        for operator, threads in work.kinds[each.vertex][each.kind].threads:
            operators += [operator] * threads
            nodes += [node] * threads
            slots += [slot] * threads
            if explain:
                reason = f"done first here: from {each.start:.3g} s to {each.finish:.3g} s of a second of the stream"
                if len(work.groups[each.vertex]) > 1:
                    reason += f", fused as {work.name(each.vertex)}"
                reasons += [reason] * threads
    return bundled(work.request, work.room, operators, nodes, slots, reasons)
