"""Level and spread of a load, from readings that come at any time.

    level_n  = level + (1 - e^(-dt/look_back)) * (reading - level)
    spread_n = spread + (1 - e^(-dt/SPREAD_SECONDS)) * (|reading - level| / level - spread)

`level` forgets in the look-back time, `spread` (the mean deviation, as a part of the level) in half an hour. A
reading far outside the spread, and the next one too, is no noise: the level starts anew from it. A second, slow level
lags behind one that rises or falls evenly by slope * SLOW_SECONDS, which gives the slope:

    slope = (level - slow) / (SLOW_SECONDS - look_back)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import NamedTuple, Self

from penstock.control.contracts import BUCKET_SECONDS

SPREAD_SECONDS = 1800.0
SLOW_SECONDS = 1200.0
FAR = 6.0
"""Mean deviations from the level at which a reading is no noise."""
RISES = 2.0
"""Mean deviations of a reading by which the level is above the slow one where the load rises."""
LEAST_SPREAD = 0.005
FIRST_SPREAD = 0.05


class Smoothed(NamedTuple):
    level: float
    spread: float
    last: float
    """The reading itself."""
    slow: float
    far: int = 0
    """Readings in a row on the same side, far from the level: positive above, negative below."""
    jumped: bool = False
    """The last reading started the level anew."""


def first(reading: float) -> Smoothed:
    return Smoothed(reading, FIRST_SPREAD, reading, reading)


def after(smoothed: Smoothed, reading: float, seconds: float, look_back: float) -> Smoothed:
    level = smoothed.level
    if level <= 0:
        return Smoothed(reading, smoothed.spread, reading, reading)
    deviation = (reading - level) / level
    size = abs(deviation)
    if size > FAR * max(smoothed.spread, LEAST_SPREAD):
        side = 1 if deviation > 0 else -1
        far = smoothed.far + side if smoothed.far * side > 0 else side
        if abs(far) >= 2:
            anew = (reading + smoothed.last) / 2
            return Smoothed(anew, smoothed.spread, reading, anew, 0, jumped=True)
        return Smoothed(level, smoothed.spread, reading, smoothed.slow, far)
    level += (1 - exp(-seconds / look_back)) * (reading - level)
    spread = smoothed.spread + (1 - exp(-seconds / SPREAD_SECONDS)) * (size - smoothed.spread)
    slow = smoothed.slow + (1 - exp(-seconds / SLOW_SECONDS)) * (reading - smoothed.slow)
    return Smoothed(level, spread, reading, slow)


def slope(smoothed: Smoothed, look_back: float) -> float:
    """Tuples/s by which the level rises in a second."""
    return (smoothed.level - smoothed.slow) / max(1.0, SLOW_SECONDS - look_back)


def heading(smoothed: Smoothed, rate: float, look_back: float, ahead: float) -> float:
    """Where a load that rises is after `ahead` seconds; `rate` where its rise is no more than noise."""
    if smoothed.level - smoothed.slow <= RISES * smoothed.spread * smoothed.level:
        return rate
    return rate + slope(smoothed, look_back) * ahead


# Forecast from the same time of the day, and of the week once a week is known.
#
# Means by ten minutes of the day, smoothed from day to day, one row for working days and one for weekends. The forecast
# is scaled by the ratio of the load to the pattern now, so that a busier day is expected to stay busier:
#
# expected(t) = pattern(t) * level / pattern(now), the factor between half and twice


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


@dataclass(frozen=True, slots=True)
class LastValue:
    """Expect the load to stay as it is."""

    def after(self, start: float, mean_rate: float) -> Self:
        return self

    def highest(self, now: float, ahead: float, level: float) -> float | None:
        return level


@dataclass(frozen=True, slots=True)
class NoForecast:
    """Expect nothing: sizes follow the present load only."""

    def after(self, start: float, mean_rate: float) -> Self:
        return self

    def highest(self, now: float, ahead: float, level: float) -> float | None:
        return None
