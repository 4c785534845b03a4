"""What a forecast is: a value that learns from the load as it goes by, and says the highest it expects soon.

`after` is called with the smoothed load once per `BUCKET_SECONDS`, in order of time; it returns the forecast as it is
then (nothing is changed in place: a forecast is part of what is remembered). `highest` answers None where it knows
nothing.
"""

from __future__ import annotations

from typing import Protocol, Self

BUCKET_SECONDS = 600.0


class Forecast(Protocol):
    def after(self, start: float, mean_rate: float) -> Self:
        """From `start` (seconds since the epoch) for a bucket's time it was `mean_rate`."""

    def highest(self, now: float, ahead: float, level: float) -> float | None:
        """The highest rate expected within `ahead` seconds, where it is `level` now."""
