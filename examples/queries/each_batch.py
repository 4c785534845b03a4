"""A sink of one's own, as with foreachBatch: totals per user in SQLite, safe to be given a batch twice.

Run: penstock run each_batch:totals --until-end
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATABASE = Path("out/each-batch.sqlite")


def add_up(frame: DataFrame, batch: int) -> None:
    rows = [
        (row["user"], row["spent"])
        for row in frame.groupBy("user").agg({"amount": "sum"}).toDF("user", "spent").collect()
    ]
    DATABASE.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS totals (user TEXT PRIMARY KEY, spent REAL)")
        database.execute("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY)")
        if database.execute("SELECT 1 FROM batches WHERE number = ?", (batch,)).fetchone():
            return  # it was here before its commit was
        database.execute("INSERT INTO batches VALUES (?)", (batch,))
        database.executemany(
            "INSERT INTO totals VALUES (?, ?) ON CONFLICT (user) DO UPDATE SET spent = spent + excluded.spent", rows
        )


totals = penstock.pipeline("each-batch")
totals.source(
    "orders",
    format="json",
    options={"path": "data/orders", "maxFilesPerTrigger": 1},
    schema="order long, user string, amount double, ts timestamp",
)
totals.sink("database", write=add_up)
