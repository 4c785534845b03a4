"""When machines are free: at the end of their queue only (as published), or in the gaps before it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE, exceeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

GAPS = 4
"""The longest gaps of a machine that are remembered."""


class Timeline(Protocol):
    """What machines are booked for. Times are seconds."""

    def start(self, ready: NDArray[np.float64], duration: NDArray[np.float64]) -> NDArray[np.float64]:
        """For every machine, the earliest time from `ready` on at which it is free for `duration`."""

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
