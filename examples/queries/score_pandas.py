"""Vectorised code over pandas frames. Run: penstock run score_pandas:scored --until-end"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import penstock

if TYPE_CHECKING:
    import pandas as pd

scored = penstock.pipeline("score-pandas")
scored.source(
    "orders",
    format="json",
    options={"path": "data/orders"},
    schema="order long, user string, amount double, ts timestamp",
)


@scored.operator(reads="orders", per="pandas", schema="order long, score double")
def score(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(score=np.log1p(orders["amount"]))[["order", "score"]]


scored.sink("store", reads="score", format="parquet", options={"path": "out/score-pandas"})
