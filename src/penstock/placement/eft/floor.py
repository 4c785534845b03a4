"""Room on slots and on nodes while an earliest-finish-time placer takes it, and why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.dataflow.tolerance import TOLERANCE, first_largest, first_smallest
from penstock.errors import Refusal, Shortage
from penstock.placement.board import Board, Fits
from penstock.placement.contract import OperatorRequest
from penstock.placement.eft.work import machine_offer, speeds
from penstock.placement.refusals import no_node, one_slot
from penstock.placement.slots import cpu_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.placement.eft.schedule import Assigned, Shortfall
    from penstock.placement.eft.work import Work


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
    """Of the vertices that run already, how much of an instance of every kind each machine holds, 0 to 1."""
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
