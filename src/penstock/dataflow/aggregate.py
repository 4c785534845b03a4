"""Keyed aggregation, declared: what to group by, over which stretch of time, and what to compute of every group.

    count:
      aggregate: {key: word, outputs: {count: count}, fields: "word string"}
      # or: {key: [user, country], outputs: {spent: sum(amount)}, fields: "user string, country string, amount double",
      #      window_seconds: 60, slide_seconds: 10, late_seconds: 5, emit: closed}

Spark's own stateful operators execute it. Only these functions are understood; nothing in a file is run as code.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Self

from pydantic import field_validator, model_validator

from penstock.base.files import Amount, Name, Positive, Spec

# Plain types in Spark's words, by one name each.


TYPES = (
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp",
    "timestamp_ntz", "binary",
)  # fmt: skip
_OTHER_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\(([0-9]{1,2})(?:,(-?[0-9]{1,2}))?\))?")
MOST_DIGITS = 38


def plain_type(word: str) -> str | None:
    """Its name, with the digits of a decimal (`decimal(10,2)`); None: it is none, or not a plain one."""
    small = re.sub(r"\s", "", word.lower())
    name = _OTHER_NAMES.get(small, small)
    if name in TYPES:
        return name
    match = _DECIMAL.fullmatch(small)
    if match is None:
        return None
    digits, behind = int(match[1] or 10), int(match[2] or 0)
    return f"decimal({digits},{behind})" if 0 < digits <= MOST_DIGITS and 0 <= behind <= digits else None


def decimal_digits(kind: str) -> tuple[int, int] | None:
    """All, and those behind the point; None: it is no decimal."""
    match = _DECIMAL.fullmatch(kind)
    return None if match is None else (int(match[1]), int(match[2]))


FUNCTIONS = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "first",
    "last",
    "stddev",
    "approx_count_distinct",
    "top_N",
    "ranking_N",
)
TOP = re.compile(r"^top_([1-9][0-9]{0,3})$")
"""`top_3(amount)`: the three greatest values, the greatest first; fewer while there are fewer."""
RANKING = re.compile(r"^ranking_([1-9][0-9]{0,3})$")
"""`ranking_3(count, word)`: the three words with the greatest counts, the greatest first and then by name, as JSON:
`[{"count": 7, "value": "the"}, ...]`. `ranking_3(first)` merges such rankings."""
RANKED_TYPES = ("tinyint", "smallint", "int", "bigint")
"""Types by which values are ranked."""
WINDOW_START, WINDOW_END = "window_start", "window_end"
RESERVED = (WINDOW_START, WINDOW_END)

_CALL = re.compile(
    r"^(?P<function>[a-z_]+[0-9]*)(?:\((?P<fields>[A-Za-z_][A-Za-z0-9_]*(?:, *[A-Za-z_][A-Za-z0-9_]*)*)\))?$"
)
_BETWEEN_FIELDS = re.compile(r",(?![^()]*\))")
_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class Emit(StrEnum):
    """When a group is sent on."""

    UPDATES = "updates"
    """Whenever a batch changed it, with its value so far."""
    CLOSED = "closed"
    """Once, when its window is over and nothing more is taken in for it."""


class WindowTime(StrEnum):
    """Which time windows are stretches of."""

    EVENT = "event"
    """A tuple's own: that of the field `time`, or when it was due."""
    PROCESSING = "processing"
    """When the aggregation gets it: nothing is late, and windows close by the clock."""


def top_count(function: str) -> int | None:
    """Return how many rows `top_N` keeps; None for another function."""
    call = TOP.match(function)
    return None if call is None else int(call[1])


def ranking_count(function: str) -> int | None:
    """Return how many values `ranking_N` keeps; None for another function."""
    call = RANKING.match(function)
    return None if call is None else int(call[1])


def _keeps_some(function: str) -> bool:
    return top_count(function) is not None or ranking_count(function) is not None


