"""Verdicts: pure arithmetic on a published value and ours."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from penstock.plugins import TOLERANCE
from penstock_lab.contract import Agreement, Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_lab.published_values import Value


class Good(Enum):
    """Which way is good; NEITHER if a difference is just a difference."""

    LOW = "low"
    HIGH = "high"
    NEITHER = "neither"


class End(Enum):
    """The end of a published range that a least or a most of ours is compared with."""

    LEAST = "least"
    MOST = "most"


def judge(
    published: Value, ours: float, *, within: float = 0.1, good: Good = Good.NEITHER, end: End | None = None
) -> Agreement:
    """Agrees: |ours - value| <= within * |value|, or inside the range widened by that share of its ends.

    With `end` that end of a range is the value. Outside, ours is worse if the other way is good, and else differs: a
    published algorithm that is run again in a simulation is not better than itself.
    """
    low = published.value if published.value is not None else published.low
    high = published.value if published.value is not None else published.high
    if end is End.LEAST and low is not None:
        high = low
    elif end is End.MOST and high is not None:
        low = high
    if low is None and high is None:
        return Agreement.NOT_COMPARABLE
    below = low is not None and ours < low - within * abs(low) - TOLERANCE
    above = high is not None and ours > high + within * abs(high) + TOLERANCE
    if not below and not above:
        return Agreement.AGREES
    if good is Good.NEITHER or below == (good is Good.LOW):
        return Agreement.DIFFERS
    return Agreement.WORSE


def compared(
    where: str,
    what: str,
    published: Value,
    ours: float,
    *,
    within: float = 0.1,
    good: Good = Good.NEITHER,
    end: End | None = None,
    why: str = "",
    note: str = "",
) -> Line:
    """Make a line for a number. `why` is kept if it does not agree; if it agrees only within a tolerance, that is said.

    `note` is said in any case: what must be known to believe the verdict.
    """
    verdict = judge(published, ours, within=within, good=good, end=end)
    exact = judge(published, ours, within=0.0, end=end) is Agreement.AGREES
    if verdict is Agreement.AGREES:
        why = "" if exact else f"within {100 * within:g} %"
    reason = "; ".join(filter(None, (why, note)))
    line = Line(where, what, str(published), shown(ours, published.unit), verdict, reason)
    return no_evidence(line, published.not_evidence) if published.not_evidence else line


def no_evidence(line: Line, why: str) -> Line:
    """Return the line as not comparable if it agrees but could not have failed; what differs stays."""
    if line.verdict is not Agreement.AGREES:
        return line
    return replace(line, verdict=Agreement.NOT_COMPARABLE, why=why)


def claimed(where: str, what: str, published: Value, *, holds: bool, ours: str, why: str = "") -> Line:
    """Make a line for a claim in words, which holds here or does not."""
    verdict = Agreement.AGREES if holds else Agreement.DIFFERS
    line = Line(where, what, published.claim or str(published), ours, verdict, "" if holds else why)
    return no_evidence(line, published.not_evidence) if published.not_evidence else line


def not_comparable(where: str, what: str, published: Value, ours: str, why: str) -> Line:
    return Line(where, what, str(published), ours, Agreement.NOT_COMPARABLE, why)


def shown(value: float, unit: str = "") -> str:
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{number} {unit}" if unit else number


def r_squared(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The square of Pearson's coefficient: cov(x, y)^2 / (var(x) var(y)); None where one does not vary."""
    count = len(x)
    if count < 2 or count != len(y):
        return None
    mean_x, mean_y = math.fsum(x) / count, math.fsum(y) / count
    across = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    var_x = math.fsum((a - mean_x) ** 2 for a in x)
    var_y = math.fsum((b - mean_y) ** 2 for b in y)
    return across * across / (var_x * var_y) if var_x > 0 and var_y > 0 else None


def r_squared_of_identity(x: Sequence[float], y: Sequence[float]) -> float | None:
    """How much of x's variance y explains taken as it is: 1 - sum (x - y)^2 / sum (x - mean x)^2; may be negative."""
    count = len(x)
    if count < 2 or count != len(y):
        return None
    mean = math.fsum(x) / count
    spread = math.fsum((a - mean) ** 2 for a in x)
    left = math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    return 1 - left / spread if spread > 0 else None
