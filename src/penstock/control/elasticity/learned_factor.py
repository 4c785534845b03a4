"""One figure that is learned from what runs, as a factor of what the model says: 1 is just as profiled.

    value_n  = value + g * (reading - value)            g = max(1 / n, 1 - e^(-dt / MEMORY_SECONDS))
    spread_n = spread + g * (|reading - value| - spread)

The first readings are a plain mean, later ones forget in ten minutes.
"""

from __future__ import annotations

from math import exp, isfinite
from typing import NamedTuple

MEMORY_SECONDS = 600.0
FEWEST = 6
"""Readings before what is learned counts for more than what was profiled."""
MOST_FACTOR = 1e6
"""Nothing is so many times as fast as it was profiled, nor as slow: whoever reports that reports nonsense."""


class Learned(NamedTuple):
    value: float = 1.0
    spread: float = 0.0
    readings: int = 0
    since: float = 0.0
    at: float = 0.0

    @property
    def counts(self) -> bool:
        return self.readings >= FEWEST

    @property
    def factor(self) -> float:
        """What the model's answer is to be multiplied by."""
        return min(MOST_FACTOR, max(1 / MOST_FACTOR, self.value)) if self.counts else 1.0


UNKNOWN = Learned()


def after(learned: Learned, reading: float, seconds: float, now: float) -> Learned:
    """A reading that is no number, or not above 0, teaches nothing."""
    if not isfinite(reading) or reading <= 0:
        return learned
    count = learned.readings + 1
    gain = max(1 / count, 1 - exp(-seconds / MEMORY_SECONDS))
    value = learned.value + gain * (reading - learned.value)
    spread = learned.spread + gain * (abs(reading - value) - learned.spread)
    return Learned(value, spread, count, learned.since if learned.readings else now, now)


# Drift: code, data or machine differ from those profiled.


LEAST_DRIFT = 0.2
"""Part of the profiled figure: closer than this a model is as good as models are."""
SPREADS = 3.0
MINUTE = 60.0


def drifted(learned: Learned) -> str | None:
    """|value - 1| > max(LEAST_DRIFT, SPREADS * spread), said in words; None while it is as profiled, or not known."""
    away = _away(learned, 1.0)
    word = "faster" if learned.value > 1 else "slower"
    return None if away is None else f"units are {away:.0%} {word} than profiled{_said(learned, 1.0)}"


def drifted_from(learned: Learned | None, profiled: float | None, what: str) -> str | None:
    """The same of a figure in its own unit, such as the memory of a slot, where it is more than profiled: less does no
    harm. It is read every second: what is so for a minute counts."""
    if learned is None or not profiled or learned.at - learned.since < MINUTE or learned.value < profiled:
        return None
    away = _away(learned, profiled)
    return None if away is None else f"{what} is {away:.0%} more than profiled{_said(learned, profiled)}"


def _away(learned: Learned, profiled: float) -> float | None:
    """|value / profiled - 1| where that is more than noise."""
    away = abs(learned.value / profiled - 1)
    return None if not learned.counts or away <= max(LEAST_DRIFT, SPREADS * learned.spread / profiled) else away


def _said(learned: Learned, profiled: float) -> str:
    return (
        f" (spread {learned.spread / profiled:.0%}, {learned.readings} readings): "
        "the code, the data or the machine changed; profile it again"
    )
