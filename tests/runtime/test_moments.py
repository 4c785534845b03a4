"""Times in frames: without a zone, on the session's clock, as Spark's own Python has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.runtime.frame_calls import to_frame
from penstock.runtime.python_values import clock_of
from penstock.runtime.schema_inference import with_moments
from penstock.runtime.schemas import columns_to_schema, frame_to_schema, rows_to_columns

AMSTERDAM = "Europe/Amsterdam"
SUMMER = datetime(2026, 7, 1, 12, tzinfo=UTC)
"""14:00 there."""


def schema_of(zone: str | None) -> pa.Schema:
    return pa.schema([("at", pa.timestamp("us", tz=zone))])


def moments_of(frame: pd.DataFrame, zone: str | None = AMSTERDAM) -> list[datetime | None]:
    rows, misfits = frame_to_schema(frame, schema_of(zone))
    assert misfits == []
    return [None if at is None else at.astimezone(UTC) for at in rows["at"].to_pylist()]


@pytest.mark.parametrize(
    ("zone", "shown"),
    [(AMSTERDAM, "2026-07-01 14:00"), ("UTC", "2026-07-01 12:00"), ("+05:30", "2026-07-01 17:30")],
)
def test_a_frame_shows_the_sessions_clock(zone: str, shown: str) -> None:
    given = pa.table({"at": pa.array([SUMMER, None], pa.timestamp("us", tz=zone))})
    frame = to_frame(given)
    assert str(frame["at"].dtype) == "datetime64[ns]"
    assert frame["at"].tolist() == [pd.Timestamp(shown), pd.NaT]
    # what code sends on as it is, is the same moment
    assert moments_of(frame, zone) == [SUMMER, None]


def test_a_year_that_nanoseconds_do_not_reach_has_no_zone_either() -> None:
    far = datetime(9999, 7, 1, 12, tzinfo=UTC)
    frame = to_frame(pa.table({"at": pa.array([far], pa.timestamp("us", tz="UTC"))}))
    assert frame["at"].dt.tz is None
    assert moments_of(frame, "UTC") == [far]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("2026-07-01 14:00", SUMMER),
        (SUMMER, SUMMER),
        (SUMMER.astimezone(timezone(timedelta(hours=-4))), SUMMER),
        # 02:30 comes twice on 25 October: the second is 01:30 UTC
        ("2026-10-25 02:30", datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
        # 02:30 is left out on 29 March: the next there is is 03:00, 01:00 UTC
        ("2026-03-29 02:30", datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
        # Spark knows no nanoseconds
        (np.datetime64("2026-07-01T14:00:00.000000999"), SUMMER),
    ],
)
def test_what_a_frame_holds_is_of_the_sessions_clock_where_it_says_no_zone(made: Any, expected: datetime) -> None:
    assert moments_of(pd.DataFrame({"at": pd.Series([pd.Timestamp(made)])})) == [expected]


def test_datetimes_of_python_are_told_apart_one_by_one() -> None:
    plain = datetime(2026, 7, 1, 14)  # noqa: DTZ001 - without a zone on purpose
    frame = pd.DataFrame({"at": pd.Series([plain, SUMMER, None], dtype=object)})
    assert moments_of(frame) == [SUMMER, SUMMER, None]
    rows, misfits = rows_to_columns([{"at": plain}, {"at": SUMMER}, {"at": None}], schema_of(AMSTERDAM))
    assert misfits == []
    assert rows["at"].to_pylist() == [SUMMER, SUMMER, None]


def test_what_is_no_moment_keeps_its_numbers() -> None:
    frame = pd.DataFrame({"at": pd.to_datetime(["2026-07-01 14:00"])})
    rows, _ = frame_to_schema(frame, schema_of(None))
    assert rows["at"].to_pylist() == [datetime(2026, 7, 1, 14)]  # noqa: DTZ001 - without a zone on purpose


@pytest.mark.parametrize(
    ("made", "given", "expected"),
    [
        # handed on: as it was
        ({"at": None}, {"at": AMSTERDAM}, {"at": AMSTERDAM}),
        ({"at": None}, {"at": None}, {"at": None}),
        # new beside a moment: a moment too; beside one that is none it keeps to itself
        ({"later": None}, {"at": AMSTERDAM}, {"later": AMSTERDAM}),
        ({"later": None}, {"at": None}, {"later": None}),
        # says its zone
        ({"at": "UTC"}, {"at": AMSTERDAM}, {"at": "UTC"}),
    ],
)
def test_what_frames_seem_to_send_is_told_by_what_they_got(
    made: dict[str, str | None], given: dict[str, str | None], expected: dict[str, str | None]
) -> None:
    sent = pa.schema([(name, pa.timestamp("ns", tz=zone)) for name, zone in made.items()])
    got = pa.schema([(name, pa.timestamp("us", tz=zone)) for name, zone in given.items()])
    assert with_moments(sent, got) == pa.schema([(n, pa.timestamp("us", tz=zone)) for n, zone in expected.items()])


ON_THE_CLOCK = [
    (AMSTERDAM, datetime(2026, 7, 1, 14), SUMMER),  # noqa: DTZ001 - without a zone on purpose
    # 02:30 comes twice on 25 October: the second is 01:30 UTC
    (AMSTERDAM, datetime(2026, 10, 25, 2, 30), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),  # noqa: DTZ001
    # 02:30 is left out on 29 March: the next there is is 03:00, 01:00 UTC
    (AMSTERDAM, datetime(2026, 3, 29, 2, 30), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),  # noqa: DTZ001
    # in the year 2026 Kolkata is not 5:53:28 ahead, as it was in 1850
    ("Asia/Kolkata", datetime(2026, 7, 1, 17, 30), SUMMER),  # noqa: DTZ001
    ("+05:30", datetime(2026, 7, 1, 17, 30), SUMMER),  # noqa: DTZ001
]


@pytest.mark.parametrize("zones_of_pytz", [False, True])
@pytest.mark.parametrize(("zone", "shown", "expected"), ON_THE_CLOCK)
def test_rows_and_frames_read_the_same_clock(
    zone: str, shown: datetime, expected: datetime, zones_of_pytz: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if zones_of_pytz:  # as older Arrow has them
        monkeypatch.setattr(pa.lib, "string_to_tzinfo", pytz_of)
        clock_of.cache_clear()
    for value in (shown, pd.Timestamp(shown)):
        rows, misfits = rows_to_columns([{"at": value}, {"at": None}], schema_of(zone))
        assert misfits == []
        assert [at and at.astimezone(UTC) for at in rows["at"].to_pylist()] == [expected, None]
        for frame in (pd.DataFrame({"at": [value]}), pd.DataFrame({"at": pd.Series([value], dtype=object)})):
            assert moments_of(frame, zone) == [expected]
        for kind in (pa.timestamp("us"), pa.timestamp("ns")):
            table = pa.table({"at": pa.array([shown, None], kind)})
            columns, misfits = columns_to_schema(table, schema_of(zone))
            assert misfits == []
            assert [at and at.astimezone(UTC) for at in columns["at"].to_pylist()] == [expected, None]
    if zones_of_pytz:
        clock_of.cache_clear()


def pytz_of(zone: str, **_options: Any) -> Any:
    pytz = pytest.importorskip("pytz")
    return pytz.timezone(zone) if "/" in zone else pytz.FixedOffset(330)


@pytest.mark.parametrize(
    ("kind", "within"),
    [
        (lambda moment: pa.struct([("at", moment), ("n", pa.int64())]), lambda at: {"at": at, "n": 1}),
        (pa.list_, lambda at: [at, None]),
        (lambda moment: pa.map_(pa.string(), moment), lambda at: {"x": at}),
        (lambda moment: pa.map_(moment, pa.string()), lambda at: {at: "x"}),
        (
            lambda moment: pa.list_(pa.struct([("all", pa.map_(pa.string(), pa.list_(moment)))])),
            lambda at: [{"all": {"x": [at]}}, None],
        ),
    ],
    ids=["struct", "array", "map", "keys", "all of them"],
)
def test_times_inside_a_field_are_of_the_sessions_clock_too(kind: Any, within: Any) -> None:
    schema = pa.schema([("f", kind(pa.timestamp("us", AMSTERDAM)))])
    plain = datetime(2026, 7, 1, 14)  # noqa: DTZ001 - without a zone on purpose
    values = [within(plain), within(SUMMER), None]
    frame = pd.DataFrame({"f": pd.Series(values, dtype=object)})
    expected = pa.RecordBatch.from_arrays([pa.array([within(SUMMER)] * 2 + [None], schema.field("f").type)], ["f"])
    local = pa.array([within(plain)] * 2 + [None], kind(pa.timestamp("us")))
    for rows, misfits in (
        rows_to_columns([{"f": value} for value in values], schema),
        frame_to_schema(frame, schema),
        columns_to_schema(pa.table({"f": local}), schema),
        columns_to_schema(pa.RecordBatch.from_arrays([local], ["f"]), schema),
    ):
        assert misfits == []
        assert rows.equals(expected)
    rows, _ = columns_to_schema(pa.table({"f": local}).slice(1), schema)
    assert rows.equals(expected.slice(1))


@pytest.mark.parametrize("wrong", ["noon", 12, {"at": "noon"}, [("at",)]])
def test_what_is_of_another_shape_is_a_misfit(wrong: Any) -> None:
    moment = pa.timestamp("us", AMSTERDAM)
    for kind in (pa.list_(moment), pa.struct([("at", moment)]), pa.map_(pa.string(), moment)):
        rows, misfits = rows_to_columns([{"f": wrong}, {"f": None}], pa.schema([("f", kind), ("g", pa.int64())]))
        assert [(misfit.row, misfit.field.partition(".")[0]) for misfit in misfits] == [(0, "f")]
        assert rows.num_rows == 1


@pytest.mark.parametrize("zone", [AMSTERDAM, "+02:00", "UTC"])
@pytest.mark.parametrize("deep", [False, True])
def test_arrays_in_a_frame_show_the_sessions_clock(zone: str, deep: bool) -> None:
    kind = pa.list_(pa.timestamp("us", zone))
    arrays: list[Any] = [[SUMMER, None], None, []]
    given = pa.table({"f": pa.array([arrays] if deep else arrays, pa.list_(kind) if deep else kind)})
    frame = to_frame(given)
    first = frame["f"][0][0] if deep else frame["f"][0]
    shown = "2026-07-01T12:00" if zone == "UTC" else "2026-07-01T14:00"
    assert first.astype("datetime64[m]").astype(str).tolist() == [shown, "NaT"]
    # what code sends on as it is, or takes out, is the same moment
    rows, misfits = frame_to_schema(frame, given.schema)
    assert misfits == []
    assert rows.equals(given.to_batches()[0])
    if not deep:
        assert moments_of(frame.explode("f").rename(columns={"f": "at"}), zone) == [SUMMER, None, None, None]


def test_arrays_of_times_that_frames_seem_to_send_are_of_moments_where_they_got_moments() -> None:
    sent = pa.schema([("f", pa.list_(pa.timestamp("ns"))), ("local", pa.list_(pa.timestamp("us")))])
    got = pa.schema([("f", pa.list_(pa.timestamp("us", AMSTERDAM))), ("local", pa.timestamp("us"))])
    assert with_moments(sent, got) == pa.schema([got.field("f"), sent.field("local")])
