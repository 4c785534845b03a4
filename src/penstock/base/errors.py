"""Errors as values: input that cannot be read, and requests that cannot be met."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_NAME = 200
MOST_COMPARED = 1000
MOST_LISTED = 60


def printable(text: str, keep: str = "") -> str:
    """`text` with escapes (\\x1b, \\u202e) for all characters that show nothing but do something, but for `keep`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else letter.encode("unicode_escape").decode()
        for letter in text
    )


class PenstockError(Exception):
    """Everything Penstock raises on purpose."""


class ImpossibleMoveError(PenstockError):
    """A move that a table of states does not have: an error of the program. The message ends with the moves before."""


class BadInputError(PenstockError):
    """A file, field or argument that is wrong. The command line prints it in one line and exits with 2."""


class ClusterError(PenstockError):
    """A running cluster that is not there, is there already, or does not start. The command line exits with 1."""


class RunError(PenstockError):
    """A run cannot carry out a request in its present state. The command line exits with 1."""


class RunFailedError(PenstockError):
    """A run that was stopped: by Spark, or by the pipeline's own code. The command line exits with 1."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A missing amount: `operator` needed `needed` of `resource`; the best offer was `offered`, at `closest`."""

    operator: str
    resource: str
    needed: float
    offered: float
    closest: str
    kind: str = "operator"
    """Kind of thing that `operator` names: an operator, or a whole "pipeline"."""

    def __str__(self) -> str:
        return (
            f"{self.kind} '{self.operator}' needs {self.needed:g} {self.resource}, "
            f"closest is {self.closest} with {self.offered:g} ({self.needed - self.offered:g} missing)"
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A policy's rejection: its author, the reason, and whether more slots of the same kind could change the answer."""

    by: str
    shortages: tuple[Shortage, ...]
    more_slots_may_help: bool = True
    slots_missing: int = 1
    """Min number of slots that could help, if the policy knows it."""
    notes: tuple[str, ...] = ()
    """Sentences for people: attempts, bounds, constraints that block."""

    def __str__(self) -> str:
        return f"{self.by}: " + "; ".join((*map(str, self.shortages), *self.notes))


class RefusedError(PenstockError):
    """A request that was understood but cannot be met. The command line prints why and exits with 1."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class InterruptedWorkError(PenstockError):
    """Work ended by Ctrl-C, with the results that were kept. The command line prints it and exits with 130."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name: a suggestion if one is close, and the known names.

    The time to compare grows with both lengths: texts longer than any name, and lists that are too long, get no
    suggestion.
    """
    names = list(dict.fromkeys(known))
    comparable = len(name) <= LONGEST_NAME and len(names) <= MOST_COMPARED
    close = get_close_matches(name, names, n=1, cutoff=0.6) if comparable else []
    hint = f"did you mean '{close[0]}'? " if close else ""
    more = f", and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"{hint}known: {', '.join(names[:MOST_LISTED]) + more if names else 'none'}"
