"""How fast a core is just now: a small piece of work of fixed size, timed over and over amid the operators' own.

The same code may need twice the CPU a minute later: cores of a virtual machine share their hardware with those of
others, clocks rise and fall. None of that shows as load. So a thread that works through tuples does a piece now and
then, ten times a second in a slot, and notes how much CPU it took. It must be that very thread: another one may run on
another core, which tells little. What the host of a virtual machine takes is in nobody's CPU seconds, and slows the
pace as well (`process_tree.share_given`). Models and runs both say at what pace they were measured, and one can be
told for the pace of the other (`penstock.modelling.cpu_speed`).
"""

from __future__ import annotations

import threading
from statistics import median

from penstock.clock import Stopwatch, thread_cpu_seconds

EVERY_SECONDS = 0.1
_ITERATIONS = 4000
"""About a third of a millisecond."""


class PaceProbe:
    """Of one slot; its threads look in between two tuples."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._since = Stopwatch()
        self._one_at_a_time = threading.Lock()

    def look(self) -> None:
        """Does a piece, if the last one is long ago."""
        if self._since.seconds() < EVERY_SECONDS or not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            began = thread_cpu_seconds()
            _piece()
            self._seconds.append(thread_cpu_seconds() - began)
            self._since = Stopwatch()
        finally:
            self._one_at_a_time.release()

    def take(self) -> tuple[int, float]:
        """Pieces done since this was last asked, and the seconds of CPU they took, each as many as the median: a single
        one that took far longer, as happens where threads contend, says nothing about the core."""
        seconds, self._seconds = self._seconds, []
        return len(seconds), len(seconds) * median(seconds) if seconds else 0.0


def _piece() -> int:
    total = 0
    for number in range(_ITERATIONS):
        total += number * number % 7
    return total
