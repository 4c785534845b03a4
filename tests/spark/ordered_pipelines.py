"""Pipelines of tests that order plans by hand: drivers and workers import them from here."""

from __future__ import annotations

import os
import uuid
from typing import Any

import penstock

OUT = os.environ.get("PENSTOCK_TEST_OUT", "out")


class Stamp:
    """Write into each row which start of which process handled it: a worker of Spark's that is used for another task
    unpickles this anew."""

    def __init__(self) -> None:
        self._token = ""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        if not self._token:
            self._token = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        return {"value": row["value"], "token": self._token}

    def __reduce__(self) -> tuple[type[Stamp], tuple[()]]:
        return Stamp, ()


def stamped(name: str) -> penstock.Pipeline:
    made = penstock.pipeline(name)
    made.source("in")
    made.then("work", logic=Stamp(), schema="value long, token string")
    made.sink("out", format="parquet", options={"path": f"{OUT}/{name}"})
    return made.build()


placed, resized, fused = stamped("placed"), stamped("resized"), stamped("fused")


def modelled(name: str) -> penstock.Pipeline:
    """Planned as if its code were the reference task `parse_xml`: 310 rows/s and 1,276 MB of a slot."""
    made = penstock.pipeline(name)
    made.source("in")
    made.then("work", logic=Stamp(), schema="value long, token string", model="parse_xml")
    made.sink("out", format="parquet", options={"path": f"{OUT}/{name}"})
    return made.build()


storm, aware, finish, packed = modelled("storm"), modelled("aware"), modelled("finish"), modelled("packed")
