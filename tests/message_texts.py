"""Values, by Spark's name of their type, and what Spark makes of them as JSON and as text."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.int32()),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
    "struct<x:int,y:string>": pa.struct([("x", pa.int32()), ("y", pa.string())]),
}
AT = datetime(2026, 11, 18, 0, 10, 0, 250_999, tzinfo=UTC)
SHARP = datetime(2026, 11, 18, tzinfo=UTC)

JSON_ROWS: list[tuple[str, Any, str | None]] = [
    ("int", None, None),  # left out
    ("boolean", True, "true"),
    ("bigint", -9_007_199_254_740_993, "-9007199254740993"),
    ("double", 0.1, "0.1"),
    ("double", 3.0, "3.0"),
    ("double", -0.0, "-0.0"),
    ("double", 1e16, "1.0E16"),
    ("double", 12_345_678.5, "1.23456785E7"),
    ("double", 0.00012, "1.2E-4"),
    ("double", float("nan"), '"NaN"'),
    ("double", float("-inf"), '"-Infinity"'),
    ("float", 0.1, "0.1"),
    ("decimal(10,2)", Decimal("12.50"), "12.50"),
    ("string", 'a "b" \\ ü\n\x01', '"a \\"b\\" \\\\ ü\\n\\u0001"'),
    ("string", "\x1f/", '"\\u001F/"'),
    ("binary", b"\x00\xffabc", '"AP9hYmM="'),
    ("date", date(2026, 1, 2), '"2026-01-02"'),
    ("timestamp", AT, '"2026-11-18T00:10:00.250Z"'),
    ("timestamp", SHARP, '"2026-11-18T00:00:00.000Z"'),
    ("timestamp_ntz", AT.replace(tzinfo=None), '"2026-11-18T00:10:00.250"'),
    ("array<int>", [1, None, 3], "[1,null,3]"),
    ("map<string,int>", {"a": 1, "b": None}, '{"a":1,"b":null}'),
    ("struct<x:int,y:string>", {"x": None, "y": "z"}, '{"y":"z"}'),
]

TEXTS: list[tuple[str, Any, bytes | None]] = [
    ("int", None, None),
    ("int", 7, b"7"),
    ("boolean", False, b"false"),
    ("double", 1e16, b"1.0E16"),
    ("float", 0.1, b"0.1"),
    ("decimal(10,2)", Decimal("0.00"), b"0.00"),
    ("string", "ü", "ü".encode()),
    ("binary", b"\x00\xff", b"\x00\xff"),
    ("date", date(2026, 1, 2), b"2026-01-02"),
    ("timestamp", AT, b"2026-11-18 00:10:00.250999"),
    ("timestamp", SHARP, b"2026-11-18 00:00:00"),
    ("array<int>", [1, None, 3], b"[1, null, 3]"),
    ("struct<x:int,y:string>", {"x": 1, "y": "z"}, b"{1, z}"),
]


def typed(kind: str, value: Any) -> pa.Array:
    """One value as a column."""
    items = list(value.items()) if kind.startswith("map") and value is not None else value
    return pa.array([items], ARROW[kind])
