"""How many orders every user has made so far, with state of one's own (`transformWithStateInPandas`; Spark needs the
package protobuf for it). Run: penstock run orders_so_far:so_far --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

so_far = penstock.pipeline("orders-so-far")
so_far.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double, ts timestamp",
)


class CountOrders(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "orders long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        before = self._seen.get()
        orders = sum(len(frame) for frame in rows) + (0 if before is None else before[0])
        self._seen.update((orders,))
        yield pd.DataFrame({"user": [key[0]], "orders": [orders]})

    def close(self) -> None:
        pass


@so_far.operator(reads="orders", per="dataframe")
def count_orders(orders: DataFrame) -> DataFrame:
    # the only store of Spark's that holds such state
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    orders.sparkSession.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    return orders.groupBy("user").transformWithStateInPandas(
        CountOrders(), outputStructType="user string, orders long", outputMode="Append", timeMode="None"
    )


so_far.sink("store", reads="count_orders", format="json", options={"path": "out/orders-so-far"})
