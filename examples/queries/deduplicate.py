"""Orders that come twice are kept once. Run: penstock run deduplicate:once --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

once = penstock.pipeline("deduplicate")
once.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double, ts timestamp",
    watermark=("ts", "10 minutes"),
)


@once.operator(reads="orders", per="dataframe")
def distinct(orders: DataFrame) -> DataFrame:
    return orders.dropDuplicatesWithinWatermark(["order"])


once.sink("kept", reads="distinct", format="parquet", options={"path": "out/deduplicate"})
