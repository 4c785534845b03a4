"""Earliest finish time for a pipeline that runs: book the threads that stay, schedule the others.

A vertex is one operator; its threads on one slot are an instance. Instances that stay take their slot's time in the
order of the priorities, like all others, so that new ones see when and where their inputs are ready. A new instance
goes to a slot nothing runs on (rule 1), with the earliest finish.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal
from penstock.cluster.topology import BYTES_PER_MEGABIT, CPU_POINTS_PER_SLOT
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.placers.eft_schedule import (
    Instances,
    Machines,
    Queue,
    Rules,
    Schedule,
    Shortfall,
    Tasks,
    Transfer,
    schedule,
)
from penstock.planning.placement.placers.eft_work import SlotFloor, bundles_of, refusal, work_of
from penstock.planning.placement.slots import cpu_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.planning.placement.contract import Beside, PlacementRequest, Room
    from penstock.planning.placement.placers.eft_schedule import Floor
    from penstock.planning.placement.placers.eft_work import Work

NO_DELTA = float("inf")
"""New instances are not fused: their neighbours are placed already, and transfers pull them there."""


def place_beside(by: str, request: PlacementRequest, beside: Beside, room: Room) -> Placement | Refusal:
    """Return slots for the threads of `request` beside those that stay."""
    work = work_of(by, request, room, NO_DELTA, capped=False)
    if isinstance(work, Refusal):
        return work
    floor = SlotFloor(work)
    stays = _Staying(beside, cpu_axis(room))
    position = {operator.name: number for number, operator in enumerate(beside.request.operators)}
    new = {position[request.operators[group[0]].name]: vertex for vertex, group in enumerate(work.groups)}
    machines = stays.machines_after(work)
    scheduled = _schedule(stays, machines, work, new, _Padded(floor, stays, new, machines))
    if isinstance(scheduled, Shortfall):
        return refusal(by, work, floor, replace(scheduled, vertex=new[scheduled.vertex], kind=0))
    placed = tuple(
        each._replace(vertex=new[each.vertex], kind=each.kind - stays.count(each.vertex))
        for each in scheduled.assigned
        if each.kind >= stays.count(each.vertex)
    )
    return Placement(request.pipeline, by, bundles_of(work, floor, replace(scheduled, assigned=placed)))


def finish_seconds(whole: Beside, cpu: int = 0) -> float:
    """Return the end of a second's work for threads on these slots (E-Stream's makespan, Eq. 1)."""
    stays = _Staying(whole, cpu)
    machines = stays.machines_after(None)
    scheduled = _schedule(stays, machines, None, {}, _NoFloor(np.zeros(len(machines))))
    return scheduled.makespan if isinstance(scheduled, Schedule) else float("inf")


class _Staying:
    """Instances that stay: by operator their slots and work, in the order of the slots."""

    def __init__(self, beside: Beside, cpu: int) -> None:
        self.beside = beside
        self.slots = list(beside.rows)
        self._hosts = {
            number: [
                (machine, beside.rows[slot][operator.name] * operator.demand[cpu] / CPU_POINTS_PER_SLOT)
                for machine, slot in enumerate(self.slots)
                if beside.rows[slot].get(operator.name)
            ]
            for number, operator in enumerate(beside.request.operators)
        }

    def count(self, operator: int) -> int:
        return len(self._hosts[operator])

    def kinds(self, operator: int) -> list[Instances]:
        return [Instances(1, work) for _, work in self._hosts[operator]]

    def fixed(self, first: int) -> dict[tuple[int, int], int]:
        """Return the machine of every instance; slots that stay are machines from `first` on."""
        return {
            (operator, kind): first + machine
            for operator, hosts in self._hosts.items()
            for kind, (machine, _) in enumerate(hosts)
        }

    def machines_after(self, work: Work | None) -> Machines:
        """Return the free slots of a room, if there is one, and then the slots that stay."""
        nodes = [self.beside.nodes[slot.node] for slot in self.slots]
        offered = () if work is None else work.room.cluster.nodes
        number = {node.name: index for index, node in enumerate(offered)}
        for node in nodes:
            number.setdefault(node.name, len(number))
        node_of = np.array([number[node.name] for node in nodes], dtype=np.int64)
        power = np.array([node.speed for node in nodes], dtype=float)
        bandwidth = np.array([BYTES_PER_MEGABIT * node.bandwidth_mbps for node in nodes], dtype=float)
        idle = np.zeros(len(nodes))
        if work is None:
            return Machines(node_of, power, bandwidth, idle)
        free = work.machines
        return Machines(
            np.concatenate([free.node, node_of]),
            np.concatenate([free.power, power]),
            np.concatenate([free.bandwidth, bandwidth]),
            np.concatenate([free.idle, idle]),
        )


@dataclass
class _NoFloor:
    """Nothing new may be placed."""

    left: NDArray[np.float64]

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        return np.zeros(len(self.left), dtype=bool)

    def take(self, vertex: int, kind: int, machine: int) -> None:
        raise AssertionError("instances that stay take nothing more")


class _Padded:
    """The free slots of a room, and after them slots that are full."""

    def __init__(self, floor: SlotFloor, stays: _Staying, new: dict[int, int], machines: Machines) -> None:
        self._floor = floor
        self._stays = stays
        self._new = new
        self._full = len(machines) - len(floor.left)
        self.left = np.concatenate([floor.left, np.zeros(self._full)])

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        free = self._floor.fits(self._new[vertex], kind - self._stays.count(vertex))
        return np.concatenate([free, np.zeros(self._full, dtype=bool)])

    def take(self, vertex: int, kind: int, machine: int) -> None:
        self._floor.take(self._new[vertex], kind - self._stays.count(vertex), machine)
        self.left[machine] = self._floor.left[machine]


def _schedule(
    stays: _Staying, machines: Machines, work: Work | None, new: dict[int, int], floor: Floor
) -> Schedule | Shortfall:
    request = stays.beside.request
    vertices = []
    for operator in range(len(request.operators)):
        kinds = stays.kinds(operator)
        if work is not None and operator in new:
            kinds += [Instances(kind.count, kind.work) for kind in work.kinds[new[operator]]]
        vertices.append(tuple(kinds))
    traffic = request.traffic or (0.0,) * len(request.streams)
    transfers = tuple(
        Transfer(sender, receiver, size) for (sender, receiver), size in zip(request.streams, traffic, strict=True)
    )
    rules = Rules(fixed=stays.fixed(len(machines) - len(stays.slots)))
    return schedule(Tasks(tuple(vertices), transfers), machines, floor, Queue(machines.idle), rules)
