"""Which trials are run, and what becomes of them: decided without Spark, on benches that know their capacities."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from penstock.profiling.trial_search import (
    QUICK,
    THOROUGH,
    Limits,
    PeakSearch,
    ProfileSettings,
    TrialSearch,
    gained,
    least_sure,
    peak_of,
    point_of,
    profile,
    quickening,
    still_rises,
    thread_counts,
)
from penstock.profiling.trials import Trial


@dataclass
class KnownBench:
    """A slot that keeps up with `capacity[threads]` tuples/s, and does `surplus` times as much when saturated.

    It is at work for `1 / capacity` seconds on a tuple, so `busy = rate / capacity`.
    """

    capacity: dict[int, float]
    surplus: float = 1.04
    tried: list[tuple[int, float]] = field(default_factory=list)

    def _capacity(self, threads: int) -> float:
        return self.capacity[max(count for count in self.capacity if count <= threads)]

    def saturate(self, threads: int, seconds: float) -> Trial:
        assert seconds > 0
        rate = self._capacity(threads) * self.surplus
        return Trial(threads, rate, stable=False, cpu=1.0, memory_mb=100, operator_cpu=0.8, busy=1.0)

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        assert seconds > 0
        self.tried.append((threads, rate))
        load = rate / self._capacity(threads)
        return Trial(
            threads,
            min(rate, self._capacity(threads)),
            load <= 1,
            cpu=min(1.0, load),
            memory_mb=100,
            operator_cpu=0.8 * min(1.0, load),
            busy=min(1.0, load / self.surplus),
        )


class NoisyBench(KnownBench):
    """What a trial sees of the capacity is off by some per cent, another amount every time."""

    def __init__(self, capacity: dict[int, float], seed: int, deviation: float) -> None:
        super().__init__(capacity)
        self._random = np.random.default_rng(seed)
        self._deviation = deviation

    def _capacity(self, threads: int) -> float:
        return super()._capacity(threads) * float(self._random.normal(1, self._deviation))


class ColdBench(KnownBench):
    """A slot whose first `cold` trials are slow by `factor`: it is longer at work on every tuple."""

    def __init__(self, capacity: dict[int, float], cold: int, factor: float) -> None:
        super().__init__(capacity)
        self._cold = cold
        self._factor = factor

    def _capacity(self, threads: int) -> float:
        return super()._capacity(threads) / (self._factor if self._cold > 0 else 1)

    def saturate(self, threads: int, seconds: float) -> Trial:
        trial = super().saturate(threads, seconds)
        self._cold -= 1
        return trial

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        trial = super().try_rate(threads, rate, seconds)
        self._cold -= 1
        return trial


class RestlessBench(KnownBench):
    """Its cores are up to 15 % faster or slower than 1,000 pieces of work a second, anew in every trial."""

    def __init__(self, capacity: dict[int, float], seed: int) -> None:
        super().__init__(capacity, surplus=1.0)
        self._random = np.random.default_rng(seed)
        self._pace = 1000.0

    def _capacity(self, threads: int) -> float:
        return super()._capacity(threads) * self._pace / 1000

    def saturate(self, threads: int, seconds: float) -> Trial:
        self._pace = 1000 * self._random.uniform(0.85, 1.15)
        return replace(super().saturate(threads, seconds), operator_cpu=1.0, pace=self._pace)

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        self._pace = 1000 * self._random.uniform(0.85, 1.15)
        return replace(super().try_rate(threads, rate, seconds), pace=self._pace)


def never() -> bool:
    return False


def always() -> bool:
    return True


NEVER, ALWAYS = Limits(never, never), Limits(always, always)


def test_the_peak_is_bracketed_within_the_precision() -> None:
    bench = KnownBench({1: 100.0})
    found = peak_of(bench, 1, ProfileSettings(precision=0.05), never)
    assert found.stable
    assert 95 <= found.rate <= 100
    assert len(bench.tried) <= 4


@pytest.mark.parametrize(("surplus", "trials"), [(1.0, 1), (1.1, 4), (1.2, 4), (1.35, 5)])
def test_a_slot_that_does_more_when_saturated_than_it_keeps_up_with(surplus: float, trials: int) -> None:
    bench = KnownBench({1: 100.0}, surplus)
    found = peak_of(bench, 1, ProfileSettings(precision=0.05), never)
    assert found.stable
    # bisection ends with a bracket of 5 % of its upper end, which is at most 5 % above the truth
    assert 94 <= found.rate <= 100
    assert len(bench.tried) <= trials


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_slot(seed: int) -> None:
    # trials off by 3 %: one in a hundred is off by 8 %, and a search of five trials makes its errors in a row seldom
    found = peak_of(NoisyBench({1: 100.0}, seed, 0.03), 1, ProfileSettings(precision=0.05), never)
    assert 85 <= found.rate <= 110


def test_several_noisy_repeats_are_nearer_than_one() -> None:
    settings = ProfileSettings(precision=0.05, most_threads=1, refine=False)

    def errors(repeats: int) -> float:
        found = [
            list(profile(NoisyBench({1: 100.0}, seed, 0.05), replace(settings, repeats=repeats), 1000.0, [], NEVER))[-1]
            for seed in range(20)
        ]
        rates = np.array([point.rate for point in found])
        return float(rates.std())

    assert errors(5) < errors(1)


@pytest.mark.parametrize(("cold", "factor"), [(1, 1.2), (1, 1.5), (1, 3.0)])
def test_a_slot_that_is_slow_at_first(cold: int, factor: float) -> None:
    found = peak_of(ColdBench({1: 100.0}, cold, factor), 1, ProfileSettings(precision=0.05), never)
    assert found.stable
    assert 94 <= found.rate <= 100


@pytest.mark.parametrize("seed", range(20))
def test_cores_of_another_pace_in_every_trial(seed: int) -> None:
    bench = RestlessBench({1: 100.0}, seed)
    found = peak_of(bench, 1, ProfileSettings(precision=0.02), never)
    assert found.pace is not None
    # all it does is CPU: 100 tuples/s at 1,000 pieces a second
    assert 0.95 <= found.rate / (found.pace / 10) <= 1.001
    assert len(bench.tried) <= 10


def test_what_a_slot_does_at_another_pace() -> None:
    # it waits half of the time: cores twice as fast save a quarter, 1 / 0.75
    trial = Trial(1, 50, stable=True, cpu=1, memory_mb=0, operator_cpu=0.5, busy=1.0, pace=1000.0)
    assert gained(trial, 2000.0) == pytest.approx(4 / 3)
    # it got half of the core it wanted all the time: twice as much
    assert gained(replace(trial, given=0.5), 2000.0) == pytest.approx(2)
    # a tenth of the time the engine was at work: 0.6 of it is CPU
    assert gained(replace(trial, busy=0.9), 2000.0) == pytest.approx(1 / 0.7)
    assert gained(trial, None) == 1


def test_a_pace_read_wrongly_makes_no_slot_do_more_than_saturated() -> None:
    search = PeakSearch(Trial(1, 100, stable=False, cpu=1, memory_mb=0, operator_cpu=1.0, pace=1000.0), 0.02)
    # stable at 98 on cores that seemed to be slower by 8 %: 106.5 at 1,000
    search.see(search.offer, Trial(1, 98, stable=True, cpu=1, memory_mb=0, operator_cpu=1.0, pace=920.0))
    peak = search.peak()
    assert peak.pace == 960
    assert peak.rate == pytest.approx(0.98 * 100 * 0.96)


def test_quickening() -> None:
    # saturated: 50 tuples/s, at work all the time, 20 ms each; later 40/s at work half of it, 12.5 ms each: 1.6 times
    before = Trial(1, 50, stable=False, cpu=1, memory_mb=0, busy=1.0)
    after = Trial(1, 40, stable=True, cpu=1, memory_mb=0, busy=0.5)
    assert quickening(before, after) == pytest.approx(1.6)
    assert quickening(before, before) == 1


def test_a_spent_budget_takes_the_rate_it_would_have_tried_next() -> None:
    found = peak_of(KnownBench({1: 100.0}), 1, ProfileSettings(), always)
    # saturated 104 with one core, nothing tried: 2 % less of both
    assert found.rate == pytest.approx(0.98 * 104)
    assert found.cpu == pytest.approx(0.98)
    assert found.operator_cpu == pytest.approx(0.98 * 0.8)


@pytest.mark.parametrize(
    ("peaks", "following"),
    [
        ({}, 1),
        ({1: 10}, 2),
        ({1: 10, 2: 20}, 4),
        # no more than 5 % better: stop doubling; the gap 1 to 2 holds no whole number
        ({1: 10, 2: 10.2}, None),
        # best at 8, falls to 16: look between 4 and 8, then between 8 and 16
        ({1: 10, 2: 20, 4: 40, 8: 60, 16: 50}, 6),
        ({1: 10, 2: 20, 4: 40, 6: 52, 8: 60, 16: 50}, 12),
        ({1: 10, 2: 20, 4: 40, 6: 52, 8: 60, 12: 58, 16: 50}, None),
    ],
)
def test_threads_double_then_gaps_are_halved(peaks: dict[int, float], following: int | None) -> None:
    assert thread_counts(peaks, ProfileSettings(most_threads=64)) == following


@pytest.mark.parametrize(
    ("peaks", "following"),
    [({}, 1), ({1: 10}, 4), ({1: 10, 4: 40}, 16), ({1: 10, 4: 10.5}, None), ({1: 10, 4: 40, 16: 90, 256: 120}, None)],
)
def test_a_quick_profile_takes_every_fourth_power_and_does_not_refine(
    peaks: dict[int, float], following: int | None
) -> None:
    assert thread_counts(peaks, QUICK) == following


class CoreBoundBench(KnownBench):
    """One thread keeps the core busy; that two seem to do more is the machine's doing."""

    def saturate(self, threads: int, seconds: float) -> Trial:
        return replace(super().saturate(threads, seconds), operator_cpu=0.95)

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        trial = super().try_rate(threads, rate, seconds)
        return replace(trial, operator_cpu=0.95 * trial.busy)


