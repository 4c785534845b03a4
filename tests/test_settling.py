"""When a run has settled."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from penstock.dataflow.load import Load
from penstock.report.report import (
    BatchObservation,
    became_faster,
    first_settled,
    notes_of_all,
    notes_under_load,
    settled_after,
)


def batches(*backlogs: int, tuples: int = 100) -> list[BatchObservation]:
    """One a second."""
    return [BatchObservation(1000.0 + at, tuples, backlog, np.array([]), {}, ()) for at, backlog in enumerate(backlogs)]


@pytest.mark.parametrize(
    ("backlogs", "least", "expected"),
    [
        # later 20 wait, and a batch holds 100: 300 and 200 are more, 110 is not
        ((300, 300, 200, 110, 60, 20, 20, 20, 20, 20, 20), 2.0, 3.0),
        ((300, 300, 200, 110, 60, 20, 20, 20, 20, 20, 20), 4.0, 4.0),
        # from the beginning on it is as it stays
        ((20,) * 10, 0.0, 0.0),
        # it falls behind for good: what waits never falls
        (tuple(range(0, 3000, 300)), 2.0, 2.0),
        # it takes until the end: half of it counts
        ((5000, 4500, 4000, 3500, 3000, 2500, 2000, 1500, 1000, 500, 0), 1.0, 5.0),
        ((7,), 3.0, 3.0),
        ((), 3.0, 3.0),
    ],
)
def test_what_gathered_at_the_start_has_been_worked_off(
    backlogs: tuple[int, ...], least: float, expected: float
) -> None:
    assert settled_after(batches(*backlogs), least) == expected


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        # 100 tuples each; the second half takes 0.4 s (median), 0.43 is as fast as that, 0.5 is not
        ((0.9, 0.6, 0.5, 0.43, 0.4, 0.4, 0.3, 0.4, 0.5), 4),
        # as fast from the second on as they stay
        ((0.4,) * 7, 1),
        # faster to the end: half of them count (eight with the first, which took no one knows how long)
        ((0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2), 4),
        # slower to the end: nothing is left out for that
        ((0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), 1),
        # too few to tell
        ((0.9, 0.4), 0),
        ((), 0),
    ],
)
def test_batches_have_settled_that_are_as_fast_as_those_of_the_second_half(
    took: tuple[float, ...], expected: int
) -> None:
    ends = accumulate(took, initial=1000.0)
    assert first_settled([BatchObservation(end, 100, 0, np.array([]), {}, ()) for end in ends]) == expected


@pytest.mark.parametrize(
    ("took", "expected"),
    [
        # the first, and of twelve those before the seventh, do not count: 0.5 is within a tenth of 0.5; 0.5 then 0.4
        ((0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4), None),
        ((0.9, 0.43, 0.43, 0.43, 0.43, 0.43, 0.43, 0.4, 0.4, 0.4, 0.4, 0.4), 1 - 0.4 / 0.43),
        # 2 % are nothing, nor is it to become slower
        ((0.9, 0.41, 0.41, 0.41, 0.41, 0.41, 0.41, 0.4, 0.4, 0.4, 0.4, 0.4), None),
        ((0.9, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5), None),
        # too few to tell
        ((0.9, 0.8, 0.7, 0.4, 0.3), None),
        ((), None),
    ],
)
def test_a_run_that_ends_while_java_compiles_still_becomes_faster(
    took: tuple[float, ...], expected: float | None
) -> None:
    ends = accumulate(took, initial=1000.0)
    faster = became_faster([BatchObservation(end, 100, 0, np.array([]), {}, ()) for end in ends])
    assert faster == (None if expected is None else pytest.approx(expected))


def test_it_is_said_that_a_run_still_became_faster() -> None:
    *_, last = notes_of_all(500, 2.0, 50, 40, faster=0.123)
    assert "12% less in the second half" in last
    assert len(notes_of_all(500, 2.0, 50, 40)) == 2


def test_a_load_is_steady_that_never_changes() -> None:
    assert Load.constant(5.0).is_steady
    assert not Load.on_off(5.0, 1.0, 1.0).is_steady


@pytest.mark.parametrize(
    ("settled", "sustained", "said"),
    [
        (5.0, 100.0, []),
        (7.6, 100.0, ["its first 8 s do not count"]),
        # 4 % more than the 100 that came
        (7.6, 104.0, ["it took in more than came"]),
        # fell behind
        (5.0, 70.0, []),
    ],
)
def test_a_run_says_what_of_it_does_not_count(settled: float, sustained: float, said: list[str]) -> None:
    notes = notes_under_load(5.0, settled, 100.0, sustained)
    assert [note[: len(words)] for note, words in zip(notes, said, strict=True)] == said


def test_a_run_over_all_there_is_says_how_much_of_it_counts() -> None:
    assert notes_of_all(1000, 12.34, 3, 3) == ["the input ended: all 1,000 tuples were taken in within 12.3 s"]
    assert notes_of_all(9, 1, 4, 3)[1] == (
        "its first batch does not count in rate and latency, 3 do: Spark was getting ready"
    )
    assert notes_of_all(9, 1, 30, 18)[1].startswith("its first 12 batches do not count in rate and latency, 18 do")
