"""A sample over and over, as many rows as a trial wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.spark.fused.region_function import VALUE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator

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
