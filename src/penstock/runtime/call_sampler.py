"""Measure one call in so many of an operator's code per row: P-Deployer's sampling of `execute`.

A call in `every` is timed by the clock and by the CPU its thread used. Nothing else is in these figures: the rest of a
process's CPU is what its rows cost to be moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.base.clock import Stopwatch, thread_cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable


class Samples(NamedTuple):
    """Measured rows, and the seconds and CPU seconds that the code spent on them."""

    rows: int
    seconds: float
    cpu_seconds: float


class CallSampler:
    """The sampled code of one operator in one thread. `call` takes the place of the code."""

    def __init__(self, function: Callable[..., Any], every: int) -> None:
        self._every = every
        self._rows = 0
        self._seconds = self._cpu_seconds = 0.0
        self.call = self._sampled(function)

    def _sampled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        every = self._every
        left = 1

        def call(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left:
                return function(*arguments)
            left = every
            watch, cpu = Stopwatch(), thread_cpu_seconds()
            made = function(*arguments)
            if isinstance(made, Iterator):
                made = [*made]  # a generator's code runs while its rows are taken
            self._cpu_seconds += thread_cpu_seconds() - cpu
            self._seconds += watch.seconds()
            self._rows += 1
            return made

        return call

    def take(self) -> Samples:
        """Return what was measured since the last call."""
        samples = Samples(self._rows, self._seconds, self._cpu_seconds)
        self._rows, self._seconds, self._cpu_seconds = 0, 0.0, 0.0
        return samples


CALIBRATION_CALLS = 2_000
CALIBRATIONS = 3


@cache
def sampling_cost(every: int) -> float:
    """Return the CPU seconds that sampling adds to a row, measured in this process: the smallest of a few trials."""
    return max(0.0, min(_added_per_call(every) for _ in range(CALIBRATIONS)))


def _added_per_call(every: int) -> float:
    def nothing(row: Any) -> Any:
        return row

    sampled = CallSampler(nothing, every).call
    taken = []
    for function in (nothing, sampled):
        began = thread_cpu_seconds()
        for _ in range(CALIBRATION_CALLS):
            function(None)
        taken.append(thread_cpu_seconds() - began)
    return (taken[1] - taken[0]) / CALIBRATION_CALLS
