"""Numbers made of what rows hold: the same in every process, whenever the rows come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.schemas import MISFITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]


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
            # of what is made of others pandas knows no hash
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
