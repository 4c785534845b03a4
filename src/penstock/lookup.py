"""Things by name: a wrong name is an error that lists the right ones."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from penstock.errors import BadInputError, nearest

E = TypeVar("E", bound=StrEnum)


def one_of(choices: type[E], given: E | str, what: str) -> E:
    """The member of `choices` that is `given`, or called so; `what` names the choice in the error."""
    try:
        return choices(given)
    except ValueError as error:
        raise BadInputError(f"unknown {what} '{given}'; {nearest(str(given), choices)}") from error
