"""Rows as text, letter by letter as Spark writes them: `to_json` for messages, CAST AS STRING for a key or value.

So a sink holds the same messages whichever engine ran. From Spark 4 (JacksonGenerator, ToStringBase), with its defaults
and the session's zone UTC: fields that are null are left out, but not elements of lists and maps; timestamps have
milliseconds and `Z`, those without a zone no `Z`; bytes are base64; numbers are written as Java does.
"""

from __future__ import annotations

import math
from base64 import b64encode
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(letter): f"\\{short}" for letter, short in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)
}


def json_lines(rows: pa.RecordBatch) -> list[str]:
    """Every row as an object."""
    named = zip(rows.schema.names, rows.columns, strict=True)
    columns = [(f"{_quoted(name)}:", _column(column, as_json)) for name, column in named]
    return [
        "{" + ",".join(name + texts[row] for name, texts in columns if texts[row] is not None) + "}"
        for row in range(rows.num_rows)
    ]


def cast_to_binary(column: pa.Array) -> pa.Array:
    """Bytes and text as they are, anything else as its text."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) or _is_text(column.type):
        return column.cast(pa.binary())
    texts = _column(column, as_text)
    return pa.array([None if text is None else text.encode() for text in texts], pa.binary())


def _column(column: pa.Array, write: Callable[[Any, pa.DataType], str]) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = _in_microseconds(column)
    return [None if value is None else write(value, column.type) for value in column.to_pylist()]


def _in_microseconds(column: pa.Array) -> pa.Array:
    """As Spark keeps times; those with a zone in UTC. (Nanoseconds would come back as another library's values.)"""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", tz=None if column.type.tz is None else "UTC"), safe=False)


def as_json(value: Any, kind: pa.DataType) -> str:
    """Return the value as `to_json` writes it."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case int() | Decimal():
            text = str(value)
        case float():
            number = java_number(value, kind)
            text = number if math.isfinite(value) else _quoted(number)
        case bytes():
            text = _quoted(b64encode(value).decode())
        case dict():
            parts = [(name, part, kind.field(name).type) for name, part in value.items() if part is not None]
            text = "{" + ",".join(f"{_quoted(name)}:{as_json(part, its_kind)}" for name, part, its_kind in parts) + "}"
        case list() if pa.types.is_map(kind):
            entries = (f"{_quoted(as_text(key, kind.key_type))}:{as_json(part, kind.item_type)}" for key, part in value)
            text = "{" + ",".join(entries) + "}"
        case list():
            text = "[" + ",".join(as_json(part, kind.value_type) for part in value) + "]"
        case _ if pa.types.is_timestamp(kind):
            text = _quoted(value.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        case _:
            text = _quoted(str(value))
    return text


def as_text(value: Any, kind: pa.DataType) -> str:
    """As CAST AS STRING writes it."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case float():
            text = java_number(value, kind)
        case Decimal():
            text = format(value, "f")
        case bytes():
            text = value.decode(errors="replace")
        case dict():
            text = "{" + ", ".join(as_text(part, kind.field(name).type) for name, part in value.items()) + "}"
        case list() if pa.types.is_map(kind):
            entries = (f"{as_text(key, kind.key_type)} -> {as_text(part, kind.item_type)}" for key, part in value)
            text = "{" + ", ".join(entries) + "}"
        case list():
            text = "[" + ", ".join(as_text(part, kind.value_type) for part in value) + "]"
        case _ if pa.types.is_timestamp(kind):
            # without trailing zeros of the fraction, and without a fraction of 0
            digits = value.isoformat(" ", timespec="microseconds").removesuffix("+00:00")
            text = digits.rstrip("0").removesuffix(".")
        case _:
            text = str(value)
    return text


def java_number(value: float, kind: pa.DataType) -> str:
    """Return the number as Java's Double.toString and Float.toString do: the shortest digits that name it, at least one
    after the point, and with an exponent below 0.001 and from 10,000,000 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if pa.types.is_float32(kind) else np.float64(value)
    size = abs(float(number))
    if size == 0 or 1e-3 <= size < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    digits, _, exponent = np.format_float_scientific(number, unique=True, trim="0").partition("e")
    return f"{digits}E{int(exponent)}"


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
