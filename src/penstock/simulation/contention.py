"""The speed of every station, window by window, if slots or nodes are short of CPU.

In a window of length d station i has n_i tuples (waiting or arriving) and wants `need_i = cpu_i n_i / d` cores, up to
`peak_i = cpu_i * threads_i / service_i`, the cores of all its threads at full speed. If a slot's stations want more
than its cores, all work at the speed f with

    sum over i of min(need_i, f peak_i) = cores - (their idle use)

so a station that needs little gets it, and the others share the rest in proportion to their peaks. If the slots of a
node then still take more than the node's cores, all of them slow down by such a factor again. The demand of a window
slows the next one.

With feedback (closed loops, bounded queues) few tuples arrive because the threads are slow, so arrivals do not show the
demand. Busy threads do: b_i of them want `b_i cpu_i / service_i` cores, and all slow down alike, to `f = cores / (sum
over i of b_i cpu_i / service_i)`. Slower threads are busy longer, so this holds itself in balance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT
from penstock.simulation.scenario import NANOSECONDS, Arrivals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.simulation.layout import StageLayout
    from penstock.simulation.scenario import Scenario, Station

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_HALVINGS = 40
_SLOWEST = 1e-3
"""Min speed: no station is stopped altogether by idle demand."""


def filled(groups: Ints, need: Floats, peak: Floats, cores: Floats) -> Floats:
    """The speed f in (0, 1] of every group: 1, or where `sum of min(need, f peak)` is its cores. By bisection."""
    taken = np.bincount(groups, weights=np.minimum(need, peak), minlength=len(cores))
    speeds = np.ones(len(cores))
    short = taken > cores * (1 + TOLERANCE)
    if not short.any():
        return speeds
    mine = short[groups]
    rows, wants, most = groups[mine], need[mine], peak[mine]
    low, high = np.zeros(len(cores)), np.ones(len(cores))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        sums = np.bincount(rows, weights=np.minimum(wants, middle[rows] * most), minlength=len(cores))
        over = sums > cores
        high[over] = middle[over]
        low[~over] = middle[~over]
    speeds[short] = np.maximum(high[short], _SLOWEST)
    return speeds


class Processors:
    """The speed of every station; stations come and go."""

    def __init__(self, scenario: Scenario, slots: Iterable[Slot]) -> None:
        self._places = {slot: position for position, slot in enumerate(dict.fromkeys(slots))}
        nodes = {name: position for position, name in enumerate(dict.fromkeys(slot.node for slot in self._places))}
        self._node_of = np.array([nodes[slot.node] for slot in self._places], dtype=np.int64)
        self._node_cores = np.array([node_cores(scenario, name) for name in nodes])
        cores = np.inf if scenario.slot_cores is None else scenario.slot_cores
        self._slot_cores = np.full(len(self._places), cores)
        self._slot: Ints = np.empty(0, dtype=np.int64)
        self._peak: Floats = np.empty(0)
        self._cpu: Floats = np.empty(0)
        self._idle: Floats = np.empty(0)
        self._tuples: Floats = np.empty(0)
        self._of_a_thread: Floats = np.empty(0)
        """Cores a busy thread takes at full speed."""
        self.speed: Floats = np.empty(0)

    def enter(self, stations: Sequence[Station]) -> slice:
        """Stations that work from now on; answers where their speeds are."""
        first = len(self._slot)
        more = np.array([self._places[station.slot] for station in stations], dtype=np.int64)
        self._slot = np.concatenate((self._slot, more))
        self._cpu = np.concatenate((self._cpu, [station.cpu_seconds for station in stations]))
        self._peak = np.concatenate((self._peak, [peak_cores(station) for station in stations]))
        self._idle = np.concatenate((self._idle, [station.idle_cpu for station in stations]))
        each = [peak_cores(station) / station.threads for station in stations]
        self._of_a_thread = np.concatenate((self._of_a_thread, each))
        self._tuples = np.concatenate((self._tuples, np.zeros(len(stations))))
        self.speed = np.concatenate((self.speed, np.ones(len(stations))))
        return slice(first, first + len(stations))

    def leave(self, where: slice) -> None:
        self._idle[where] = 0.0
        self._tuples[where] = 0.0
        self._cpu[where] = 0.0
        self._of_a_thread[where] = 0.0

    def has(self, where: slice, tuples: Ints | Sequence[int]) -> None:
        """Record how many tuples stations had in this window, waiting at its start or arriving."""
        self._tuples[where] += np.asarray(tuples, dtype=float)

    def next_window(self, length: int) -> None:
        """Set the speeds that follow from the demand in a window of `length` nanoseconds."""
        need = self._cpu * self._tuples * (NANOSECONDS / length)
        slot_cores, node_cores = self._left()
        speed = filled(self._slot, need, self._peak, slot_cores)[self._slot]
        node = self._node_of[self._slot]
        self.speed = speed * filled(node, need, speed * self._peak, node_cores)[node]
        self._tuples[:] = 0.0

    def next_window_of(self, busy: Floats) -> None:
        """The speeds that follow from how many threads of every station were busy on average."""
        wanted = np.where(np.isfinite(self._of_a_thread), self._of_a_thread, 0.0) * busy
        slot_cores, node_cores = self._left()
        speed = _alike(self._slot, wanted, slot_cores)[self._slot]
        node = self._node_of[self._slot]
        self.speed = speed * _alike(node, wanted * speed, node_cores)[node]
        self._tuples[:] = 0.0

    def _left(self) -> tuple[Floats, Floats]:
        """Return the cores of slots and of nodes without their idle use."""
        idle = np.bincount(self._slot, weights=self._idle, minlength=len(self._slot_cores))
        node_idle = np.bincount(self._node_of, weights=idle, minlength=len(self._node_cores))
        return np.maximum(self._slot_cores - idle, 0.0), np.maximum(self._node_cores - node_idle, 0.0)


def _alike(groups: Ints, wanted: Floats, cores: Floats) -> Floats:
    """Return the speed of every group: its cores over the demand there, at most 1."""
    sums = np.bincount(groups, weights=wanted, minlength=len(cores))
    return np.clip(np.divide(cores, sums, out=np.ones(len(cores)), where=sums > cores), _SLOWEST, 1.0)


def slowed(service: Ints, speed: Floats) -> Ints:
    """Nanoseconds of a tuple at a speed, rounded."""
    if bool((speed >= 1).all()):
        return service
    return np.rint(service / speed).astype(np.int64)


def peak_cores(station: Station) -> float:
    """Return the cores of all its threads at full speed; infinite if tuples take no time."""
    return station.rate * station.cpu_seconds if station.cpu_seconds > 0 else 0.0


def node_cores(scenario: Scenario, name: str) -> float:
    node = scenario.cluster.node(name)
    return node.capacity[CPU] / CPU_POINTS_PER_SLOT if CPU in node.capacity else float(node.slots)


def may_be_short(scenario: Scenario, layouts: Sequence[StageLayout]) -> bool:
    """Whether a slot or node can ever be asked for more CPU than it has.

    If sources emit evenly and there are no events, no station ever gets more than its share of the highest rate, and
    the smaller of the two counts: `min(share, rate) * cpu`. Otherwise the peak of every station does.
    """
    if not scenario.contention:
        return False
    even = not (scenario.outages or scenario.switches or scenario.batch_interval_ms)
    slots: dict[Slot, float] = {}
    for pipeline, stations_of in zip(scenario.pipelines, layouts, strict=True):
        bound = even and pipeline.arrivals is Arrivals.CONSTANT and pipeline.replay_seconds is None
        shares = stations_of.station_rates(pipeline.load.peak_rate) if bound else None
        for position, stage in enumerate(stations_of.stages):
            for number, station in enumerate(stage.stations):
                rate = station.rate if shares is None else min(station.rate, float(shares[position][number]))
                cores = (rate * station.cpu_seconds if station.cpu_seconds > 0 else 0.0) + station.idle_cpu
                slots[station.slot] = slots.get(station.slot, 0.0) + cores
    for switch in scenario.switches:
        for station in switch.stations:
            slots[station.slot] = slots.get(station.slot, 0.0) + peak_cores(station) + station.idle_cpu
    most = np.inf if scenario.slot_cores is None else scenario.slot_cores
    if any(cores > most * (1 + TOLERANCE) for cores in slots.values()):
        return True
    nodes: dict[str, float] = {}
    for slot, cores in slots.items():
        nodes[slot.node] = nodes.get(slot.node, 0.0) + cores
    return any(cores > node_cores(scenario, name) * (1 + TOLERANCE) for name, cores in nodes.items())
