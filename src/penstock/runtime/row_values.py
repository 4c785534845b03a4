"""Rows as dicts, made of columns. Arrow does it, but for points in time (it looks the time zone up for every value) and
maps: of those it makes lists of pairs, where Spark's own Python has dicts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.schemas import MISFITS, Misfit, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Of one unit; what is finer than Python's own is left to Arrow."""


def row_dicts(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    if not any(_is_time(field.type) or _holds_map(field.type) for field in columns.schema):
        return columns.to_pylist()  # type: ignore[no-any-return] # Arrow says nothing about types
    names = columns.schema.names
    values = [_values(column) for column in columns.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def readable_rows(columns: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[Misfit]]:
    """Rows as dicts, and those that hold what Python has no value for: a time after the year 9999, text that is no
    UTF-8."""
    unreadable: list[Misfit] = []
    return _readable_part(columns, 0, unreadable), unreadable


def _readable_part(columns: pa.RecordBatch, first: int, unreadable: list[Misfit]) -> list[dict[str, Any]]:
    """Halves are tried until the rows that cannot be read stand alone; `first` is the position of the first row."""
    try:
        return row_dicts(columns)
    except MISFITS as error:
        if columns.num_rows == 1:
            unreadable.append(_unreadable(columns, first, error))
            return []
    middle = columns.num_rows // 2
    return [
        *_readable_part(columns.slice(0, middle), first, unreadable),
        *_readable_part(columns.slice(middle), first + middle, unreadable),
    ]


def _unreadable(columns: pa.RecordBatch, row: int, error: Exception) -> Misfit:
    """Why the only row of `columns` raised `error`; `row` is where it stands."""
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        try:
            _values(column)
        except MISFITS as raised:
            return Misfit(row, name, f"field '{name}': no value of Python's: {first_line(raised)}")
    raise error


def written_rows(columns: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts, to be written and not worked with: what Python has no value for is text."""
    try:
        return row_dicts(columns)
    except MISFITS:
        return [written_row(columns, at) for at in range(columns.num_rows)]


def written_row(columns: pa.RecordBatch | pa.Table, at: int) -> dict[str, Any]:
    columns_by_name = zip(columns.schema.names, columns.columns, strict=True)
    return {name: _written(column[at]) for name, column in columns_by_name}


def _written(value: pa.Scalar) -> Any:
    """As text only what cannot be had otherwise: the rest of a struct, array or map stays as it is."""
    kind = value.type
    try:
        return _with_dicts(value.as_py(), kind)
    except MISFITS:
        if pa.types.is_struct(kind):
            return {field.name: _written(value[field.name]) for field in kind}
        if pa.types.is_map(kind):
            pairs = zip(value.values.field(0), value.values.field(1), strict=True)
            return {str(_written(key)): _written(item) for key, item in pairs}
        if pa.types.is_nested(kind):
            return [_written(item) for item in value.values]
        return _text(value)


def _text(value: pa.Scalar) -> str:
    """A moment is told in UTC, for which Arrow needs no list of zones."""
    kind = value.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return f"{_text(value.cast(pa.timestamp(kind.unit)))} UTC"
    return str(value.cast(pa.string()).cast(pa.binary()).as_py(), "utf-8", "backslashreplace")


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


# Numbers made of what rows hold: the same in every process, whenever the rows come again.


def hash_rows(rows: pa.RecordBatch, key: Sequence[str]) -> Hashes:
    """Of the key's columns; for a number the same whatever its type."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in key:
        position = rows.schema.get_field_index(name)
        if position < 0:
            raise StoppedError(f"grouping by key: rows have no column '{name}', only {', '.join(rows.schema.names)}")
        hashes = hashes * np.uint64(31) + _hash_column(rows.column(position))
    return hashes


def hash_contents(rows: pa.RecordBatch) -> Hashes:
    """Of all columns, with equal rows told apart by their order. A column that cannot be read counts for nothing."""
    import pandas as pd  # noqa: PLC0415 - belongs to the extra

    hashes = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        try:
            # pandas cannot hash nested values
            is_nested = pa.types.is_nested(column.type)
            readable = pa.array(map(str, column.to_pylist()), pa.string()) if is_nested else column
            hashes = hashes * np.uint64(31) + _hash_column(readable)
        except MISFITS:
            continue
    again = pd.Series(hashes).groupby(hashes).cumcount().to_numpy().astype(np.uint64)
    told_apart: Hashes = hashes + again * np.uint64(0x9E3779B97F4A7C15)
    return told_apart


def _hash_column(column: pa.Array) -> Hashes:
    """Null has a hash of its own. Whole numbers beyond 2^53 may share one, which does no harm."""
    import pandas as pd  # noqa: PLC0415 - belongs to the extra

    values = column.to_pandas().to_numpy()
    values = values.astype(float) if pa.types.is_decimal(column.type) else values
    if values.dtype.kind in "biufmM":
        # 0.0 makes a negative zero a zero
        values = values.astype(np.int64).astype(np.float64) if values.dtype.kind in "mM" else values.astype(float) + 0.0
    hashes: Hashes = pd.util.hash_array(values, categorize=False)
    return hashes
