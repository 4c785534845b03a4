"""A sample over and over, as many rows as a trial wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import now
from penstock.spark.fused.region_function import DUE_COLUMN, VALUE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.trials.samples import OperatorSample

LEAST_ROWS = 65_536
"""A sample is repeated to at least so many rows once, and then cut without a copy."""


class Replay:
    def __init__(self, sample: OperatorSample) -> None:
        if not sample.rows.num_rows:
            raise ValueError("a sample without rows cannot be repeated")
        self._numbered = sample.numbered
        times = -(-LEAST_ROWS // sample.rows.num_rows)
        repeated = pa.concat_tables([sample.rows] * times).combine_chunks()
        self._rows = pa.RecordBatch.from_arrays(
            [column.chunk(0) for column in repeated.columns], schema=sample.rows.schema
        )

    def rows(self, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """Rows `first` to before `first + count` of a sample that never ends."""
        size = self._rows.num_rows
        while count > 0:
            start = first % size
            taken = min(count, size - start)
            yield self._counted(self._rows.slice(start, taken), first)
            first, count = first + taken, count - taken

    def _counted(self, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if not self._numbered:
            return rows
        place = rows.schema.get_field_index(VALUE_COLUMN)
        numbers = pa.array(np.arange(first, first + rows.num_rows)).cast(rows.schema.field(place).type)
        return rows.set_column(place, rows.schema.field(place), numbers)


class TimedReplay:
    """A sample over and over, its times moved on by as much as it spans with every repetition. When a tuple was due is
    the clock's: as in a run, those of a batch were due while the one before lasted."""

    def __init__(self, sample: OperatorSample, clock: Callable[[], float] = now) -> None:
        self._size = sample.rows.num_rows
        self._replay = Replay(sample)
        self._clock = clock
        self._reached = clock()
        self._spans = {
            name: span
            for name, column in zip(sample.rows.column_names, sample.rows.columns, strict=True)
            if (span := _span_of(column, self._size)) is not None
        }
        self.moves_on = bool(self._spans) or sample.numbered or DUE_COLUMN in sample.rows.column_names
        """Whether rows that come later differ from those that came."""

    def table(self, first: int, count: int) -> pa.Table:
        table = pa.Table.from_batches(list(self._replay.rows(first, count)))
        repetitions = np.arange(first, first + count) // self._size
        for name, span in self._spans.items():
            by = pa.array((repetitions * span * 1e6).astype("timedelta64[us]"))
            table = _with_column(table, name, _moved(table[name].combine_chunks(), by))
        until = self._clock()
        if DUE_COLUMN in table.column_names:
            due = np.linspace(self._reached, until, count + 1)[1:]
            table = _with_column(table, DUE_COLUMN, pa.array(due))
        self._reached = until
        return table


def _with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


def _moved(values: pa.Array, by: pa.Array) -> pa.Array:
    """Times, or windows of time, later by as much."""
    if not pa.types.is_struct(values.type):
        return pc.add(values, by).cast(values.type)
    ends = [_moved(values.field(number), by) for number in range(values.type.num_fields)]
    return pa.StructArray.from_arrays(ends, fields=list(values.type), mask=values.is_null())


def _is_window(kind: pa.DataType) -> bool:
    return (
        pa.types.is_struct(kind)
        and [field.name for field in kind] == ["start", "end"]
        and all(pa.types.is_timestamp(field.type) for field in kind)
    )


def _span_of(column: pa.ChunkedArray, rows: int) -> float | None:
    """Of times, and of Spark's windows of them: from the first start to the last end, so that windows lie as before.
    None: the column tells no time."""
    if pa.types.is_timestamp(column.type):
        return _span_seconds(column, rows)
    if not _is_window(column.type) or not column.num_chunks:
        return None
    windows = column.combine_chunks()
    first, last = pc.min(pc.struct_field(windows, "start")), pc.max(pc.struct_field(windows, "end"))
    return (last.as_py() - first.as_py()).total_seconds() if first.is_valid else None


def _span_seconds(column: pa.ChunkedArray, rows: int) -> float | None:
    """From the first to what would be the first of the next repetition; a second where all are alike."""
    ends = pc.min_max(column)
    if not ends["min"].is_valid:
        return None
    seconds = (ends["max"].as_py() - ends["min"].as_py()).total_seconds()
    return seconds * rows / (rows - 1) if seconds > 0 and rows > 1 else 1.0
