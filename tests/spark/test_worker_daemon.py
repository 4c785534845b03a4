"""The process Python workers are forked from: what it has loaded, workers need not load, nor look through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pyspark

from penstock.spark.internals.settings import FIRST_WITH_PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def test_workers_import_nothing_from_the_current_folder_and_listen_on_no_port(session: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        for _ in batches:
            yield pa.record_batch([pa.array([sys.flags.safe_path]), pa.array([os.getppid()])], names=["safe", "parent"])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "safe boolean, parent bigint").collect()
    assert row.safe
    sockets = psutil.Process(row.parent).net_connections("all")
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= FIRST_WITH_PACKAGES:
        assert [made.family for made in sockets if made.status == psutil.CONN_LISTEN] == []


def test_what_is_loaded_is_not_looked_at_after_every_task(session: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        loaded = "penstock.spark.region_function" in sys.modules
        for _ in batches:
            yield pa.record_batch([pa.array([gc.get_freeze_count()]), pa.array([loaded])], names=["frozen", "loaded"])

    (row,) = session.range(0, 1, 1, 1).mapInArrow(look, "frozen bigint, loaded boolean").collect()
    assert row.loaded
    assert row.frozen > 20_000
