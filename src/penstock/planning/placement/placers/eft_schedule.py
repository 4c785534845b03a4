"""Earliest finish time: vertices by falling priority, each to the machine that has it done first (E-Stream, 4.5).

A machine is whatever computes one thing at a time: a slot in a plan, a node of a whole cluster. A vertex is one
operator or several fused into one, and comes in instances. Machines are looked at in one vectorised pass for every kind
of instance of a vertex, not one by one for every instance: instances of one vertex go to different machines, so placing
one changes nothing for the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.base.tolerance import TOLERANCE, exceeds, tie_keys
from penstock.dataflow.task_graph import Edge, forward, kahn_order, merged, upward_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Machines:
    """The machines of a schedule. Moving data inside one `node` takes no time."""

    node: NDArray[np.int64]
    power: NDArray[np.float64]
    """Work done per second."""
    bandwidth: NDArray[np.float64]
    """Bytes per second to and from other nodes; a transfer goes at the slower end's."""
    idle: NDArray[np.float64]
    """When it is free, in seconds."""

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True)
class Instances:
    """`count` equal instances of a vertex, each with `work`."""

    count: int
    work: float


class Transfer(NamedTuple):
    """Data that moves from one vertex to another: `seconds + bytes / bandwidth`, 0 on the same node."""

    sender: int
    receiver: int
    bytes: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Tasks:
    """The tasks of a schedule: the instances of every vertex, and the data that moves between vertices."""

    vertices: tuple[tuple[Instances, ...], ...]
    transfers: tuple[Transfer, ...]


class Floor(Protocol):
    """Which machines have room, and how much power each has left (rule 2)."""

    left: NDArray[np.float64]

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        """Return for every machine whether it can take one instance of this kind."""

    def take(self, vertex: int, kind: int, machine: int) -> None: ...


class Assigned(NamedTuple):
    """One instance of a vertex: where, and from when to when."""

    vertex: int
    kind: int
    machine: int
    start: float
    finish: float


@dataclass(frozen=True)
class Schedule:
    assigned: tuple[Assigned, ...]
    """Assignments in the order in which they were decided."""
    makespan: float
    bottleneck: float
    """The highest load of a machine: seconds of work in its queue and of all it was assigned."""

    def moved(self, current: Mapping[tuple[int, int], NDArray[np.float64]]) -> tuple[Assigned, ...]:
        """Return the instances that run already and get a machine that does not hold them now."""
        return tuple(
            each
            for each in self.assigned
            if (each.vertex, each.kind) in current and not current[each.vertex, each.kind][each.machine]
        )


@dataclass(frozen=True)
class Shortfall:
    """A vertex of which not all instances found a machine."""

    vertex: int
    kind: int
    wanted: int
    """Instances of this kind that had to be placed at once."""
    candidates: int


