"""pandas code that works with times, brought along from a `mapInPandas`: it gets and gives what it did there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import penstock
from penstock.spark.internals.plans import arrow_of

ZONE = "America/New_York"
SCHEMA = "at timestamp, hour int, late boolean"
MOMENTS = [datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 12, 1, 3, 30, tzinfo=UTC)]
"""08:00 in summer and 22:30 of the day before in winter, there."""


def an_hour_later(frame: pd.DataFrame) -> pd.DataFrame:
    later = frame["at"] + pd.Timedelta(hours=1)
    return pd.DataFrame({"at": later, "hour": later.dt.hour, "late": frame["at"] > pd.Timestamp("2026-10-01")})


def an_hour_later_each(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    return map(an_hour_later, frames)


@pytest.fixture
def session_in_zone(session: Any) -> Iterator[Any]:
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", ZONE)
    yield session
    session.conf.set("spark.sql.session.timeZone", before)


def test_pandas_code_has_the_clock_it_had(session_in_zone: Any, tmp_path: Path) -> None:
    session = session_in_zone
    source, out = tmp_path / "in", tmp_path / "out"
    session.createDataFrame([(at,) for at in MOMENTS], "at timestamp").coalesce(1).write.parquet(str(source))
    by_hand = session.read.parquet(str(source)).mapInPandas(an_hour_later_each, SCHEMA)

    p = penstock.pipeline("clock").source("in", format="parquet", options={"path": str(source)}, schema="at timestamp")
    p.then("later", logic=an_hour_later, per="pandas", schema=SCHEMA)
    # behind code that says its schema, and without one of its own
    p.then("same", logic=lambda frame: frame[frame["at"] > pd.Timestamp("2026-01-01")], per="pandas")
    p.sink("out", reads="same", format="parquet", options={"path": str(out)})
    result = penstock.run(p, session=session, slots=1, until_end=True)

    assert result.report.audit.dead == 0
    made = sorted(session.read.parquet(str(out)).select("at", "hour", "late").collect())
    assert made == sorted(by_hand.collect())
    assert [row["hour"] for row in made] == [9, 23]
    assert [row["late"] for row in made] == [False, True]


def test_a_spark_that_does_not_ask_for_the_zone_gets_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 4.1 its schemas say UTC, while the batches it hands out say the session's zone."""

    def to_arrow_schema(_struct: Any) -> pa.Schema:
        return pa.schema([("at", pa.timestamp("us", "UTC")), ("all", pa.list_(pa.timestamp("us", "UTC")))])

    monkeypatch.setattr("pyspark.sql.pandas.types.to_arrow_schema", to_arrow_schema)
    expected = [("at", pa.timestamp("us", ZONE)), ("all", pa.list_(pa.timestamp("us", ZONE)))]
    assert arrow_of(StructType(), ZONE) == pa.schema(expected)
