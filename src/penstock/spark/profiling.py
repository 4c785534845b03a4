"""From trials to a model: which numbers of threads to try, and which rates.

Threads double while the peak rate rises, then the gaps beside the best count are halved. The peak rate of a thread
count is bracketed by a saturated trial (what a slot does when there is always more to do) and found by bisection on
whether a rate is stable. Everything stops when the budget is spent; what was found so far is a model already.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.modelling.model import Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.trials import Bench, Trial


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """Seconds of one trial, how near the peak rate must be bracketed, how much more counts as more, and limits."""

    trial_seconds: float = 4.0
    precision: float = 0.05
    worthwhile: float = 0.05
    most_threads: int = 64
    repeats: int = 1


WIDEST_BRACKET = 0.3
"""A slot is taken to keep up with at least so much less than it does when saturated."""


def thread_counts(peaks: dict[int, float], settings: ProfileSettings) -> int | None:
    """The next number of threads to try given the peak rates found so far; None: nothing left worth trying."""
    if not peaks:
        return 1
    largest = max(peaks)
    before = max((count for count in peaks if count < largest), default=None)
    rises = before is None or peaks[largest] > (1 + settings.worthwhile) * peaks[before]
    if rises and largest * 2 <= settings.most_threads:
        return largest * 2
    best = max(peaks, key=lambda count: (peaks[count], -count))
    counts = sorted(peaks)
    position = counts.index(best)
    for low, high in ((position - 1, position), (position, position + 1)):
        if low >= 0 and high < len(counts):
            middle = (counts[low] + counts[high]) // 2
            differ = abs(peaks[counts[high]] - peaks[counts[low]]) > settings.worthwhile * peaks[best]
            if middle not in peaks and differ and counts[high] - counts[low] >= counts[low]:
                return middle
    return None


def peak_of(bench: Bench, threads: int, settings: ProfileSettings, spent: Callable[[], bool]) -> Trial:
    """The stable trial with the highest rate found.

    A saturated slot does not wait for tuples to arrive, so what it does is an upper bound on what it keeps up with.
    """
    saturated = bench.saturate(threads, settings.trial_seconds)
    low, high = (1 - WIDEST_BRACKET) * saturated.rate, saturated.rate
    best: Trial | None = None
    candidate = (1 - settings.precision) * saturated.rate
    while high - low > settings.precision * high and not spent():
        trial = bench.try_rate(threads, candidate, settings.trial_seconds)
        if trial.stable:
            low, best = candidate, trial
        else:
            high = candidate
        candidate = (low + high) / 2
    return best or replace(saturated, rate=low)


def profile(
    bench: Bench, settings: ProfileSettings, slot_memory_mb: float, known: list[Point], spent: Callable[[], bool]
) -> Iterator[Point]:
    """Points of a model, one after the other; `known` ones are not measured again."""
    peaks = {point.threads: point.rate for point in known}
    while (threads := thread_counts(peaks, settings)) is not None:
        if peaks and spent():
            return
        trials = [peak_of(bench, threads, settings, spent) for _ in range(settings.repeats)]
        point = point_of(trials, slot_memory_mb)
        peaks[threads] = point.rate
        yield point


def point_of(trials: list[Trial], slot_memory_mb: float) -> Point:
    """The mean over repeats; the spread is half their range."""

    def mean_and_spread(values: list[float]) -> tuple[float, float | None]:
        spread = (max(values) - min(values)) / 2 if len(values) > 1 else None
        return sum(values) / len(values), spread

    rate, rate_spread = mean_and_spread([trial.rate for trial in trials])
    cpu, cpu_spread = mean_and_spread([trial.cpu for trial in trials])
    memory, memory_spread = mean_and_spread([trial.memory_mb / slot_memory_mb for trial in trials])
    return Point(
        threads=trials[0].threads,
        rate=rate,
        cpu=cpu,
        memory=memory,
        rate_spread=rate_spread,
        cpu_spread=cpu_spread,
        memory_spread=memory_spread,
    )
