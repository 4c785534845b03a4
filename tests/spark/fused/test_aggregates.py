"""Values an aggregation cannot have as it declares them."""

from __future__ import annotations

from typing import Any

from penstock.dataflow.aggregate import Aggregate
from penstock.engines.fused.frames import aggregate_frame


def test_a_value_of_another_type_is_null_and_ends_nothing(session: Any) -> None:
    rows = [("a", "1.5", "2026-01-01 00:00:01"), ("a", "abc", "2026-01-01 00:00:02"), ("a", "2", "no time")]
    frame = session.createDataFrame(rows, "user string, amount string, at string")
    sums = {"n": "count(amount)", "spent": "sum(amount)"}
    aggregate = Aggregate(key="user", outputs=sums, fields="user string, amount double")
    assert [tuple(row) for row in aggregate_frame(frame, aggregate, "due").collect()] == [("a", 2, 3.5)]
    timed = Aggregate(
        key="user", outputs=sums, fields="user string, amount double, at timestamp", time="at", window_seconds=60
    )
    assert [(row["n"], row["spent"]) for row in aggregate_frame(frame, timed, "due").collect()] == [(1, 1.5)]
