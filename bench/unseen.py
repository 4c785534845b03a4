"""Pipelines of shapes that no model was fitted to, for `truth --mix unseen`: code of a user's own over the load
generator. Each is profiled as it is, and then run."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

import penstock

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

KEYS = 50


def scored(frame: pd.DataFrame) -> pd.DataFrame:
    value = frame["value"].to_numpy()
    return frame.assign(score=np.sqrt(value) * np.sin(value) + np.log1p(value))


def rounded(table: pa.Table) -> pa.Table:
    return table.append_column("rounded", pc.round(table.column("score"), 2))


def asked(row: dict[str, Any]) -> dict[str, Any]:
    """A call of a service that answers after 20 ms."""
    time.sleep(0.02)
    return {"value": row["value"], "answer": json.dumps({"value": row["value"], "ok": True})}


def parsed(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": row["value"], "ok": json.loads(row["answer"])["ok"]}


def hashed(row: dict[str, Any]) -> dict[str, Any]:
    digest = str(row["value"]).encode()
    for _ in range(100):
        digest = hashlib.sha256(digest).digest()
    return {"value": row["value"], "digest": digest.hex()}


def in_three(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"value": row["value"], "part": part, "text": f"{row['value']}-{part}" * 4} for part in range(3)]


def measured(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": row["value"], "length": len(row["text"]), "words": len(set(row["text"]))}


def keyed(row: dict[str, Any]) -> dict[str, Any]:
    """Skewed: key k is about 1/(k+1) as frequent as key 0."""
    draw = (row["value"] * 2_654_435_761 % 2**32) / 2**32
    return {"key": f"k{int(KEYS**draw) - 1}", "amount": float(row["value"] % 1000)}


def priced(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(
        "value", "md5(cast(value as string)) as code", "sqrt(value) * sin(value) + ln(1 + value) as price"
    ).where("pmod(value, 10) < 8")


def labelled(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": row["value"], "label": row["code"][:4].upper(), "dear": row["price"] > 10}


WINDOWS = {
    "key": "key",
    "outputs": {"total": "sum(amount)", "count": "count"},
    "fields": "key string, amount double",
    "window_seconds": 2,
    "emit": "closed",
}


def unseen() -> dict[str, penstock.Pipeline]:
    """By name."""
    names = ("vectorised", "waiting", "fan-out", "windows", "spark", "heavy")
    built = {name: penstock.pipeline(name).source("load") for name in names}
    built["vectorised"].then("score", logic=scored, per="pandas", schema="value long, score double").then(
        "round", logic=rounded, per="arrow", schema="value long, score double, rounded double"
    )
    built["waiting"].then("ask", logic=asked, schema="value long, answer string").then(
        "parse", logic=parsed, schema="value long, ok boolean"
    )
    built["fan-out"].then("split", logic=in_three, schema="value long, part long, text string").then(
        "measure", logic=measured, selectivity=3.0, schema="value long, length long, words long"
    )
    built["windows"].then("key", logic=keyed, schema="key string, amount double").then("sum", aggregate=WINDOWS)
    built["spark"].then("price", logic=priced, per="dataframe").then(
        "label", logic=labelled, selectivity=0.8, schema="value long, label string, dear boolean"
    )
    built["heavy"].then("hash", logic=hashed, schema="value long, digest string")
    return {name: builder.sink("out").build() for name, builder in built.items()}
