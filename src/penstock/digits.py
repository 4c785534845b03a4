"""Whole numbers in names and texts of others."""

from __future__ import annotations

MAX_DIGITS = 18
"""Below 2**63, and below what `int` refuses to read."""


def is_whole(text: str) -> bool:
    """Return whether `int(text)` is a number from 0 to 10**18. `str.isdigit` also takes digits that `int` does not
    read, of other scripts, and as many as there are."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
