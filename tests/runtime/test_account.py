"""Accounts: what is counted adds up, and survives being sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.account import RELATIVE_ERROR, Account, AccountError, Histogram, IdBitmaps, OperatorCount, bitmap
from penstock.runtime.batch import Marks


def account(low: int, high: int) -> Account:
    made = Account(ids=IdBitmaps())
    made.entered(high - low, 8 * (high - low))
    made.passed("source", high - low)
    made.delivered("sink", Marks(np.arange(low, high), np.arange(low, high, dtype=np.float64)), high + 1.0)
    made.filtered("op", np.array([low]))
    made.operators["op"].add(OperatorCount(rows_in=1, busy_seconds=0.5))
    made.errors.append(("op", low, "ValueError: no"))
    return made


def test_accounts_add_up() -> None:
    total = account(0, 10)
    total.merge(account(10, 30))
    assert total.rows_in == 30
    assert total.bytes_in == 240
    assert total.operators["source"] == OperatorCount(rows_in=30, rows_out=30)
    assert total.operators["op"] == OperatorCount(rows_in=2, filtered=2, busy_seconds=1.0)
    assert len(total.latency["sink"]) == 30
    assert total.ids is not None
    assert set(total.ids.accounted()) == set(range(30))
    assert total.ids.duplicated == 0
    total.merge(account(25, 35))
    assert total.ids.duplicated == 5, "25 to 29 came before"


def test_an_account_survives_being_sent() -> None:
    sent = account(5, 50_000)
    data = sent.to_bytes()
    got = Account.from_bytes(data)
    assert got.to_bytes() == data
    assert got.operators == sent.operators
    assert got.ids == sent.ids
    assert got.errors == sent.errors
    assert len(data) < 3000, "a stretch of ids costs a few bytes"
    assert Account.from_bytes(Account().to_bytes()) == Account()


@pytest.mark.parametrize("data", [b"", b"{}", b"PnsA\x02\x00\x00\x00\x00", account(0, 3).to_bytes()[:-1]])
def test_what_is_no_account_is_refused(data: bytes) -> None:
    with pytest.raises(AccountError):
        Account.from_bytes(data)


def test_duplicates_are_counted_by_sink_and_path() -> None:
    ids = IdBitmaps()
    ids.delivered_at("a", Marks(np.array([1, 2, 2, -1, -1]), None, np.array([0, 0, 5, 0, 0])))
    assert ids.duplicated == 0
    ids.delivered_at("b", Marks(np.array([1, 2])))
    assert ids.duplicated == 0
    ids.delivered_at("a", Marks(np.array([2, 3, 3])))
    assert ids.duplicated == 2, "2 again, 3 twice"


@given(st.lists(st.integers(-2, 300)))
def test_bitmaps_hold_the_ids_that_are_known(ids: list[int]) -> None:
    for given_ids in (ids, sorted(set(ids)), list(range(len(ids)))):
        found, count = bitmap(np.array(given_ids, np.int64))
        assert set(found) == {number for number in given_ids if number >= 0}
        assert count == sum(number >= 0 for number in given_ids)


@given(st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=200), st.floats(0.0, 1.0))
def test_quantiles_are_as_near_as_is_said(seconds: list[float], share: float) -> None:
    half = len(seconds) // 2
    histogram, other = Histogram(), Histogram()
    histogram.add(np.array(seconds[:half]))
    other.add(np.array(seconds[half:]))
    histogram.merge(other)
    assert len(histogram) == len(seconds)
    exact = sorted(seconds)[max(1, int(np.ceil(share * len(seconds)))) - 1]
    found = histogram.quantile(share)
    assert found is not None
    assert abs(found - exact) <= RELATIVE_ERROR * exact


def test_what_lies_outside_is_counted_at_the_edge() -> None:
    histogram = Histogram()
    histogram.add(np.array([-1.0, 0.0, 1e9]))
    assert len(histogram) == 3
    assert Histogram.of(histogram.counts()).counts() == histogram.counts()
    assert Histogram().quantile(0.5) is None


def test_what_nobody_knows_the_due_time_of_is_of_no_latency() -> None:
    histogram = Histogram()
    histogram.add(np.array([1.0, np.nan, 2.0]))
    histogram.add(np.array([np.nan]))
    assert len(histogram) == 2
