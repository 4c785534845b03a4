"""The times a controller lives in. All go forward only, whatever is done to the machine's clock."""

from __future__ import annotations

from typing import Protocol

from penstock.base import clock


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""


class SteadyClock:
    """The machine's clock as it was at the start, and a stopwatch since; `speed` times as fast, and never before a time
    that was already."""

    def __init__(self, speed: float = 1.0, not_before: float = 0.0) -> None:
        self._start = max(clock.now(), not_before)
        self._speed = speed
        self._watch = clock.Stopwatch()

    def now(self) -> float:
        return self._start + self._speed * self._watch.seconds()


class WallClock:
    """What other machines agree on: for leases."""

    def now(self) -> float:
        return clock.now()
