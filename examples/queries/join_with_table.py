"""Orders with the country of their user, from a table. Run: penstock run join_with_table:located --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

located = penstock.pipeline("join-with-table")
located.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double, ts timestamp",
)


@located.operator(reads="orders", per="dataframe")
def with_country(orders: DataFrame) -> DataFrame:
    users = orders.sparkSession.read.schema("user string, country string").json("data/users")
    return orders.join(users, "user", "left").fillna("unknown", subset=["country"])


located.sink("store", reads="with_country", format="json", options={"path": "out/join-with-table"})
