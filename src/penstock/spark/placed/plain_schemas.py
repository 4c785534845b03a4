"""Schemas of plain types as Arrow has them, without asking Spark: its parser takes a second to load."""

from __future__ import annotations

import re

import pyarrow as pa

from penstock.dataflow.spark_types import decimal_digits, plain_type

_ARROW_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_FIELD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s+([A-Za-z]+)\s*")


def arrow_type(kind: str) -> pa.DataType:
    """Of a plain type by its name."""
    digits = decimal_digits(kind)
    return _ARROW_TYPES[kind] if digits is None else pa.decimal128(*digits)


def plain_schema(words: str) -> pa.Schema | None:
    """Of `word string, length int`; None where Spark has to say what is meant."""
    fields = []
    for part in words.split(","):
        match = _FIELD.fullmatch(part)
        kind = None if match is None else plain_type(match[2])
        if match is None or kind is None:
            return None
        fields.append((match[1], arrow_type(kind)))
    return pa.schema(fields) if len({name for name, _ in fields}) == len(fields) else None
