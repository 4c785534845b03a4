"""Level and spread of a load, from readings that come at any time.

    level_n  = level + (1 - e^(-dt/look_back)) * (reading - level)
    spread_n = spread + (1 - e^(-dt/SPREAD_SECONDS)) * (|reading - level| / level - spread)

`level` forgets in the look-back time, `spread` (the mean deviation, as a part of the level) in half an hour. A
reading far outside the spread, and the next one too, is no noise: the level starts anew from it. A second, slow level
lags behind one that rises or falls evenly by slope * SLOW_SECONDS, which gives the slope:

    slope = (level - slow) / (SLOW_SECONDS - look_back)
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

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
