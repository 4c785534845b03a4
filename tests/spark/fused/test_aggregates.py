"""Values an aggregation cannot have as it declares them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from penstock.dataflow.aggregate import Aggregate
from penstock.engines.fused.frames import WINDOW, aggregate_frame
from penstock.engines.placed.bundle.keyed_segment import KeyedCode, sample_groups


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


def test_rankings_are_the_same_on_spark_and_placed(session: Any) -> None:
    rows = [("a", 2, "b"), ("a", 5, "c"), ("a", 2, "ä"), ("a", None, "x"), ("a", 7, None), ("b", 1, 'q"')]
    aggregate = Aggregate(
        key="share", outputs={"first": "ranking_2(n, word)"}, fields="share string, n bigint, word string"
    )
    frame = session.createDataFrame(rows, "share string, n bigint, word string")
    ranked = aggregate_frame(frame, aggregate, "due").drop(WINDOW)
    by_spark = {row["share"]: json.loads(row["first"]) for row in ranked.collect()}
    code = KeyedCode("rank", aggregate)
    table = pa.Table.from_pylist([dict(zip(("share", "n", "word"), row, strict=True)) for row in rows], code.takes)
    assert by_spark == {row["share"]: json.loads(row["first"]) for row in sample_groups(code, table).to_pylist()}
    assert by_spark["a"] == [{"count": 5, "value": "c"}, {"count": 2, "value": "b"}]
    merging = Aggregate(
        outputs={"all": "ranking_3(first)"}, fields="first string, at double", time="at", window_seconds=9
    )
    more = ranked.selectExpr("first", "1.0D AS at").union(
        session.createDataFrame([("[", 1.0)], "first string, at double")
    )
    (merged,) = aggregate_frame(more, merging, "due").collect()
    assert json.loads(merged["all"]) == [*by_spark["a"], *by_spark["b"]]
