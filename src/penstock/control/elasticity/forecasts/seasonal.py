"""As it was at this time of the day, and of the week once a week is known.

Means by ten minutes of the day, smoothed from day to day, one row for working days and one for weekends. What is
expected is scaled by how the load stands to the pattern now, so that a busier day is expected to stay busier:

    expected(t) = pattern(t) * level / pattern(now), the factor between half and twice
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from penstock.control.elasticity.forecasts.contract import BUCKET_SECONDS

DAY = 86_400.0
PER_DAY = int(DAY / BUCKET_SECONDS)
KEPT = 0.5
"""Of what was known, when a new day is mixed in."""
MOST_SCALED = 2.0
UNKNOWN = -1.0
THURSDAY = 3
"""The day of the week of the epoch, Monday being 0."""


@dataclass(frozen=True, slots=True)
class Seasonal:
    working: tuple[float, ...] = (UNKNOWN,) * PER_DAY
    weekend: tuple[float, ...] = (UNKNOWN,) * PER_DAY

    def after(self, start: float, mean_rate: float) -> Self:
        bucket = _bucket(start)
        on_weekend = _is_weekend(start)
        row = self.weekend if on_weekend else self.working
        known = row[bucket]
        value = mean_rate if known == UNKNOWN else KEPT * known + (1 - KEPT) * mean_rate
        changed = (*row[:bucket], value, *row[bucket + 1 :])
        return replace(self, weekend=changed) if on_weekend else replace(self, working=changed)

    def highest(self, now: float, ahead: float, level: float) -> float | None:
        here = self._pattern(now)
        if here is None or here <= 0:
            return None
        factor = min(MOST_SCALED, max(1 / MOST_SCALED, level / here))
        highest: float | None = None
        for number in range(1, int(ahead // BUCKET_SECONDS) + 1):
            expected = self._pattern(now + number * BUCKET_SECONDS)
            if expected is not None and (highest is None or expected > highest):
                highest = expected
        return None if highest is None else highest * factor

    def _pattern(self, at: float) -> float | None:
        """Of that kind of day, or of the other kind where that is not known yet."""
        bucket = _bucket(at)
        own, other = (self.weekend, self.working) if _is_weekend(at) else (self.working, self.weekend)
        if own[bucket] != UNKNOWN:
            return own[bucket]
        return None if other[bucket] == UNKNOWN else other[bucket]


def _bucket(at: float) -> int:
    return int(at % DAY // BUCKET_SECONDS)


def _is_weekend(at: float) -> bool:
    return (int(at // DAY) + THURSDAY) % 7 >= 5
