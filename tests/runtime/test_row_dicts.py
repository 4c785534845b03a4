"""Rows as dicts are what Arrow makes of the same columns."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.row_dicts import row_dicts

MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(UTC))  # noqa: DTZ001 - zones follow


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Amsterdam", "+05:30"])
@given(moments=st.lists(st.none() | MOMENTS, max_size=5))
def test_points_in_time_are_as_arrow_has_them(unit: str, zone: str | None, moments: list[datetime | None]) -> None:
    if unit == "ns":  # it does not reach as far
        moments = [moment and moment.replace(year=2026, day=1) for moment in moments]
    whole = [moment and moment.replace(microsecond=0, tzinfo=UTC if zone else None) for moment in moments]
    columns = pa.RecordBatch.from_arrays(
        [pa.array(whole, pa.timestamp(unit, zone)), pa.array(range(len(whole)), pa.int64())], names=["at", "n"]
    )
    assert row_dicts(columns) == columns.to_pylist()
    assert [row["at"] and row["at"].tzinfo for row in row_dicts(columns)] == [
        row["at"] and row["at"].tzinfo for row in columns.to_pylist()
    ]


def test_other_columns_are_left_to_arrow() -> None:
    columns = pa.RecordBatch.from_pylist([{"a": "x", "b": [1, 2]}, {"a": None, "b": None}])
    assert row_dicts(columns) == [{"a": "x", "b": [1, 2]}, {"a": None, "b": None}]
