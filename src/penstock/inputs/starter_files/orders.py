"""Orders, read from JSON lines, priced in cents, scored, and stored as Parquet. Everything here is yours to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import penstock

if TYPE_CHECKING:
    import pandas as pd

pipeline = penstock.pipeline("orders")

# Spark's own readers and writers: format=, options=, schema= as in readStream; files= is short for a path of files. A
# batch takes two of them, so that it is there after half a second, and two slots have the same to do.
pipeline.source(
    "events",
    files="data/*.jsonl",
    options={"maxFilesPerTrigger": 2},
    schema="user string, price string, test boolean",
)


# Once per row: a dict in; a dict out, None to leave the row out, or a list of dicts.
@pipeline.operator(reads="events", schema="user string, cents long")
def parse(row: dict[str, Any]) -> dict[str, Any] | None:
    if row["test"]:
        return None
    amount, currency = row["price"].split()
    euros = float(amount) * {"EUR": 1.0, "USD": 0.9}[currency]
    return {"user": row["user"], "cents": round(100 * euros)}


# Once per piece of a batch: a pandas DataFrame in, one out. Every tenth order is a test: 0.9 of the rows come here.
@pipeline.operator(reads="parse", selectivity=0.9, per="pandas", schema="user string, cents long, score double")
def score(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(score=1 / (1 + np.exp(5 - np.log1p(orders["cents"]))))


pipeline.sink("store", reads="score", format="parquet", options={"path": "out/orders"})
