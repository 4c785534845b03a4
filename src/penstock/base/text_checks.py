"""Things by name: a wrong name is an error that lists the right ones."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from penstock.base.errors import BadInputError, nearest

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
    """Return whether `int(text)` is a number from 0 to 10**18. `str.isdigit` also takes digits that `int` does not
    read, of other scripts, and as many as there are."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
