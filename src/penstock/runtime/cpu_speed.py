"""The present speed of a core: a small piece of work of fixed size, timed again and again between calls of operators.

The same code may need twice the CPU a minute later: cores of a virtual machine share their hardware with those of
others, clocks rise and fall. None of that shows as load. So a thread that processes rows does a piece now and then, ten
times a second in a slot, and notes how much CPU it took. It must be that very thread: another one may run on another
core. CPU that the host of a virtual machine takes away is in no CPU seconds, and slows the core as well
(`process_tree.share_given`). Models and runs both record the CPU speed they were measured at, and one can be
adjusted to the speed of the other (`penstock.modelling.model`).
"""

from __future__ import annotations

from statistics import median

from penstock.base.clock import Stopwatch, thread_cpu_seconds

EVERY_SECONDS = 0.1
_ITERATIONS = 4000
"""About a third of a millisecond."""


class SpeedProbe:
    """The probe of one slot; its threads look between two pieces. If two look at once, both do a piece."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._since = Stopwatch()

    def look(self) -> None:
        """Do a piece, if the last one is long ago."""
        if self._since.seconds() < EVERY_SECONDS:
            return
        self._since = Stopwatch()
        began = thread_cpu_seconds()
        _piece()
        self._seconds.append(thread_cpu_seconds() - began)

    def take(self) -> tuple[int, float]:
        """Return the pieces done since the last call, and the seconds of CPU they took, each counted as the median: one
        that took far longer, as happens if threads contend, is no measure of the core."""
        seconds, self._seconds = self._seconds, []
        return len(seconds), len(seconds) * median(seconds) if seconds else 0.0


def _piece() -> int:
    total = 0
    for number in range(_ITERATIONS):
        total += number * number % 7
    return total