def test_one_count_beyond_a_core_that_is_busy_is_enough() -> None:
    bench = CoreBoundBench({1: 100.0, 2: 120.0, 4: 140.0})
    found = [point.threads for point in profile(bench, ProfileSettings(), 1000.0, [], NEVER)]
    assert set(found) == {1, 2}
    # what an earlier profile found counts as well
    one = next(profile(bench, ProfileSettings(), 1000.0, [], NEVER))
    assert {point.threads for point in profile(bench, ProfileSettings(), 1000.0, [one], NEVER)} == {2}
    # 1 and 4 saturated, then the peak of 4; 16 threads would do still more
    wider = CoreBoundBench({1: 100.0, 4: 140.0, 16: 190.0})
    assert [point.threads for point in profile(wider, QUICK, 1000.0, [], NEVER)] == [1, 4, 4]


def test_a_quick_profile_repeats_its_search_too() -> None:
    *_, best = profile(KnownBench({1: 100.0, 4: 80.0}), replace(QUICK, repeats=2), 1000.0, [], NEVER)
    assert best.rate_spread == 0


def test_known_points_are_not_measured_again() -> None:
    bench = KnownBench({1: 10.0, 2: 20.0, 4: 20.5})
    first = list(profile(bench, ProfileSettings(), 1000.0, [], NEVER))
    # all are looked at; 2 and 4 are near the best, so their peaks are measured three times; that of 1 is not
    assert [point.threads for point in first] == [1, 2, 4, 4, 2, 4, 2, 4, 2]
    bench.tried.clear()
    assert list(profile(bench, ProfileSettings(), 1000.0, first, NEVER)) == []
    assert bench.tried == []


