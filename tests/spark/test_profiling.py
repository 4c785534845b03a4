"""Which trials are run, and what becomes of them: decided without Spark, on a bench that knows its capacities."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.spark.profiling import ProfileSettings, peak_of, point_of, profile, thread_counts
from penstock.spark.trials import Trial


@dataclass
class KnownBench:
    """A slot that keeps up with `capacity[threads]` tuples/s."""

    capacity: dict[int, float]
    tried: list[tuple[int, float]] = field(default_factory=list)

    def _capacity(self, threads: int) -> float:
        return self.capacity[max(count for count in self.capacity if count <= threads)]

    def saturate(self, threads: int, seconds: float) -> Trial:
        assert seconds > 0
        return Trial(threads, self._capacity(threads) * 1.04, stable=False, cpu=1.0, memory_mb=100)

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        assert seconds > 0
        self.tried.append((threads, rate))
        return Trial(threads, rate, rate <= self._capacity(threads), cpu=rate / self._capacity(threads), memory_mb=100)


def never() -> bool:
    return False


def test_the_peak_is_bracketed_within_the_precision() -> None:
    bench = KnownBench({1: 100.0})
    found = peak_of(bench, 1, ProfileSettings(precision=0.05), never)
    assert found.stable
    assert 95 <= found.rate <= 100
    assert len(bench.tried) <= 4


def test_a_spent_budget_keeps_what_is_known_to_be_safe() -> None:
    found = peak_of(KnownBench({1: 100.0}), 1, ProfileSettings(), lambda: True)
    # saturated 104, nothing tried: 30 % less
    assert found.rate == pytest.approx(0.7 * 104)


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


def test_known_points_are_not_measured_again() -> None:
    bench = KnownBench({1: 10.0, 2: 20.0, 4: 20.5})
    first = list(profile(bench, ProfileSettings(), 1000.0, [], never))
    assert [point.threads for point in first] == [1, 2, 4]
    bench.tried.clear()
    assert list(profile(bench, ProfileSettings(), 1000.0, first, never)) == []
    assert bench.tried == []


def test_repeats_give_the_spread() -> None:
    trials = [Trial(2, rate, stable=True, cpu=0.5, memory_mb=500) for rate in (90, 100, 110)]
    point = point_of(trials, slot_memory_mb=1000)
    assert (point.rate, point.rate_spread) == (100, 10)
    assert (point.cpu, point.cpu_spread, point.memory) == (0.5, 0, 0.5)