@dataclass(frozen=True)
class Rules:
    """Rules for the choice of machines, beyond the earliest finish."""

    apart: bool = True
    """Rule 1: instances of a vertex go to different machines. Otherwise they do while there are machines enough."""
    current: Mapping[tuple[int, int], NDArray[np.float64]] = field(default_factory=dict)
    """Rule 3, by vertex and kind, for what runs already: how much of an instance each machine holds now, 0 to 1."""
    migration: float = 0.0
    """Seconds by which an instance must finish earlier elsewhere to leave its machine. 0: ties stay. Infinite:
    instances stay if they can, and new ones avoid machines that others hold."""
    load_limit: float = np.inf
    """Machines are not loaded above this while others have room."""
    fixed: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Machines of instances that stay, by vertex and kind; such a kind has one instance."""
    tightest: bool = False
    """Take the machine with the least power left that has room, whatever the times: tight packing leaves room for later
    instances."""

    def held_by_any(self, machines: int) -> NDArray[np.float64]:
        """1 for every machine that holds something now."""
        held = np.zeros(machines)
        for row in self.current.values():
            np.maximum(held, row > 0, out=held)
        return held


def order_of(tasks: Tasks, machines: Machines) -> tuple[list[int], list[Edge]]:
    """Vertices by falling priority, ties in topological order; and the edges that do not close a cycle.

    An instance computes `work / power` on average over machines, an edge takes its average over machines too.
    """
    per_work, per_byte = float((1 / machines.power).mean()), float((1 / machines.bandwidth).mean())
    edges = merged(Edge(t.sender, t.receiver, t.seconds + t.bytes * per_byte) for t in tasks.transfers)
    topological = kahn_order(len(tasks.vertices), [(t.sender, t.receiver) for t in tasks.transfers])
    edges = forward(topological, edges)
    costs = [per_work * max((kind.work for kind in kinds), default=0.0) for kinds in tasks.vertices]
    ranks = _rounded(np.array(upward_ranks(costs, edges, topological))).tolist()
    place = {vertex: position for position, vertex in enumerate(topological)}
    return sorted(topological, key=lambda vertex: (-ranks[vertex], place[vertex])), edges


def schedule(tasks: Tasks, machines: Machines, floor: Floor, timeline: Timeline, rules: Rules) -> Schedule | Shortfall:
    """`EST(v, n) = max(idle time of n, max over predecessors of (EFT + transfer)); EFT = EST + work / power`.

    Every instance goes to the machine with the least EFT. Ties: the machine on which it runs now, then the one with the
    most power left (rule 2), then the machine declared first.
    """
    order, edges = order_of(tasks, machines)
    known = {(edge.sender, edge.receiver) for edge in edges}
    inputs: list[list[Transfer]] = [[] for _ in tasks.vertices]
    for transfer in _summed(tasks.transfers):
        if (transfer.sender, transfer.receiver) in known:
            inputs[transfer.receiver].append(transfer)
    done: dict[int, list[Assigned]] = {}
    load = machines.idle.astype(float)
    for vertex in order:
        ready = _ready(inputs[vertex], done, machines)
        placed = _place_vertex(vertex, tasks.vertices[vertex], ready, machines, floor, timeline, rules, load)
        if isinstance(placed, Shortfall):
            return placed
        done[vertex] = placed
    assigned = tuple(each for vertex in order for each in done[vertex])
    return Schedule(
        assigned, max((each.finish for each in assigned), default=0.0), float(load.max()) if len(load) else 0.0
    )


def _place_vertex(
    vertex: int,
    kinds: Sequence[Instances],
    ready: NDArray[np.float64],
    machines: Machines,
    floor: Floor,
    timeline: Timeline,
    rules: Rules,
    load: NDArray[np.float64],
) -> list[Assigned] | Shortfall:
    used = np.zeros(len(machines), dtype=bool)
    placed: list[Assigned] = []
    for kind, instances in enumerate(kinds):
        waiting = instances.count
        duration = instances.work / machines.power
        if (there := rules.fixed.get((vertex, kind))) is not None:
            begin, seconds = float(timeline.start(ready, duration)[there]), float(duration[there])
            timeline.book(there, begin, begin + seconds)
            load[there] += seconds
            placed.append(Assigned(vertex, kind, there, begin, begin + seconds))
            continue
        while waiting:
            candidates = np.flatnonzero(floor.fits(vertex, kind) & ~used)
            if len(candidates) < (waiting if rules.apart else 1):
                if not rules.apart and used.any():
                    used[:] = False
                    continue
                return Shortfall(vertex, kind, waiting, len(candidates))
            start = timeline.start(ready, duration)
            held = rules.current.get((vertex, kind))
            chosen = _best(waiting, candidates, start + duration, load + duration, held, floor, rules)
            for machine in chosen.tolist():
                begin, seconds = float(start[machine]), float(duration[machine])
                timeline.book(machine, begin, begin + seconds)
                floor.take(vertex, kind, machine)
                load[machine] += seconds
                placed.append(Assigned(vertex, kind, machine, begin, begin + seconds))
            used[chosen] = True
            waiting -= len(chosen)
    return placed


def _best(
    count: int,
    candidates: NDArray[np.int64],
    finish: NDArray[np.float64],
    load: NDArray[np.float64],
    held: NDArray[np.float64] | None,
    floor: Floor,
    rules: Rules,
) -> NDArray[np.int64]:
    """Up to `count` of the candidates, the best first."""
    away = np.zeros(len(finish)) if held is None else 1 - held
    stays = rules.migration == np.inf
    dues = _rounded(finish if stays else finish + rules.migration * away)
    left_over = _rounded(floor.left)
    keys = [dues, away, -left_over]
    if stays:
        keys = [away, rules.held_by_any(len(finish)), dues, -left_over]
    if rules.tightest:
        keys = [left_over, dues]
    if rules.load_limit < np.inf:
        above = np.maximum(load - rules.load_limit * (1 + TOLERANCE), 0.0)
        keys.insert(0, tie_keys(above, float(load.max(initial=0.0))))
    left, kept = candidates, []
    wanted = min(count, len(candidates))
    for key in keys:
        if wanted == len(left):
            break
        values = key[left]
        edge = np.partition(values, wanted - 1)[wanted - 1]
        kept.append(left[values < edge])
        wanted -= len(kept[-1])
        left = left[values == edge]
    kept.append(left[:wanted])
    chosen = np.concatenate(kept)
    return chosen[np.lexsort([chosen, *(key[chosen] for key in reversed(keys))])]


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values with rounding noise removed: ranks, times and remainders are sums of many floats, and those that
    differ by rounding alone become equal."""
    return tie_keys(values, float(np.abs(values).max(initial=0.0)))


