"""Schemas of plain types as Arrow has them, without asking Spark: its parser takes a second to load."""

from __future__ import annotations

import re

import pyarrow as pa

ARROW_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}
_OTHER_NAMES = {"integer": "int", "long": "bigint"}
_FIELD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s+([A-Za-z]+)\s*")


def plain_schema(words: str) -> pa.Schema | None:
    """Of `word string, length int`; None where Spark has to say what is meant."""
    fields = []
    for part in words.split(","):
        match = _FIELD.fullmatch(part)
        kind = match[2].lower() if match is not None else ""
        kind = _OTHER_NAMES.get(kind, kind)
        if match is None or kind not in ARROW_TYPES:
            return None
        fields.append((match[1], ARROW_TYPES[kind]))
    return pa.schema(fields) if len({name for name, _ in fields}) == len(fields) else None
