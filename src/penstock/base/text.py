"""Read names and whole numbers from text, and write numbers as people read them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from penstock.base.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

E = TypeVar("E", bound=StrEnum)


def one_of(choices: type[E], given: E | str, what: str) -> E:
    """The member of `choices` that is `given`, or called so; `what` names the choice in the error."""
    try:
        return choices(given)
    except ValueError as error:
        raise BadInputError(f"unknown {what} '{given}'; {nearest(str(given), choices)}") from error


# Whole numbers in texts from outside.


MAX_DIGITS = 18
"""Below 2**63, and below what `int` refuses to read."""


def is_whole(text: str) -> bool:
    """Return whether `int(text)` is a number from 0 to 10**18. `str.isdigit` also accepts digits of other scripts that
    `int` does not read, and any number of them."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


# Numbers for people.


def figure(value: float | None, digits: int = 4) -> str:
    """Return a number as people read it: four digits, thousands grouped; a dash if there is none or no bound."""
    if value is None or value in (float("inf"), float("-inf")):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def latencies(percentiles: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {figure(value)} ms" for name, value in percentiles.items())
