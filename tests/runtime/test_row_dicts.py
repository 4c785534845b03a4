"""Rows as dicts are what Arrow makes of the same columns."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.logic import Logic, OnError, Per
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.dead_letters import DEAD_LETTERS, StoppedError
from penstock.runtime.row_values import readable_rows, row_dicts, written_rows
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.steps import Step

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


TALLY = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TALLY, {"a": 1, "b": None}),
        (TALLY, {}),
        (pa.list_(TALLY), [{"a": 1}, None, {}]),
        (pa.struct([("m", TALLY), ("n", pa.int64())]), {"m": {"a": 1}, "n": 2}),
        (pa.map_(pa.int64(), TALLY), {1: {"a": 2}}),
    ],
)
def test_maps_are_dicts_as_in_sparks_own_python(kind: pa.DataType, value: Any) -> None:
    columns = pa.RecordBatch.from_arrays([pa.array([value, None], kind), pa.array([1, 2])], names=["f", "n"])
    assert row_dicts(columns) == [{"f": value, "n": 1}, {"f": None, "n": 2}]


MIXED = pa.schema(
    [
        ("tally", TALLY),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "Europe/Amsterdam")),
        ("local", pa.timestamp("us")),
    ]
)
ROW = {
    "tally": {"a": 1},
    "price": Decimal("1.10"),
    "at": datetime(2026, 7, 1, 12, tzinfo=UTC),
    "local": datetime(2026, 7, 1, 12),  # noqa: DTZ001 - Spark's timestamp_ntz
}


def kinds_of_row(row: dict[str, Any]) -> dict[str, Any]:
    """Whether each value is what docs/operators.md says; back it goes as it came."""
    assert row == ROW
    assert str(row["at"]) == "2026-07-01 14:00:00+02:00"
    return row


def kinds_of_frame(frame: pd.DataFrame) -> pd.DataFrame:
    assert frame.tally[0] == {"a": 1}
    assert frame.price[0] == Decimal("1.10")
    assert frame["at"].tolist() == [pd.Timestamp("2026-07-01 14:00")]
    assert frame["local"].tolist() == [pd.Timestamp("2026-07-01 12:00")]
    return frame


@pytest.mark.parametrize(
    "logic",
    [
        Logic(kinds_of_row),
        Logic(kinds_of_frame, Per.PANDAS),
        Logic(lambda frames: map(kinds_of_frame, frames), Per.MAP_IN_PANDAS),
    ],
    ids=["row", "pandas", "map-in-pandas"],
)
def test_code_gets_and_gives_values_of_sparks_types(logic: Logic) -> None:
    rows = pa.RecordBatch.from_pylist([ROW], schema=MIXED)
    segment = Segment([Step("op", logic, leaves=True)])
    ((_, made),) = segment.process([Batch(rows)])
    assert segment.take_account().errors == []
    segment.close()
    assert made.rows.equals(rows)


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 12), ("Europe/Amsterdam", 10)])
@pytest.mark.parametrize("per", [Per.ROW, Per.PANDAS])
def test_a_time_without_a_zone_is_of_the_sessions_clock(zone: str, hour: int, per: Per) -> None:
    """As docs/operators.md says."""
    noon = datetime(2026, 7, 1, 12)  # noqa: DTZ001 - that is the case
    logic = Logic((lambda _: {"at": noon}) if per is Per.ROW else (lambda frame: frame.assign(at=noon)), per)
    schema = pa.schema([("at", pa.timestamp("us", zone))])
    segment = Segment([Step("op", logic, leaves=True, schema=schema)])
    ((_, made),) = segment.process([Batch(pa.RecordBatch.from_pylist([{"at": None}], schema=schema))])
    segment.close()
    assert made.rows.column("at").to_pylist() == [noon.replace(hour=hour, tzinfo=UTC)]


YEAR_10000 = 253_402_300_800_000_000
"""Microseconds since 1970, to its first in UTC."""
FAR = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "America/New_York"))])


def far_rows(schema: pa.Schema = FAR) -> pa.RecordBatch:
    """In New York the second is at 23:59:59 on the last day of 9999."""
    numbers = pa.array([0, YEAR_10000 + (5 * 3600 - 1) * 1_000_000, 2])
    return pa.RecordBatch.from_arrays([pa.array([0, 1, 2]), numbers.cast(schema.field("at").type)], schema=schema)


def raises_at_1(frame: pd.DataFrame) -> pd.DataFrame:
    if (frame.n == 1).any():
        raise ValueError("not this one")
    return frame


@pytest.mark.parametrize(
    ("logic", "error", "field"),
    [
        (Logic(lambda row: row), "field 'at': no value of Python's: date value out of range", "at"),
        (Logic(raises_at_1, Per.PANDAS), "ValueError: not this one", None),
    ],
    ids=["row", "pandas"],
)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_time_that_python_has_no_value_for_is_put_aside_alone(
    logic: Logic, error: str, field: str | None, threads: int
) -> None:
    segment = Segment([Step("op", logic, threads, leaves=True)], SegmentOptions(audit=True, emit_dead_letters=True))
    left: dict[str, list[Batch]] = {}
    for operator, batch in segment.process([Batch(far_rows(), Marks(np.array([10, 11, 12])))]):
        left.setdefault(operator, []).append(batch)
    made = {operator: Batch.concat(batches) for operator, batches in left.items()}
    account = segment.take_account()
    segment.close()
    assert sorted(made["op"].rows.column("n").to_pylist()) == [0, 2]
    assert made["op"].ids is not None
    assert sorted(made["op"].ids.tolist()) == [10, 12]
    assert made[DEAD_LETTERS].rows.to_pylist() == [
        {
            "operator": "op",
            "id": 11,
            "row": '{"n": 1, "at": "10000-01-01 04:59:59.000000 UTC"}',
            "error": error,
            "field": field,
        }
    ]
    assert (account.operators["op"].rows_in, account.operators["op"].dead) == (3, 1)


def test_code_may_stop_at_a_row_that_cannot_be_read() -> None:
    segment = Segment([Step("op", Logic(lambda row: row, on_error=OnError.STOP), leaves=True)])
    with pytest.raises(StoppedError, match="operator 'op': field 'at': no value of Python's"):
        list(segment.process([Batch(far_rows())]))
    segment.close()


def test_only_what_cannot_be_read_is_written_as_text() -> None:
    times = far_rows().column("at")
    structs = pa.StructArray.from_arrays([times, pa.array([{"a": 1}] * 3, TALLY)], names=["at", "m"])
    by_time = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3]), times, pa.array(["x", "y", "z"]))
    arrays = pa.ListArray.from_arrays(pa.array([0, 0, 2, 3]), times)
    text = pa.array([b"a", b"\xff", b"c"]).cast(pa.string(), safe=False)
    days = pa.array([0, 3_000_000, 1], pa.int32()).cast(pa.date32())
    columns = {"s": structs, "m": by_time, "a": arrays, "t": text, "d": days}
    rows = pa.RecordBatch.from_pydict(columns)
    assert readable_rows(rows)[0] == row_dicts(rows.take(pa.array([0, 2])))
    far = "10000-01-01 04:59:59.000000 UTC"
    assert written_rows(rows)[1] == {
        "s": {"at": far, "m": {"a": 1}},
        "m": {far: "y"},
        "a": [times[0].as_py(), far],
        "t": "\\xff",
        "d": "10183-09-21",
    }
    for name in columns:
        _, misfits = readable_rows(rows.select([name]))
        assert [(misfit.row, misfit.field) for misfit in misfits] == [(1, name)]
