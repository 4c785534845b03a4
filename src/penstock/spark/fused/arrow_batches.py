"""How many rows an Arrow batch holds on its way to code.

Spark bounds batches by rows and by bytes, and after every row asks how many bytes the batch has by now: half of the
time of a query whose code is vectorised goes there. Where all columns have a fixed width that is known beforehand: so
many rows are so many bytes, and Spark need not look. Rows with text, lists or maps are looked at as Spark does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LOOK = "2147483647"
"""With this Spark does not ask how many bytes a batch has."""
BATCH_BYTES = 64 * 2**20
"""At most, as Spark's own bound."""


def row_bytes(kind: pa.DataType) -> int | None:
    """Of a value, with the byte that says whether there is one; None: that depends on the value."""
    if pa.types.is_struct(kind):
        inside = [row_bytes(field.type) for field in kind]
        return None if None in inside else 1 + sum(size for size in inside if size is not None)
    if pa.types.is_null(kind):
        return 1
    if not pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        return None
    return 1 + -(-int(kind.bit_width) // 8)


def bounded_by_rows(schemas: Iterable[pa.Schema], most_rows: int) -> dict[str, str]:
    """The settings of a query whose code gets such rows, where batches hold at most `most_rows` (0: any number).

    With w bytes in the widest row: `min(most_rows, BATCH_BYTES / w)`. Empty: Spark has to look.
    """
    sizes = [row_bytes(pa.struct(list(schema))) for schema in schemas]
    widths = [size for size in sizes if size is not None]
    if not widths or len(widths) < len(sizes):
        return {}
    fit = max(1, BATCH_BYTES // max(widths))
    return {MOST_ROWS: str(min(most_rows, fit) if most_rows > 0 else fit), MOST_BYTES: NO_LOOK}


def settings_for(session: SparkSession, schemas: Iterable[pa.Schema]) -> Mapping[str, str]:
    """Nothing where somebody has said how many bytes there may be."""
    if session.conf.get(MOST_BYTES, None) is not None:
        return {}
    return bounded_by_rows(schemas, int(session.conf.get(MOST_ROWS) or 0))
