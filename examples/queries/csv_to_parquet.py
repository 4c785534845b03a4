"""CSV as it is becomes Parquet, a folder for each user. Run: penstock run csv_to_parquet:copied --until-end"""

from __future__ import annotations

import penstock

copied = penstock.pipeline("csv-to-parquet")
copied.source(
    "rows",
    format="csv",
    options={"path": "data/table", "header": True},
    schema="order long, user string, amount double, ts timestamp",
)
copied.sink("store", format="parquet", options={"path": "out/csv-to-parquet", "partitionBy": "user"})
