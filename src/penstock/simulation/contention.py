"""How fast every slot works, window by window.

In a window a station wants the CPU of the tuples it has, but of no more than its threads can do at full speed:
`cpu_seconds * min(waiting + arriving, threads * window / service)`. With d the CPU a slot's stations want (and what they
take idle) over the length of the window, the slot works at `min(1, cores / d)`; where the slots of a node then still
want more than the node's cores, all of them slow down by the same factor. What a window wanted slows the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT
from penstock.simulation.system import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.simulation.system import Scenario, Station

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


class Processors:
    """The speed of every slot that some station uses."""

    def __init__(self, scenario: Scenario, stations: Iterable[Station]) -> None:
        """`stations` of all pipelines, before and after switches."""
        every = list(stations)
        slots = list(dict.fromkeys(station.slot for station in every))
        self._index: dict[Slot, int] = {slot: position for position, slot in enumerate(slots)}
        names = list(dict.fromkeys(slot.node for slot in slots))
        self._node = np.array(_places(slots, names), dtype=np.int64)
        self._cores = np.array([_cores(scenario, name) for name in names])
        self._slot_cores = np.inf if scenario.slot_cores is None else scenario.slot_cores
        self.speed: Floats = np.ones(len(slots))
        self._wanted: Floats = np.zeros(len(slots))
        self.idle: Floats = np.zeros(len(slots))
        self.active = scenario.contention and self._may_be_short(every)

    def places(self, stations: Sequence[Station]) -> Ints:
        """Positions of stations' slots in `speed`."""
        return np.array([self._index[station.slot] for station in stations], dtype=np.int64)

    def hold(self, places: Ints, cores: Floats) -> None:
        """Stations come (or go, with cores below 0) that take so much whatever they do."""
        np.add.at(self.idle, places, cores)

    def want(self, places: Ints, cpu_seconds: Floats) -> None:
        np.add.at(self._wanted, places, cpu_seconds)

    def next_window(self, length: int) -> None:
        """The speeds that follow from what was wanted in a window of so many nanoseconds."""
        demand = self._wanted * (NANOSECONDS / length) + self.idle
        with np.errstate(divide="ignore"):
            speed = np.minimum(1.0, self._slot_cores / demand)
        used = np.bincount(self._node, weights=demand * speed, minlength=len(self._cores))
        with np.errstate(divide="ignore"):
            speed *= np.minimum(1.0, self._cores / used)[self._node]
        self.speed = np.where(speed > 1 - 1e-9, 1.0, speed)
        self._wanted[:] = 0.0

    def _may_be_short(self, stations: Sequence[Station]) -> bool:
        """Whether all stations at their peak would want more than there is."""
        most = np.zeros(len(self._index))
        for station in stations:
            peak = station.rate * station.cpu_seconds if station.cpu_seconds > 0 else 0.0
            most[self._index[station.slot]] += peak + station.idle_cpu
        used = np.bincount(self._node, weights=np.minimum(most, self._slot_cores), minlength=len(self._cores))
        return bool((most > self._slot_cores * (1 + 1e-9)).any() or (used > self._cores * (1 + 1e-9)).any())


def slowed(service: Ints, speed: Floats) -> Ints:
    """Nanoseconds of a tuple at a speed, rounded."""
    if bool((speed >= 1).all()):
        return service
    return np.rint(service / speed).astype(np.int64)


def wanted(available: Ints, threads: Ints, service: Ints, cpu_seconds: Floats, length: int) -> Floats:
    """Seconds of cores that stations want in a window: `cpu * min(available, threads * window / service)`."""
    with np.errstate(divide="ignore"):
        most = np.where(service > 0, threads * length / np.maximum(service, 1), np.inf)
    return cpu_seconds * np.minimum(available, most)


def _places(slots: Sequence[Slot], names: Sequence[str]) -> list[int]:
    position = {name: place for place, name in enumerate(names)}
    return [position[slot.node] for slot in slots]


def _cores(scenario: Scenario, name: str) -> float:
    node = scenario.cluster.node(name)
    return node.capacity[CPU] / CPU_POINTS_PER_SLOT if CPU in node.capacity else float(node.slots)
