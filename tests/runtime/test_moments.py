"""Times in frames: without a zone, on the session's clock, as Spark's own Python has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.runtime.sampling import with_moments
from penstock.runtime.schemas import frame_to_schema, rows_to_columns
from penstock.runtime.vectorised import to_frame

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
