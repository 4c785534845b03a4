"""A clock that moves only when a test moves it."""

from __future__ import annotations


class ManualClock:
    """Stands in wherever a clock is injected. Set `time`, or call `advance`."""

    def __init__(self, now: float = 0.0) -> None:
        self.time = now

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        self.time += seconds
