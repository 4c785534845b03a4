"""When two amounts are the same. 0.1 + 0.2 is not 0.3 to a computer, and such last digits must not buy a machine.

One tolerance for every decision. A limit is kept, and a count is whole, within `TOLERANCE`. Of several candidates the
first of those that tie is taken: their values are compared by `tie_key`, which is equal if they differ by rounding
alone. Keys are on a grid of powers of two, so that whole numbers, halves and quarters are in the middle of a cell, and
no number of a few decimal digits is near the edge of one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = 1e-9
"""The share of an amount by which sums and products of floats may be off; arithmetic itself loses far less."""

CELL_BITS = 30
"""2 ** -30 is the power of two nearest to the tolerance."""


SETTLED_BITS = CELL_BITS + 2

WHOLE = 2.0**53
"""Floats beyond are whole numbers already."""


def covers(offered: float, needed: float, scale: float | None = None) -> bool:
    """Return `offered >= needed`, an exact fit included. `scale` is the size of the amounts added or subtracted to get
    these two; default: `needed`."""
    return offered >= needed - TOLERANCE * (abs(needed) if scale is None else scale)


def exceeds(amount: float, limit: float, scale: float | None = None) -> bool:
    """`amount > limit` by more than rounding."""
    return not covers(limit, amount, scale)


def whole_down(count: float) -> int:
    """`floor(count)`, or the whole number that rounding kept the count from."""
    nearest = round(count)
    return nearest if _is_nearly(count, nearest) else math.floor(count)


def whole_up(count: float) -> int:
    """`ceil(count)`, or the whole number that rounding pushed the count above."""
    nearest = round(count)
    return nearest if _is_nearly(count, nearest) else math.ceil(count)


def _is_nearly(count: float, nearest: int) -> bool:
    return abs(count - nearest) <= TOLERANCE * max(1.0, abs(count))


def cell(scale: float) -> float:
    """Return the width within which two values tie: the power of two next above `scale * TOLERANCE`."""
    return math.ldexp(1.0, math.frexp(scale)[1] - CELL_BITS)


def tie_key(value: float, scale: float) -> float:
    """A number to compare instead of `value`. `scale` is the largest amount that went into the values compared."""
    return key_in(value, cell(scale))


def key_in(value: float, width: float) -> float:
    """Return `tie_key` for a known cell, for frequent callers."""
    if width <= 0:
        return value
    cells = value / width
    return float(round(cells)) if abs(cells) < WHOLE else cells


def tie_keys(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """`tie_key` of each."""
    width = cell(scale)
    if width <= 0:
        return values
    with np.errstate(over="ignore"):  # too many cells become infinitely many, which still compare
        return np.rint(values / width)


def ratio_key(value: float) -> float:
    """`tie_key` where values are products and quotients, which are off by a share of themselves, however small."""
    digits, power = math.frexp(value)
    return math.ldexp(round(digits * 2.0**CELL_BITS), power - CELL_BITS) if math.isfinite(value) else value


def settled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Amounts without the digits that only noise reaches, for a search too intricate to look at every comparison.

    What is left is within a quarter of the tolerance, so what fitted exactly still does.
    """
    digits, power = np.frexp(values)
    kept: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(digits, SETTLED_BITS)), power - SETTLED_BITS)
    return kept


def first_smallest(values: NDArray[np.float64], scale: float) -> int:
    """The position of the smallest value, the first of those that tie."""
    return int(tie_keys(values, scale).argmin())


def first_largest(values: NDArray[np.float64], scale: float) -> int:
    """The position of the largest value, the first of those that tie."""
    return int(tie_keys(values, scale).argmax())
