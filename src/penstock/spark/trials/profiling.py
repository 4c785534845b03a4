"""From trials to a model: which numbers of threads to try, and which rates.

All thread counts are looked at first, with a saturated trial each (what a slot does when there is always more to do):
an operator that waits must not be left with few threads because the budget went into the peak of those. Threads double
while the rate rises, then the gaps beside the best count are halved. A slot is one core: an operator that keeps it busy
does no more with more threads, so one count beyond is enough to see what they cost, and a rise is the machine's doing.
While rates rise the look goes on past the budget, up to `MOST_BUDGETS` of it; a profile that ends while they rise says
so. Then the peak rates are found, the best first, by bisection on whether a rate is stable; a quick profile searches
only the best. A trial that others disturbed is done once more, and what is left of the budget goes into measuring the
best points again. What was found so far is a model at any time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import TYPE_CHECKING

from penstock.modelling.cpu_speed import at_one_pace
from penstock.modelling.model import Model, Point
from penstock.modelling.one_core import CORE_BOUND, keeps_core_busy
from penstock.spark.trials.peak_search import PeakSearch, gained, mean_pace, pooled_spread, scaled_down

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.spark.trials.trials import Trial, TrialRunner


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """How long and how closely to look.

    `precision`: how near the peak rate is bracketed. `worthwhile`: how much more counts as more. `growth`: by which
    factor threads grow. `fewest_batches`: how many a trial holds at least, however long they take, so that one slow
    batch does not decide whether a rate is stable. `refine`: whether gaps beside the best are looked into.
    `search_each`: whether the peak of every count near the best is searched, or that of the best alone, and the others
    taken to keep up with what they did when saturated, less the precision.
    """

    trial_seconds: float = 4.0
    batch_seconds: float = 1.0
    fewest_batches: int = 5
    precision: float = 0.02
    worthwhile: float = 0.05
    growth: int = 2
    refine: bool = True
    search_each: bool = True
    most_threads: int = 256
    repeats: int = 1
    budget_seconds: float = 60.0


THOROUGH = ProfileSettings()
QUICK = ProfileSettings(
    trial_seconds=1.5,
    batch_seconds=0.5,
    fewest_batches=2,
    precision=0.05,
    worthwhile=0.1,
    growth=4,
    refine=False,
    search_each=False,
    budget_seconds=15.0,
)

MOST_BUDGETS = 2.0
"""How many times its budget a profile may take while more threads do more."""
SURE_TRIALS = 3
"""With three the median leaves one that went wrong without a say."""
MOST_TRIALS = 6
"""Of one point: a machine that others use now and then, all the time, is measured as it is."""
DISTURBED = 0.05
"""What others may use more of the machine during one trial than during another, for both to count alike."""
NEAR = 0.8
"""Of the best rate: thread counts below this are hardly ever planned with."""


def thread_counts(peaks: Mapping[int, float], settings: ProfileSettings) -> int | None:
    """The next number of threads to try given the peak rates found so far; None: nothing left worth trying."""
    if not peaks:
        return 1
    largest = max(peaks)
    before = max((count for count in peaks if count < largest), default=None)
    rises = before is None or peaks[largest] > (1 + settings.worthwhile) * peaks[before]
    if rises and largest * settings.growth <= settings.most_threads:
        return largest * settings.growth
    if not settings.refine:
        return None
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


def still_rises(points: Mapping[int, Point], settings: ProfileSettings) -> bool:
    """Whether nobody has seen what more threads would do: the most that were tried did more than fewer, and no point
    keeps its core busy."""
    rates = comparable(points)
    largest = max(rates)
    before = max((count for count in rates if count < largest), default=None)
    rises = before is None or rates[largest] > (1 + settings.worthwhile) * rates[before]
    return rises and not any(core_bound(point, []) for point in points.values())


def peak_of(
    bench: TrialRunner,
    threads: int,
    settings: ProfileSettings,
    spent: Callable[[], bool],
    looked: Trial | None = None,
) -> Trial:
    """The stable trial with the highest rate found. `looked`: the slot was saturated before, and need not be again."""
    saturated = looked or undisturbed(lambda: bench.saturate(threads, settings.trial_seconds), spent)
    search = PeakSearch(saturated, settings.precision)
    while search.goes_on and not spent():
        offered = search.offer
        trial = undisturbed(partial(bench.try_rate, threads, offered, settings.trial_seconds), spent)
        search.see(offered, trial)
    return search.peak()


def undisturbed(attempt: Callable[[], Trial], spent: Callable[[], bool]) -> Trial:
    """A trial; where others used much of the machine meanwhile, the calmer of two."""
    trial = attempt()
    return (
        trial if trial.others <= DISTURBED or spent() else min(trial, attempt(), key=lambda attempted: attempted.others)
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the time for one operator: `spent` says that the budget is, `exhausted` that all there may be is."""

    spent: Callable[[], bool]
    exhausted: Callable[[], bool]


