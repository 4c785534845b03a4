"""Orders per user and minute: event time, a watermark, a window. Run: penstock run window_counts:counts --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what everybody calls them

import penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

counts = penstock.pipeline("window-counts")
counts.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double, ts timestamp",
    watermark=("ts", "30 seconds"),
)


@counts.operator(reads="orders", per="dataframe")
def per_minute(orders: DataFrame) -> DataFrame:
    return orders.groupBy(F.window("ts", "1 minute"), "user").agg(
        F.count("*").alias("orders"), F.sum("amount").alias("spent")
    )


# complete: the whole table anew with every batch; update or append would do as well
counts.sink("table", reads="per_minute", format="parquet", options={"path": "out/window-counts"}, mode="complete")
