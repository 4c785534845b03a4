"""A sample over and over, as many rows as a trial wants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.clock import now
from penstock.spark.fused.region_function import DUE_COLUMN, VALUE_COLUMN
from penstock.spark.trials.motion import later, motion_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.trials.motion import Motion
    from penstock.spark.trials.samples import OperatorSample

LEAST_ROWS = 65_536
"""A sample is repeated to at least so many rows once, and then cut without a copy."""
MOST_BYTES = 16 * 2**20
"""But to no more than this, where the sample itself is smaller."""


def times_repeated(rows: pa.Table) -> int:
    for_rows, for_bytes = -(-LEAST_ROWS // rows.num_rows), MOST_BYTES // max(1, rows.nbytes)
    return max(1, int(min(for_rows, for_bytes)))


def replayed_bytes(sample: OperatorSample) -> int:
    """What whoever repeats a sample holds for that."""
    return times_repeated(sample.rows) * int(sample.rows.nbytes)


class Replay:
    def __init__(self, sample: OperatorSample) -> None:
        if not sample.rows.num_rows:
            raise ValueError("a sample without rows cannot be repeated")
        self._numbered = sample.numbered
        repeated = pa.concat_tables([sample.rows] * times_repeated(sample.rows)).combine_chunks()
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
    """A sample over and over, its times, and keys where they are wanted new, moved on with every repetition (`motion`).
    When a tuple was due is the clock's: as in a run, those of a batch were due while the one before lasted."""

    def __init__(
        self,
        sample: OperatorSample,
        clock: Callable[[], float] = now,
        motion: Motion | None = None,
        *,
        new_keys: bool = True,
    ) -> None:
        self._motion = motion_of([sample]) if motion is None else motion
        cut = sample if self._motion.rows is None else replace(sample, rows=sample.rows.slice(0, self._motion.rows))
        self._size = cut.rows.num_rows
        self._names = cut.rows.column_names
        self._numbered = cut.numbered
        self._replay = Replay(cut)
        self._clock = clock
        self._reached = clock()
        self.new_keys = new_keys

    @property
    def moves_on(self) -> bool:
        """Whether rows that come later differ from those that came."""
        moved = {*self._motion.times, *(self._motion.keys if self.new_keys else ()), DUE_COLUMN}
        return self._numbered or not moved.isdisjoint(self._names)

    def table(self, first: int, count: int) -> pa.Table:
        table = pa.Table.from_batches(list(self._replay.rows(first, count)))
        repetitions = np.arange(first, first + count) // self._size
        for name in self._names:
            if (span := self._motion.times.get(name)) is not None:
                by = pa.array((repetitions * span * 1e6).astype("timedelta64[us]"))
                table = _with_column(table, name, later(table[name].combine_chunks(), by))
            elif self.new_keys and (key := self._motion.keys.get(name)) is not None:
                table = _with_column(table, name, key.moved(table[name].combine_chunks(), repetitions))
        until = self._clock()
        if DUE_COLUMN in self._names:
            due = np.linspace(self._reached, until, count + 1)[1:]
            table = _with_column(table, DUE_COLUMN, pa.array(due))
        self._reached = until
        return table


def _with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)