class DisturbedBench(KnownBench):
    """While its peak is searched for the first time the slot does half as much, and says so in no way."""

    searches = 0

    def _capacity(self, threads: int) -> float:
        return super()._capacity(threads) * (0.5 if self.searches == 2 else 1.0)

    def saturate(self, threads: int, seconds: float) -> Trial:
        self.searches += 1
        return super().saturate(threads, seconds)


def test_a_disturbed_point_is_outvoted_while_there_is_budget() -> None:
    *_, last = profile(DisturbedBench({1: 100.0}), ProfileSettings(most_threads=1), 1000.0, [], NEVER)
    assert last.rate == pytest.approx(100, rel=0.05)
    assert last.rate_spread is not None
    assert last.rate_spread > 20


def test_a_spent_budget_ends_with_the_point_under_way() -> None:
    assert [point.threads for point in profile(KnownBench({1: 10.0, 2: 20.0}), THOROUGH, 1000.0, [], ALWAYS)] == [1]


def test_a_quick_profile_looks_at_all_counts_and_searches_the_best() -> None:
    bench = KnownBench({1: 100.0, 4: 80.0})
    one, four, best = profile(bench, QUICK, 1000.0, [], NEVER)
    # saturated 104 and 83.2, taken to keep up with 5 % less; 100 is between 98.8 and 104
    assert (one.rate, four.rate) == pytest.approx((0.95 * 104, 0.95 * 83.2))
    # at work all the time when saturated: 104 a second of being at work
    assert one.rate / (one.busy or 0) == pytest.approx(104)
    assert {threads for threads, _ in bench.tried} == {1}
    assert best.threads == 1
    assert 90 <= best.rate <= 100
    bench.tried.clear()
    list(profile(bench, THOROUGH, 1000.0, [], NEVER))
    assert {threads for threads, _ in bench.tried} >= {1, 2}


