"""Rows as dicts, made of columns. Arrow does it, but for points in time (it looks the time zone up for every value) and
maps: of those it makes lists of pairs, where Spark's own Python has dicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pyarrow as pa

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Of one unit; what is finer than Python's own is left to Arrow."""


def row_dicts(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    if not any(_is_time(field.type) or _holds_map(field.type) for field in columns.schema):
        return columns.to_pylist()  # type: ignore[no-any-return] # Arrow says nothing about types
    names = columns.schema.names
    values = [_values(column) for column in columns.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if _is_time(column.type):
        return _datetimes(column)
    values = column.to_pylist()
    return [_with_dicts(value, column.type) for value in values] if _holds_map(column.type) else values


def _holds_map(kind: pa.DataType) -> bool:
    """Itself a map, or with one inside."""
    return pa.types.is_nested(kind) and _holds_map_inside(kind)


@cache
def _holds_map_inside(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_holds_map(kind.field(at).type) for at in range(kind.num_fields))


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    """The same with a dict for every map in it; of equal keys the last counts."""
    if value is None or not _holds_map(kind):
        return value
    if pa.types.is_map(kind):
        return {key: _with_dicts(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    return [_with_dicts(item, kind.value_type) for item in value]


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit in _MICROSECONDS


def _datetimes(column: pa.Array) -> list[datetime | None]:
    """The same as `to_pylist`: with the column's time zone where it has one."""
    unit = _MICROSECONDS[column.type.unit]
    counts = column.cast(pa.int64()).to_pylist()
    if column.type.tz is None:
        start = datetime(1970, 1, 1)  # noqa: DTZ001 - as the column says
        return [None if count is None else start + timedelta(microseconds=unit * count) for count in counts]
    zone = pa.lib.string_to_tzinfo(column.type.tz)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    if column.type.tz == "UTC":
        start = start.replace(tzinfo=zone)
        return [None if count is None else start + timedelta(microseconds=unit * count) for count in counts]
    return [
        None if count is None else (start + timedelta(microseconds=unit * count)).astimezone(zone) for count in counts
    ]
