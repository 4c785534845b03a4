"""Arrow code that keeps some rows, to two sinks in one pass. Run: penstock run filter_arrow:split --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

import penstock

if TYPE_CHECKING:
    import pyarrow as pa

split = penstock.pipeline("filter-arrow")
split.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double",
)


@split.operator(reads="orders", per="arrow", schema="order long, user string, amount double")
def large(orders: pa.Table) -> pa.Table:
    return orders.filter(pc.field("amount") >= 500)


@split.operator(reads="orders", per="arrow", schema="order long, user string, amount double")
def small(orders: pa.Table) -> pa.Table:
    return orders.filter(pc.field("amount") < 500)


split.sink("large_orders", reads="large", format="parquet", options={"path": "out/filter-arrow/large"})
split.sink("small_orders", reads="small", format="parquet", options={"path": "out/filter-arrow/small"})
