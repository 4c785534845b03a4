"""CPU that a slot of a placed run needs for a row of a declared aggregation. Spark is not needed for it.

    T(n) = b + n s

is the CPU for a batch of n rows. A source sends one batch a period P, so at the peak a batch takes the whole period:
`b + n s = P` gives `n / P = (1 - b / P) / s` rows/s.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.base.clock import thread_cpu_seconds
from penstock.base.files import temporary_folder
from penstock.engines.placed.bundle.keyed_segment import KeyedCode, KeyedSegment
from penstock.engines.placed.flow.layout import KEY_GROUPS
from penstock.planning.prediction.placed import PlacedCosts
from penstock.runtime.batch import Batch, Marks

if TYPE_CHECKING:
    from penstock.dataflow.aggregate import Aggregate

FEW_ROWS, MANY_ROWS = 10, 1000
ROWS = {FEW_ROWS: 4_000, MANY_ROWS: 40_000}
"""Rows of a measurement by rows of a batch. Rows are taken into their groups by the thousand."""
REPETITIONS = 3
LEAST_PART = 0.1
"""Least part of a period that is left for rows."""


def keyed_seconds(aggregate: Aggregate, sample: pa.Table) -> float:
    """Return the CPU seconds for a row at the peak."""
    few, many = (median(_row_seconds(aggregate, sample, rows) for _ in range(REPETITIONS)) for rows in ROWS)
    return row_seconds_at_peak(few, many, PlacedCosts().source_period_seconds)


def row_seconds_at_peak(few: float, many: float, period: float) -> float:
    """Return `s / (1 - b / P)` from the seconds for a row in small and in large batches."""
    batch = max(0.0, few - many) / (1 / FEW_ROWS - 1 / MANY_ROWS)
    row = max(many - batch / MANY_ROWS, many / 10)
    return row / max(LEAST_PART, 1 - batch / period)


def _row_seconds(aggregate: Aggregate, sample: pa.Table, batch_rows: int) -> float:
    code = KeyedCode("profiled", aggregate)
    wanted = ROWS[batch_rows]
    repeated = pa.concat_tables([sample.select(code.takes.names)] * -(-wanted // sample.num_rows)).slice(0, wanted)
    batches = [
        Batch(rows, Marks(np.arange(rows.num_rows), np.zeros(rows.num_rows)))
        for rows in repeated.combine_chunks().to_batches(max_chunksize=batch_rows)
    ]
    with temporary_folder("keyed") as place:
        segment = KeyedSegment(code, str(place), "profile", {}, (0, KEY_GROUPS), lambda _, batch: None)
        before = thread_cpu_seconds()
        for batch in batches:
            segment.feed(batch)
        segment.flush()
        return (thread_cpu_seconds() - before) / wanted
