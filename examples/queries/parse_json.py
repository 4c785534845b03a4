"""Lines of text parsed one by one; what is no JSON becomes a dead letter.

Run: penstock run parse_json:parsed --until-end --dead-letters out/dead
"""

from __future__ import annotations

import json
from typing import Any

import penstock

parsed = penstock.pipeline("parse-json")
parsed.source("lines", format="text", options={"path": "data/lines"}, schema="value string")


@parsed.operator(reads="lines", schema="user string, cents long")
def parse(row: dict[str, Any]) -> dict[str, Any]:
    order = json.loads(row["value"])
    return {"user": order["user"], "cents": round(100 * order["amount"])}


@parsed.operator(reads="parse")
def large(row: dict[str, Any]) -> dict[str, Any] | None:
    return row if row["cents"] >= 50_000 else None


parsed.sink("store", reads="large", format="json", options={"path": "out/parse-json"})
