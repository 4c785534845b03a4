"""When a trial has seen enough, and what its source emits: arithmetic, no Spark."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.profiling.trial_search import MOST_SIZES, TrialSchedule, batch_spread
from penstock.profiling.trial_source import TrialSetting, next_offset
from penstock.profiling.trials import EngineCost
from penstock.report.report import BatchObservation, SlotObservation


class Clock:
    """Batches of an operator that takes `per_tuple` seconds on each of its threads, and an engine's 0.1 s for each."""

    def __init__(self, per_tuple: float, threads: int = 1) -> None:
        self.now = 0.0
        self._per_tuple = per_tuple
        self._threads = threads

    def batch(self, tuples: int) -> BatchObservation:
        rounds = -(-tuples // self._threads)
        wall = rounds * self._per_tuple
        self.now += wall + 0.1
        slot = SlotObservation(slot=0, cpu_seconds=wall, wall_seconds=wall, memory_mb=1.0)
        return BatchObservation(self.now, tuples, 0, np.array([]), {}, (slot,))


def saturated(per_tuple: float, threads: int, rows: int, seconds: float = 3.0) -> list[int]:
    """The sizes of all batches of a saturated trial, and how many of them came before it counted."""
    clock = Clock(per_tuple, threads)
    course = TrialSchedule(0.0, seconds, rows, batch_seconds=1.0, threads=threads)
    while not course.over:
        course.see(clock.batch(course.most_rows))
    assert course.counts_from is not None
    return [course.counts_from, *(batch.tuples for batch in course.batches)]


@pytest.mark.parametrize(
    ("per_tuple", "threads", "expected"),
    [
        # 50 ms: 1 tuple, 20 times as many fill the second, that batch is the reference, two more count
        (0.050, 1, [1, 1, 20, 20, 20]),
        # 0.1 ms: 1, 20, 400, 8,000 (0.8 s: large enough), tuned to 10,000
        (0.0001, 1, [3, 1, 20, 400, 8000, 10000, 10000]),
        # 0.55 s: two fill a second better than one
        (0.55, 1, [1, 1, 2, 2, 2]),
        # 0.55 s on 4 threads: 4 take 0.55 s, 7.3 would take a second: 8, so that no thread is idle
        (0.55, 4, [1, 4, 8, 8, 8]),
        # 5 s: batches cannot be smaller than a tuple for each thread; the first never counts
        (5.0, 2, [1, 2, 2, 2, 2]),
    ],
)
def test_batches_grow_until_they_hold_a_second_of_work(per_tuple: float, threads: int, expected: list[int]) -> None:
    assert saturated(per_tuple, threads, threads) == expected


def test_how_much_batches_vary() -> None:
    def batch(tuples: int, wall: float) -> BatchObservation:
        slot = SlotObservation(slot=0, cpu_seconds=wall, wall_seconds=wall, memory_mb=1.0)
        return BatchObservation(0.0, tuples, 0, np.array([]), {}, (slot,))

    # 9, 10 and 11 ms a tuple: a deviation of 1 ms; the batch of what was left says nothing
    batches = [batch(100, 0.9), batch(100, 1.0), batch(200, 2.2), batch(10, 5.0)]
    assert batch_spread([batch(100, 0.9), batch(100, 1.0), batch(100, 1.1), batch(10, 5.0)]) == pytest.approx(0.1)
    assert batch_spread(batches) is None
    assert batch_spread([]) is None


def test_batches_that_are_too_large_shrink_first() -> None:
    assert saturated(0.1, 1, 100) == [1, 100, 10, 10, 10]


def test_batches_whose_work_does_not_follow_their_size_end() -> None:
    """Code over columns does next to nothing, and Spark takes 1 us a tuple. Behind a million tuples, which it hands
    over at a time, the time Spark takes for the next counts as work."""

    def sizes(course: TrialSchedule) -> list[int]:
        at = 0.0
        while not course.over:
            rows = course.most_rows
            at += 0.1 + rows * 1e-6
            work = 1e-8 * rows + max(0, rows - 1_000_000) * jumps * 1e-6
            slot = SlotObservation(slot=0, cpu_seconds=work, wall_seconds=work, memory_mb=1.0)
            course.see(BatchObservation(at, rows, 0, np.array([]), {}, (slot,)))
        return [batch.tuples for batch in course.batches]

    jumps = 0.0
    # 10,000; 20 times as many; 200,000 come every 0.3 s: five times as many in 3 x 0.5 s; a million every 1.1 s, of
    # which at most 0.3 are any batch's: (1.5 - 0.3) / 0.8 = 1.5 times as many, near enough
    assert sizes(TrialSchedule(0.0, 3.0, 10_000, 0.5))[:4] == [10_000, 200_000, 1_000_000, 1_500_000]
    jumps = 20.0
    # 1.36 million seem 7 s of work, so the next hold 94,000, which seem none at all, and so on
    assert len(sizes(TrialSchedule(0.0, 3.0, 10_000, 0.5))) <= MOST_SIZES + 3


def test_a_trial_lasts_its_seconds() -> None:
    # batches of 1.1 s from the start: the first does not count, 5 s are over after the fifth
    clock = Clock(0.1)
    course = TrialSchedule(0.0, 5.0, 10)
    while not course.over:
        course.see(clock.batch(10))
    assert len(course.batches) == 5
    assert len(course.counted) == 5
    assert clock.now == pytest.approx(5.5)


SETTING = TrialSetting(number=2, operator="a", threads=1, rate=10.0, start=100.0, most_rows=15)


@pytest.mark.parametrize(
    ("setting", "start", "at", "expected"),
    [
        # a new trial counts from 0 whatever the last one emitted; 10 are due after a second
        (SETTING, {"trial": 1, "tuples": 777}, 101.0, {"trial": 2, "tuples": 10}),
        (SETTING, {"trial": 2, "tuples": 4}, 101.0, {"trial": 2, "tuples": 10}),
        # 40 are due, a batch takes 15
        (SETTING, {"trial": 2, "tuples": 4}, 104.0, {"trial": 2, "tuples": 19}),
        # nothing is due yet, nothing more is due
        (SETTING, {"trial": 1, "tuples": 777}, 99.0, {"trial": 1, "tuples": 777}),
        (SETTING, {"trial": 2, "tuples": 10}, 101.0, {"trial": 2, "tuples": 10}),
        (
            TrialSetting(2, "a", 1, 10.0, 100.0, 15, held=True),
            {"trial": 2, "tuples": 4},
            104.0,
            {"trial": 2, "tuples": 4},
        ),
    ],
)
def test_what_the_source_emits(
    setting: TrialSetting, start: dict[str, int], at: float, expected: dict[str, int]
) -> None:
    assert next_offset(setting, start, at) == expected


def test_of_two_looks_the_quicker_counts() -> None:
    cold, warm = EngineCost(0.3, 0.2, 0.1, 90.0, 2e-6, 1e-6, 2e-7), EngineCost(0.1, 0.15, 0.1, 95.0, 3e-6, 5e-7, 3e-7)
    assert cold.least(warm) == warm == warm.least(cold)