def test_a_quick_profile_spends_no_budget_on_repeats_before_threads() -> None:
    bench = SharedBench({1: 10.0, 4: 40.0, 16: 100.0, 64: 101.0}, set(range(100)))
    # others disturb every trial, and there is time for four
    limits = Limits(lambda: bench.trials >= 4, never)
    assert [point.threads for point in profile(bench, QUICK, 1000.0, [], limits)] == [1, 4, 16, 64]


def waiting_bench() -> KnownBench:
    """Every thread does 50 a second, up to 128 of them: code that waits 20 ms."""
    return KnownBench({threads: 50.0 * min(threads, 128) for threads in range(1, 513)})


def test_threads_are_looked_at_before_peaks_and_past_the_budget_while_rates_rise() -> None:
    # the budget is spent at once, all there may be never
    bench = waiting_bench()
    points = {point.threads: point for point in profile(bench, THOROUGH, 1000.0, [], Limits(always, never))}
    assert list(points) == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    # none of the budget was left for peaks, and 256 threads do no more than 128
    assert bench.tried == []
    assert not still_rises(points, THOROUGH)


def test_a_profile_that_ends_while_rates_rise_knows_it() -> None:
    looked: list[int] = []
    limits = Limits(always, lambda: len(looked) >= 3)
    points = {}
    for point in profile(waiting_bench(), THOROUGH, 1000.0, [], limits):
        looked.append(point.threads)
        points[point.threads] = point
    assert looked == [1, 2, 4]
    assert still_rises(points, THOROUGH)
    # one point says nothing of two threads, unless it keeps its core busy
    assert still_rises({1: points[1]}, THOROUGH)
    assert not still_rises({1: points[1].model_copy(update={"operator_cpu": 0.95})}, THOROUGH)


def test_a_quick_profile_that_goes_on_where_one_ended_searches_nothing_again() -> None:
    bench = KnownBench({1: 100.0, 4: 80.0})
    known = list(profile(bench, QUICK, 1000.0, [], NEVER))
    bench.tried.clear()
    assert list(profile(bench, QUICK, 1000.0, known, NEVER)) == []
    assert bench.tried == []


def test_repeats_give_the_spread_and_the_median() -> None:
    # mean of two: (90 + 100) / 2; median of three: one disturbed trial of 20/s has no say, but shows in the spread
    def trials(*rates: float) -> list[Trial]:
        return [Trial(2, rate, stable=True, cpu=0.5, memory_mb=500, operator_cpu=0.4) for rate in rates]

    two = point_of(trials(90, 100), slot_memory_mb=1000)
    assert (two.rate, two.rate_spread) == (95, 5)
    three = point_of(trials(90, 20, 100), slot_memory_mb=1000)
    assert (three.rate, three.rate_spread) == (90, 40)
    assert (three.cpu, three.cpu_spread, three.memory) == (0.5, 0, 0.5)
    assert three.operator_cpu == 0.4
    assert three.engine_cpu == pytest.approx(0.1)
    assert point_of(trials(90), slot_memory_mb=1000).rate_spread is None


def test_how_much_batches_vary_is_pooled() -> None:
    # sqrt((0.03^2 + 0.04^2) / 2); a trial of too few batches has no say
    trials = [Trial(1, 100, stable=True, cpu=1, memory_mb=0, batch_spread=spread) for spread in (0.03, None, 0.04)]
    assert point_of(trials, slot_memory_mb=1000).batch_spread == pytest.approx(0.0353553, rel=1e-4)
    assert point_of(trials[1:2], slot_memory_mb=1000).batch_spread is None


class SharedBench(KnownBench):
    """A slot that others take half of the machine from in some of its trials, which it does half as much in."""

    def __init__(self, capacity: dict[int, float], disturbed: set[int]) -> None:
        super().__init__(capacity)
        self._disturbed = disturbed
        self.trials = 0
        self.saturations = 0

    def _capacity(self, threads: int) -> float:
        return super()._capacity(threads) * (0.5 if self.trials in self._disturbed else 1)

    def _marked(self, trial: Trial) -> Trial:
        others = 0.5 if self.trials in self._disturbed else 0.01
        self.trials += 1
        return replace(trial, others=others)

    def saturate(self, threads: int, seconds: float) -> Trial:
        self.saturations += 1
        return self._marked(super().saturate(threads, seconds))

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        return self._marked(super().try_rate(threads, rate, seconds))


