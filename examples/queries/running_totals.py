"""State of one's own per key: what every user spent so far. Run: penstock run running_totals:totals --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

totals = penstock.pipeline("running-totals")
totals.source(
    "orders",
    format="json",
    options={"path": "data/orders", "maxFilesPerTrigger": 1},
    schema="order long, user string, amount double, ts timestamp",
)


def add(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    spent = state.get[0] if state.exists else 0.0
    for frame in frames:
        spent += float(frame["amount"].sum())
    state.update((spent,))
    yield pd.DataFrame({"user": [key[0]], "spent": [spent]})


@totals.operator(reads="orders", per="dataframe")
def per_user(orders: DataFrame) -> DataFrame:
    grouped = orders.groupBy("user")
    return grouped.applyInPandasWithState(add, "user string, spent double", "spent double", "update", "NoTimeout")


totals.sink("changes", reads="per_user", format="json", options={"path": "out/running-totals"}, mode="update")
