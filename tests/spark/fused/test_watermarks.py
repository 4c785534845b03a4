"""A watermark holds for the column Spark means, however its name is written."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.spark.internals.watermarks import column_called, with_watermark


@pytest.mark.parametrize(
    ("name", "columns", "by_case", "column"),
    [
        ("ts", ["a", "ts"], False, "ts"),
        ("TS", ["a", "ts"], False, "ts"),
        ("ts", ["Ts", "ts"], False, "ts"),
        ("TS", ["a", "ts"], True, None),
        ("ts", ["a", "ts"], True, "ts"),
        ("ts", ["a"], False, None),
    ],
)
def test_a_name_finds_the_column_spark_finds(name: str, columns: list[str], by_case: bool, column: str | None) -> None:
    assert column_called(name, columns, by_case=by_case) == column


def test_a_watermark_with_other_capitals_holds(session: Any) -> None:
    built = (
        penstock.pipeline("p").source("in", format="rate", watermark=("TimeStamp", "30 seconds")).sink("out").build()
    )
    frame = with_watermark(built, "in", session.readStream.format("rate").load())
    assert "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()
