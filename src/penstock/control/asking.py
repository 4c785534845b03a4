"""Who asks: every request of a person is kept with a name, beside what it changed."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from penstock.control.core.outcome import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.control.core.incoming import Request

asked_by: ContextVar[str] = ContextVar("asked_by", default="")
"""The name of whoever is being answered; empty where nobody said, and then nothing is kept."""

LONGEST_NAME = 80
SUBJECT_FIELDS = ("pipeline", "name")
LEFT_OUT = frozenset({*SUBJECT_FIELDS, "definition", "fingerprint", "capacity", "since", "state", "id"})
"""Of what was asked: what stands elsewhere, or is too long to read."""


def request_event(request: Request, by: str, now: float) -> Event:
    """`request` in words, for the log of events."""
    what = ", ".join(f"{name} {value}" for name, value in _fields_given(request))
    words = f"{_verb(request)}{': ' + what if what else ''}"
    return Event(now, _subject(request), "request", None, None, f"{words}; by {by}")


def _verb(request: Request) -> str:
    """`SwitchTrigger` is "switch trigger"."""
    name = type(request).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _subject(request: Request) -> str:
    names = {field.name for field in fields(request)}
    for name in SUBJECT_FIELDS:
        if name in names:
            return str(getattr(request, name))
    for name in ("submission", "node"):
        if name in names:
            return str(getattr(request, name).name)
    return "controller"


def _fields_given(value: Any) -> Iterator[tuple[str, str]]:
    """Every field that was given and differs from what it is without being given."""
    for field in fields(value):
        given = getattr(value, field.name)
        if is_dataclass(given):
            yield from _fields_given(given)
        elif given is not None and given != field.default and field.name not in LEFT_OUT:
            yield field.name.replace("_", " "), f"{given:g}" if isinstance(given, float) else str(given)
