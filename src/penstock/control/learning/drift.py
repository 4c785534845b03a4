"""When what runs has left what was profiled: the code, the data or the machine is not what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.control.learning.learned import Learned

LEAST_DRIFT = 0.2
"""Part of the profiled figure: closer than this a model is as good as models are."""
SPREADS = 3.0


def drifted(learned: Learned) -> str | None:
    """|value - 1| > max(LEAST_DRIFT, SPREADS * spread), said in words; None while it is as profiled, or not known."""
    away = abs(learned.value - 1)
    if not learned.counts or away <= max(LEAST_DRIFT, SPREADS * learned.spread):
        return None
    word = "faster" if learned.value > 1 else "slower"
    return (
        f"units are {away:.0%} {word} than profiled (spread {learned.spread:.0%}, {learned.readings} readings): "
        "the code, the data or the machine changed; profile it again"
    )