@pytest.mark.parametrize("disturbed", [{0}, {1}, {0, 2, 4}, {2, 4, 6}])
def test_a_disturbed_trial_is_done_again(disturbed: set[int]) -> None:
    found = peak_of(SharedBench({1: 100.0}, disturbed), 1, ProfileSettings(precision=0.05), never)
    assert found.stable
    assert found.others == 0.01
    assert 94 <= found.rate <= 100


def test_a_trial_disturbed_twice_counts_and_says_so() -> None:
    found = peak_of(SharedBench({1: 100.0}, {0, 1}), 1, ProfileSettings(precision=0.05), never)
    assert found.others == 0.5
    once = peak_of(SharedBench({1: 100.0}, {0}), 1, ProfileSettings(precision=0.05), always)
    assert once.others == 0.5


@pytest.mark.parametrize(
    ("disturbed", "saturated"),
    [
        # one and four threads are looked at; the search of the best begins with what its look saw
        (set(), 2),
        # others were there while one thread was looked at, which is the best all the same: it is saturated again
        ({0}, 3),
    ],
)
def test_a_quick_profile_saturates_each_count_once(disturbed: set[int], saturated: int) -> None:
    bench = SharedBench({1: 100.0, 4: 30.0}, disturbed)
    points = {point.threads: point for point in profile(bench, QUICK, 1000.0, [], Limits(never, never))}
    assert bench.saturations == saturated
    assert 94 <= points[1].rate <= 100
    assert 27 <= points[4].rate <= 30


def test_only_the_calmest_trials_count() -> None:
    def trial(rate: float, others: float) -> Trial:
        return Trial(2, rate, stable=True, cpu=0.5, memory_mb=500, operator_cpu=0.4, others=others)

    # 50 and 60 were seen while others used 0.3 and 0.2 of the machine; (90 + 100) / 2
    point = point_of([trial(50, 0.3), trial(90, 0.02), trial(60, 0.2), trial(100, 0.06)], slot_memory_mb=1000)
    assert (point.rate, point.rate_spread, point.others_cpu) == (95, 5, 0.06)
    # a database beside the operator is there every time: all three count
    assert point_of([trial(50, 0.3), trial(60, 0.31), trial(70, 0.32)], slot_memory_mb=1000).rate == 60


def test_what_is_left_of_the_budget_goes_into_points_with_few_calm_trials() -> None:
    def trial(rate: float, others: float) -> Trial:
        return Trial(2, rate, stable=True, cpu=0.5, memory_mb=500, others=others)

    calm = [trial(100, 0.01)] * 3
    assert least_sure({1: calm, 2: [trial(90, 0.01), trial(70, 0.3)]}, best=100) == 2
    # far from the best rate; three that count; six that were disturbed each in its own way
    restless = [trial(95, 0.06 * times) for times in range(6)]
    assert least_sure({1: [trial(50, 0.01)], 2: calm, 4: restless}, best=100) is None
    assert least_sure({1: calm, 4: restless[:5]}, best=100) == 4


def test_a_slot_is_one_core() -> None:
    # the operator kept a core busy while the engine used a fifth of another
    point = point_of([Trial(1, 10, stable=True, cpu=1.2, memory_mb=0, operator_cpu=1.0)], slot_memory_mb=1000)
    assert point.cpu == 1
    assert point.operator_cpu == 1.0
    assert point.engine_cpu == pytest.approx(0.2)


def test_the_published_walk_tries_every_step() -> None:
    # 1 thread does 5/s: rates 1, 3, 5 are stable, 7 is not; 3 threads do 8/s: 1, 3, 5, 7 are, 9 is not; 5 and 7 threads
    # do no more, so the slope of the last three peaks (7, 7, 7) is 0 and the walk ends before 9 threads
    bench = KnownBench({1: 5.0, 3: 8.0}, surplus=1.0)
    settings = ProfileSettings(search=TrialSearch.STEPWISE, rate_step=2.0, thread_step=2)
    points = list(profile(bench, settings, 1000.0, [], NEVER))
    assert [(point.threads, point.rate) for point in points] == [(1, 5.0), (3, 7.0), (5, 7.0), (7, 7.0)]
    assert len(bench.tried) == 4 + 5 + 5 + 5
    assert points[0].cpu == pytest.approx(1.0)


def test_a_budget_ends_the_published_walk() -> None:
    # nothing but the first thread count may be kept when its walk was cut short
    assert list(profile(KnownBench({1: 5.0}), ProfileSettings(search=TrialSearch.STEPWISE), 1000.0, [], ALWAYS)) == []
