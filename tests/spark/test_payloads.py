"""Payloads there and back: what one bundle sends is what the next one gets."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.payloads import cannot_travel, of_text, to_text
from penstock.spark.tuple_files import read_tuples, write_tuples
from penstock.spark.tuples import Tuple

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=-7, minutes=30))))
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(payload=st.dictionaries(st.text(), VALUES))
def test_there_and_back(payload: dict[str, Any]) -> None:
    assert of_text(to_text(payload)) == payload
    assert cannot_travel(payload) is None


@given(payload=st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_what_json_can_hold_is_plain_json(payload: dict[str, Any]) -> None:
    assert json.loads(to_text(payload)) == payload


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (np.int64(3), 3),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.datetime64("2026-01-02T03:04:05", "s"), datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - numpy's has no zone
        (pd.Timestamp("2026-01-02T03:04:05Z"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (pd.NaT, None),
        ((1, 2), [1, 2]),
        ({5}, [5]),
        (bytearray(b"\xff"), b"\xff"),
        (timedelta(days=-1, microseconds=1), timedelta(days=-1, microseconds=1)),
        (Decimal("0.10"), Decimal("0.10")),
        (time(1, 2, 3), time(1, 2, 3)),
        (date(2026, 1, 2), date(2026, 1, 2)),
        (UUID(int=7), UUID(int=7)),
    ],
)
def test_values_json_does_not_know(value: Any, arrives: Any) -> None:
    (found,) = of_text(to_text({"value": value})).values()
    assert found == arrives
    assert type(found) is type(arrives)


def test_what_cannot_travel_is_named() -> None:
    assert cannot_travel({"it": object()}) == "a object cannot travel between slots"
    keys: dict[Any, int] = {b"key": 1}
    assert cannot_travel(keys) is not None
    itself: dict[str, Any] = {}
    itself["self"] = itself
    assert cannot_travel(itself) is not None
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"in": deep}
    assert cannot_travel(deep) is not None


def test_tuples_of_one_file_need_not_be_alike(tmp_path: Path) -> None:
    # the same key with other types, and other keys: none may come back with keys it did not have
    payloads: list[dict[str, Any]] = [{"a": b"\x00"}, {"a": 1}, {"b": date(2026, 1, 2)}, {}]
    write_tuples(tmp_path / "t.arrow", [Tuple(n, 0.0, 0, payload) for n, payload in enumerate(payloads)])
    assert [item.payload for item in read_tuples(tmp_path / "t.arrow", 0, 4)] == payloads
