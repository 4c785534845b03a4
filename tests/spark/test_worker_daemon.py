"""The process Python workers are forked from: what it has loaded, workers need not load, nor look through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def test_what_is_loaded_is_not_looked_at_after_every_task(session: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        loaded = "penstock.spark.fused.region_function" in sys.modules
        for _ in batches:
            yield pa.record_batch([pa.array([gc.get_freeze_count()]), pa.array([loaded])], names=["frozen", "loaded"])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "frozen bigint, loaded boolean").collect()
    assert row.loaded
    assert row.frozen > 20_000
