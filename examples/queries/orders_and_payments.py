"""Two streams joined on event time. Run: penstock run orders_and_payments:paid --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what everybody calls them

import penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

paid = penstock.pipeline("orders-and-payments")
paid.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double, ts timestamp",
    watermark=("ts", "10 minutes"),
)
paid.source(
    "payments",
    format="json",
    options={"path": "data/payments"},
    schema="order long, paid timestamp",
    watermark=("paid", "10 minutes"),
)


@paid.operator(reads=["orders", "payments"], per="dataframe")
def matched(orders: DataFrame, payments: DataFrame) -> DataFrame:
    o, p = orders.alias("o"), payments.alias("p")
    in_time = F.expr("o.order = p.order and p.paid between o.ts and o.ts + interval 1 minute")
    return o.join(p, in_time).select("o.order", "o.user", "o.amount", "p.paid")


paid.sink("store", reads="matched", format="parquet", options={"path": "out/orders-and-payments"})