def _ready(
    inputs: Iterable[Transfer], done: Mapping[int, Sequence[Assigned]], machines: Machines
) -> NDArray[np.float64]:
    """Return for every machine the time at which all input is there: `max over predecessors of (EFT + transfer)`.

    Of the instances of a predecessor with one bandwidth only the last to finish decides, except on its own node, where
    its data need not travel: there the last one on any other node decides.
    """
    ready = np.zeros(len(machines))
    for sender, _, size, seconds in inputs:
        if not done[sender]:
            continue
        finish = np.array([each.finish for each in done[sender]])
        where = np.array([each.machine for each in done[sender]])
        if not size and not seconds:
            np.maximum(ready, finish.max(initial=0.0), out=ready)
            continue
        for bandwidth in np.unique(machines.bandwidth[where]):
            travel = seconds + size / np.minimum(bandwidth, machines.bandwidth)
            of_class = machines.bandwidth[where] == bandwidth
            times, nodes = finish[of_class], machines.node[where[of_class]]
            last = int(np.argmax(times))
            others = times[nodes != nodes[last]]
            here = machines.node == nodes[last]
            arrival = times[last] + travel
            local = np.full(int(here.sum()), times[last])
            if len(others):
                local = np.maximum(local, others.max() + travel[here])
            arrival[here] = local
            np.maximum(ready, arrival, out=ready)
    return ready


def _summed(transfers: Iterable[Transfer]) -> list[Transfer]:
    """Parallel transfers as one."""
    table: dict[tuple[int, int], tuple[float, float]] = {}
    for sender, receiver, size, seconds in transfers:
        before = table.get((sender, receiver), (0.0, 0.0))
        table[sender, receiver] = before[0] + size, before[1] + seconds
    return [Transfer(*pair, *costs) for pair, costs in table.items()]


# Free times of machines: the end of their queue only (as published), or also the gaps before it.


GAPS = 4
"""The longest gaps of a machine that are remembered."""


class Timeline(Protocol):
    """The bookings of machines. Times are seconds."""

    def start(self, ready: NDArray[np.float64], duration: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return for every machine the earliest time from `ready` on at which it is free for `duration`."""

    def book(self, machine: int, start: float, finish: float) -> None: ...


class Queue:
    """`EST = max(idle time of the machine, ready)`: work is appended, gaps stay empty (Eq. 17)."""

    def __init__(self, idle: NDArray[np.float64]) -> None:
        self._idle = idle.astype(float)

    def start(self, ready: NDArray[np.float64], duration: NDArray[np.float64]) -> NDArray[np.float64]:
        start: NDArray[np.float64] = np.maximum(self._idle, ready)
        return start

    def book(self, machine: int, start: float, finish: float) -> None:
        self._idle[machine] = finish


class Gaps:
    """Work also goes into the first gap that holds it. Of every machine the `GAPS` longest gaps are remembered."""

    def __init__(self, idle: NDArray[np.float64]) -> None:
        self._idle = idle.astype(float)
        self._begin = np.zeros((GAPS, len(idle)))
        self._end = np.zeros((GAPS, len(idle)))
        self._used = 0
        """Rows of the table that hold a gap of any machine."""

    def start(self, ready: NDArray[np.float64], duration: NDArray[np.float64]) -> NDArray[np.float64]:
        start: NDArray[np.float64] = np.maximum(self._idle, ready)
        for row in range(self._used):
            inside = np.maximum(self._begin[row], ready)
            # a gap of no length is no gap, also for work of no length
            holds = (inside + duration <= self._end[row] * (1 + TOLERANCE)) & (self._end[row] > self._begin[row])
            np.minimum(start, inside, out=start, where=holds)
        return start

    def book(self, machine: int, start: float, finish: float) -> None:
        if start >= self._idle[machine]:
            self._keep(machine, float(self._idle[machine]), start)
            self._idle[machine] = finish
            return
        begins, ends = self._begin[:, machine], self._end[:, machine]
        row = int(np.flatnonzero((begins <= start) & (finish <= ends * (1 + TOLERANCE)) & (begins < ends))[0])
        begin, end = float(begins[row]), float(ends[row])
        begins[row] = ends[row] = 0.0
        self._keep(machine, begin, start)
        self._keep(machine, finish, end)

    def _keep(self, machine: int, begin: float, end: float) -> None:
        if not exceeds(end, begin):
            return
        lengths = self._end[:, machine] - self._begin[:, machine]
        row = int(np.argmin(lengths))
        if end - begin > lengths[row]:
            self._begin[row, machine], self._end[row, machine] = begin, end
            self._used = max(self._used, row + 1)
