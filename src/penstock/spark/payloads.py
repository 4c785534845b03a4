"""A tuple's payload as text, for a channel between bundles: JSON, in which what JSON lacks is tagged with its type.

Every payload is written on its own, so tuples of one file need have neither the same keys nor the same types. What
numpy has instead of Python's numbers and lists arrives as these, a set as a list, a missing time of pandas as None.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

_TAG = "\0type"
"""No field is named like this."""
_TAG_AS_TEXT = json.dumps(_TAG)

NOT_TEXT = (TypeError, ValueError, RecursionError)
"""What `to_text` raises for a payload it cannot write."""

_MICROSECOND = timedelta(microseconds=1)
_TYPES: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    # a datetime is a date: it comes first
    "datetime": (datetime, lambda value: value.isoformat(), datetime.fromisoformat),
    "date": (date, lambda value: value.isoformat(), date.fromisoformat),
    "time": (time, lambda value: value.isoformat(), time.fromisoformat),
    "timedelta": (timedelta, lambda value: str(value // _MICROSECOND), lambda text: int(text) * _MICROSECOND),
    "bytes": (bytes, lambda value: b64encode(value).decode("ascii"), b64decode),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
}


def to_text(payload: dict[str, Any]) -> str:
    return json.dumps(payload, default=_tagged)


def of_text(text: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(text, object_hook=_untagged) if _TAG_AS_TEXT in text else json.loads(text)
    return payload


def cannot_travel(payload: dict[str, Any]) -> str | None:
    """Why a payload cannot be written; None: it can."""
    try:
        to_text(payload)
    except NOT_TEXT as error:
        return str(error).splitlines()[0]
    return None


def _tagged(value: Any) -> Any:
    """What stands for a value JSON does not know."""
    for name, (kind, write, _) in _TYPES.items():
        if isinstance(value, kind):
            missing = value != value  # noqa: PLR0124 - pandas' NaT is a datetime that equals nothing
            return None if missing else {_TAG: name, "text": write(value)}
    if isinstance(value, bytearray | memoryview):
        return _tagged(bytes(value))
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot travel between slots")


def _untagged(found: dict[str, Any]) -> Any:
    if _TAG not in found:
        return found
    _, _, read = _TYPES[found[_TAG]]
    return read(found["text"])
