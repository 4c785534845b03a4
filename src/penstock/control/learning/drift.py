"""When what runs has left what was profiled: the code, the data or the machine is not what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.control.learning.learned import Learned

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
