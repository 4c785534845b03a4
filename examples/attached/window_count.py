"""A plain Structured Streaming application: JSON files in, counts by window and customer out. What makes it Penstock's
concern is one line, `penstock.attach`; without it the application is the same.

    spark-submit window_count.py INPUT OUTPUT CHECKPOINT
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

SCHEMA = "at timestamp, customer bigint"
ROW_SECONDS = 0.02
"""What looking up a customer takes: this is the work that more executors do faster."""


def looked_up(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for batch in batches:
        time.sleep(ROW_SECONDS * len(batch))
        yield batch


def start(session: Any, source: str, output: str, checkpoint: str, **trigger: Any) -> Any:
    """The query: Spark's own means, nothing of Penstock."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - workers load this module for `looked_up` alone

    orders = session.readStream.schema(SCHEMA).json(source).mapInPandas(looked_up, SCHEMA)
    by_window = orders.withWatermark("at", "10 seconds").groupBy(f.window("at", "10 seconds"), "customer").count()
    rows = by_window.select(f.col("window.start").alias("start"), "customer", "count")
    writer = rows.writeStream.format("parquet").option("path", output).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def main() -> None:
    from pyspark import SparkConf  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    settings = SparkConf().setAll(list(penstock.attachable_settings(1).items()))
    session = SparkSession.builder.appName("orders").config(conf=settings).getOrCreate()
    attachment = penstock.attach(session, name="orders", target={"latency_ms": 10_000}, minimum=1, maximum=3)
    try:
        start(session, *sys.argv[1:4]).awaitTermination()
    finally:
        attachment.detach()


if __name__ == "__main__":
    main()