class Aggregate(Spec):
    key: Name | tuple[Name, ...] = ()
    outputs: dict[Name, str]
    """Function of each output by its name: `count`, or one of a field, such as `sum(amount)`."""
    fields: str
    """Return the fields it reads, as a schema of Spark's: `word string, amount double`."""
    time: Name | None = None
    """The field with the time of a tuple, for windows; where not given, it is when the tuple was due or taken in."""
    window_seconds: Positive | None = None
    slide_seconds: Positive | None = None
    """Windows start so often; where not given they follow each other."""
    late_seconds: Amount = 0.0
    """Seconds a window waits for late rows."""
    window_time: WindowTime = WindowTime.EVENT
    emit: Emit = Emit.UPDATES

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def columns(self) -> dict[str, str]:
        """Type by field, by the one name each has here."""
        types = {}
        for part in _BETWEEN_FIELDS.split(self.fields):
            name, _, word = part.strip().partition(" ")
            kind = plain_type(word)
            if kind is None or not _IDENTIFIER.match(name):
                known = ", ".join(("decimal(DIGITS,BEHIND)", *TYPES))
                raise ValueError(f"fields: expected 'NAME TYPE, ...' with a type of {known}, found '{part}'")
            types[name] = kind
        return types

    def calls(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Function and fields by output."""
        calls = {}
        for output, text in self.outputs.items():
            call = _CALL.match(text)
            if call is None or not (call["function"] in FUNCTIONS or _keeps_some(call["function"])):
                raise ValueError(f"outputs.{output}: expected a function of {', '.join(FUNCTIONS)}, found '{text}'")
            fields = tuple(name.strip() for name in call["fields"].split(",")) if call["fields"] else ()
            self._check_fields(output, call["function"], fields)
            calls[output] = (call["function"], fields)
        return calls

    def _check_fields(self, output: str, function: str, fields: tuple[str, ...]) -> None:
        most = 1 if ranking_count(function) is None else 2
        if not fields and function != "count":
            raise ValueError(f"outputs.{output}: {function} needs a field: {function}(FIELD)")
        if len(fields) > most:
            raise ValueError(f"outputs.{output}: {function} takes at most {most} field{'s' if most > 1 else ''}")
        columns = self.columns
        for name in fields:
            if name not in columns:
                raise ValueError(f"outputs.{output}: '{name}' is not one of the fields: {', '.join(columns)}")
        if ranking_count(function) is None:
            return
        if columns[fields[-1]] != "string" or (len(fields) == most and columns[fields[0]] not in RANKED_TYPES):
            raise ValueError(
                f"outputs.{output}: {function} takes a whole number and a string: {function}(COUNT, NAME); or a string "
                "with rankings"
            )

    @field_validator("outputs")
    @classmethod
    def _some(cls, outputs: dict[str, str]) -> dict[str, str]:
        if not outputs:
            raise ValueError("expected at least one output")
        return outputs

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        columns = self.columns
        for name in self.keys:
            if name not in columns:
                raise ValueError(f"key '{name}' is not one of the fields: {', '.join(columns)}")
        for output in self.calls():
            if output in self.keys or output in RESERVED or not _IDENTIFIER.match(output):
                raise ValueError(f"outputs.{output}: a key has that name, or it is no plain name")
        if self.window_seconds is None and (
            self.slide_seconds or self.late_seconds or self.time or self.emit is Emit.CLOSED
        ):
            raise ValueError("time, slide_seconds, late_seconds and emit: closed need window_seconds")
        if self.window_time is WindowTime.PROCESSING and (
            self.window_seconds is None or self.time is not None or self.late_seconds
        ):
            raise ValueError("window_time: processing needs window_seconds, and no time or late_seconds")
        if self.time is not None and self.time not in columns:
            raise ValueError(f"time '{self.time}' is not one of the fields: {', '.join(columns)}")
        if self.window_seconds is not None and (self.slide_seconds or 0.0) > self.window_seconds:
            raise ValueError("slide_seconds: expected at most window_seconds")
        if not self.keys and self.window_seconds is None:
            raise ValueError("expected a key, a window, or both")
        return self