def profile(
    bench: TrialRunner, settings: ProfileSettings, slot_memory_mb: float, known: list[Point], limits: Limits
) -> Iterator[Point]:
    """Points of a model, one after the other; `known` ones are not measured again. A point that comes a second time
    takes the place of the first.

    1. A look at every thread count worth it. 2. The peaks, the best first; a quick profile searches that one alone.
    3. What is left of the budget goes into measuring the best points again.
    """
    points = {point.threads: point for point in known}
    looked: dict[int, Trial] = {}
    while (threads := thread_counts(comparable(points), settings)) is not None:
        seen_so_far = {count: [trial] for count, trial in looked.items()}
        goes_up = threads > max(points, default=0)
        if points and (limits.exhausted() if goes_up else limits.spent()):
            break
        if threads > one_beyond(points, seen_so_far):
            break
        looked[threads] = bench.saturate(threads, settings.trial_seconds)
        # what a slot does when saturated, less the precision, is taken for its peak until that is searched
        points[threads] = point_of([scaled_down(looked[threads], settings.precision)], slot_memory_mb)
        yield points[threads]
    seen: dict[int, list[Trial]] = {}
    rates = comparable(points)
    for threads in sorted(looked, key=lambda count: (-rates[count], count)):
        if limits.spent() or (seen and not settings.search_each):
            break
        if seen and rates[threads] < NEAR * max(rates.values()):
            break
        begins = None if settings.search_each or looked[threads].others > DISTURBED else looked[threads]
        seen[threads] = [peak_of(bench, threads, settings, limits.spent, begins) for _ in range(settings.repeats)]
        points[threads] = point_of(seen[threads], slot_memory_mb)
        yield points[threads]
    best = max(point.rate for point in points.values())
    while settings.refine and not limits.spent() and (again := least_sure(seen, best)) is not None:
        trial = peak_of(bench, again, settings, limits.spent)
        if not limits.spent():
            seen[again].append(trial)
            yield point_of(seen[again], slot_memory_mb)


def one_beyond(points: Mapping[int, Point], seen: Mapping[int, list[Trial]]) -> float:
    """The least thread count found beyond one that keeps the core busy; infinite while there is none."""
    busy = [count for count, point in points.items() if core_bound(point, seen.get(count, []))]
    return min((count for count in points if busy and count > min(busy)), default=math.inf)


def core_bound(point: Point, trials: list[Trial]) -> bool:
    """Of the time its code was at work, the operator wanted a core for nearly all; trials say what the host took."""
    if not trials:
        return keeps_core_busy(point)
    return all(trial.operator_cpu >= CORE_BOUND * trial.busy * trial.given for trial in trials)


def best_of(points: Mapping[int, Point]) -> int:
    """The fewest threads with the highest rate."""
    rates = comparable(points)
    return max(rates, key=lambda threads: (rates[threads], -threads))


def comparable(points: Mapping[int, Point]) -> dict[int, float]:
    """Rates by threads, told for one pace."""
    if not points:
        return {}
    (model,) = at_one_pace([Model("any", tuple(points[threads] for threads in sorted(points)))])
    return {point.threads: point.rate for point in model.points}


def least_sure(seen: Mapping[int, list[Trial]], best: float) -> int | None:
    """The thread count to measure again: of those near the best rate with the fewest trials that count the fastest;
    None: all have three."""
    rates = {threads: max(trial.rate for trial in trials) for threads, trials in seen.items()}
    sure = {threads: len(calmest(trials)) for threads, trials in seen.items()}
    open_ones = [
        threads
        for threads, trials in seen.items()
        if sure[threads] < SURE_TRIALS and len(trials) < MOST_TRIALS and rates[threads] >= NEAR * best
    ]
    return min(open_ones, key=lambda threads: (sure[threads], -rates[threads]), default=None)


def calmest(trials: list[Trial]) -> list[Trial]:
    """Those during which others used hardly more of the machine than during the calmest. What an operator makes another
    process do, a database beside it, is there every time, and leaves none out."""
    least = min(trial.others for trial in trials)
    return [trial for trial in trials if trial.others <= least + DISTURBED]


def point_of(trials: list[Trial], slot_memory_mb: float) -> Point:
    """Of the calmest trials the median, if there are three or more, so that one that went wrong has no say, else the
    mean; the spread is half their range. Rates are told for the mean pace of the trials first: what a trial did while
    the cores were faster would have been less at that.

    A slot is one core: where engine and operator together used more, because other cores were free, `cpu` is 1; the two
    parts are kept as they were.
    """

    def middle(values: list[float]) -> float:
        return median(values) if len(values) > 2 else mean(values)

    def spread(values: list[float]) -> float | None:
        return (max(values) - min(values)) / 2 if len(values) > 1 else None

    trials = calmest(trials)
    pace = mean_pace(trials)
    rates = [trial.rate * gained(trial, pace) for trial in trials]
    cpus = [min(1.0, trial.cpu) for trial in trials]
    memories = [trial.memory_mb / slot_memory_mb for trial in trials]
    return Point(
        threads=trials[0].threads,
        rate=middle(rates),
        cpu=middle(cpus),
        memory=middle(memories),
        rate_spread=spread(rates),
        cpu_spread=spread(cpus),
        memory_spread=spread(memories),
        operator_cpu=middle([trial.operator_cpu for trial in trials]),
        engine_cpu=middle([max(0.0, trial.cpu - trial.operator_cpu) for trial in trials]),
        others_cpu=max(trial.others for trial in trials),
        pace=pace,
        batch_spread=pooled_spread(trials),
        busy=min(1.0, middle(at_work)) if all(at_work := [trial.busy for trial in trials]) else None,
    )
