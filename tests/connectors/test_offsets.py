from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import Span
from penstock.connectors.offsets import (
    Piece,
    admitted,
    begun_anew,
    cut_evenly,
    lag,
    pieces_between,
    resolved,
    went_back,
)

SPANS = {"t": {0: Span(10, 110), 1: Span(0, 40), 2: Span(5, 5)}}


def test_where_to_begin() -> None:
    assert resolved("earliest", SPANS, "s") == {"t": {"0": 10, "1": 0, "2": 5}}
    assert resolved("latest", SPANS, "s") == {"t": {"0": 110, "1": 40, "2": 5}}
    # as Spark's connector has it: -2 is the first, -1 the end; what is not said begins with the first
    assert resolved('{"t": {"0": 50, "1": -1}}', SPANS, "s") == {"t": {"0": 50, "1": 40, "2": 5}}
    with pytest.raises(BadInputError, match="source 's': startingOffsets"):
        resolved("yesterday", SPANS, "source 's'")
    with pytest.raises(BadInputError, match="topic 't', partition 1 ends at 40, found 41"):
        resolved('{"t": {"1": 41}}', SPANS, "s")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ('{"tt": {"0": 50}}', "s: startingOffsets: the source does not read topic 'tt'; did you mean 't'? known: t"),
        ('{"t": {"3": 0}}', "s: startingOffsets: topic 't' has no partition 3, it has 3"),
        ('{"t": {"0": -3}}', r"topic 't', partition 0: expected an offset, -1 \(latest\) or -2 \(earliest\), found -3"),
    ],
)
def test_what_names_nothing_is_not_passed_over(asked: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint.replace("?", r"\?")):
        resolved(asked, SPANS, "s")


def test_a_batch_is_bounded_in_proportion_to_what_waits() -> None:
    # 100 wait in one, 40 in the other: of 70, floor(70 * 100 / 140) = 50 and floor(70 * 40 / 140) = 20
    assert admitted({"t": {"0": 10, "1": 0, "2": 5}}, SPANS, 70) == {"t": {"0": 60, "1": 20, "2": 5}}
    # of 71: 50.7 and 20.3, and the one that is left goes to the longer queue
    assert admitted({"t": {"0": 10, "1": 0, "2": 5}}, SPANS, 71) == {"t": {"0": 61, "1": 20, "2": 5}}
    assert admitted({}, SPANS, 1000) == {"t": {"0": 110, "1": 40, "2": 5}}


def test_a_partition_that_is_new_begins_with_its_first_message() -> None:
    found = pieces_between({"t": {"1": 30}}, {"t": {"0": 20, "1": 40}}, SPANS)
    assert found == [Piece("t", 0, 10, 20), Piece("t", 1, 30, 40)]
    with pytest.raises(BadInputError, match="no partition 7 any more"):
        pieces_between({}, {"t": {"7": 1}}, SPANS)


def test_logs_that_went_back_are_known_and_begun_anew() -> None:
    reached = {"t": {"0": 110, "1": 41, "2": 4, "3": 7}}
    gone = list(went_back(reached, SPANS))
    assert [(error.partition, error.wanted, error.first) for error in gone] == [(1, 41, 0), (3, 7, 0)]
    assert "partition 1 ends at offset 40, and it was read up to 41: it was made anew" in str(gone[0])
    assert "partition 3 is not there any more, and it was read up to 7" in str(gone[1])
    anew = begun_anew(reached, gone)
    assert anew == {"t": {"0": 110, "2": 4}}
    end = admitted(anew, SPANS, 1000)
    assert end == {"t": {"0": 110, "1": 40, "2": 5}}
    # what a batch reads follows from its two ends, whenever it is run again
    assert set(pieces_between(reached, end, SPANS)) == {Piece("t", 1, 0, 40), Piece("t", 2, 4, 5)}


def test_lag() -> None:
    assert lag({"t": {"0": 60, "1": 40}}, {"t": {"0": 110, "1": 40, "2": 7}}) == {"t/0": 50, "t/1": 0, "t/2": 7}


SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=6)


@given(SIZES, st.integers(1, 9))
def test_tasks_read_everything_once_and_equally(sizes: list[int], shares: int) -> None:
    pieces = [Piece("t", number, 100, 100 + size) for number, size in enumerate(sizes)]
    cut = cut_evenly(pieces, shares)
    read = [(piece.partition, offset) for share in cut for piece in share for offset in range(piece.first, piece.end)]
    assert sorted(read) == [(p.partition, offset) for p in pieces for offset in range(p.first, p.end)]
    counts = [sum(piece.messages for piece in share) for share in cut]
    assert max(counts) - min(counts) <= 1


@given(SIZES, st.integers(1, 100))
def test_what_is_admitted_is_bounded_and_used_up(sizes: list[int], most: int) -> None:
    spans = {"t": {number: Span(0, size) for number, size in enumerate(sizes)}}
    taken = list(admitted({}, spans, most)["t"].values())
    assert sum(taken) == min(most, sum(sizes))
    assert all(end <= size for end, size in zip(taken, sizes, strict=True))
