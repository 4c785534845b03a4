"""Plain types in Spark's words, by one name each."""

from __future__ import annotations

import re

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
