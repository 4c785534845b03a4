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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise
from statistics import mean, median, stdev
from typing import TYPE_CHECKING

from penstock.base.tolerance import exceeds
from penstock.modelling.model import CORE_BOUND, Model, Point, at_one_pace, keeps_core_busy, slowed
from penstock.profiling.stepwise import Steps, stepwise_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.profiling.trials import Trial, TrialRunner
    from penstock.report.report import BatchObservation


# The highest stable rate of one slot, by bisection.
#
# A saturated slot does not wait for tuples to arrive, so its rate is an upper bound of the stable rate, and the first
# rate tried is just below. That holds for a warm slot. One whose first trial was slow (code not compiled, caches cold,
# connections not open) gives itself away: it works on a tuple for `busy / rate` seconds, and if that has fallen since,
# the bracket is raised by the same factor and the search continues. A slot that is slow for two trials is taken for a
# slow slot.
#
# Cores need not be as fast in one trial as in the next. All rates of a search are converted to the CPU speed of the
# saturated trial, and those offered to the speed of the trial before; so a rate that was unstable while the cores were
# slow is not ruled out later. The peak is given for the mean CPU speed.


WIDEST_BRACKET = 0.3
"""A slot is taken to keep up with at least so much less than it does when saturated."""
WARMED_UP = 1.1
"""A slot that needs so much less time for a tuple than when it was saturated was not warm then."""
MOST_WARM_UPS = 3
LEAST_GIVEN = 0.1
"""A host that gave less says nothing."""
MOST_OF_A_SEARCH = 10
"""Trials of one search at given rates: where the pace changes all the time a bracket may not close."""


class PeakSearch:
    """Which rate to try next, given what became of those before."""

    def __init__(self, saturated: Trial, precision: float) -> None:
        self._precision = precision
        self._saturated = saturated
        self._seen = [saturated]
        self._bound = saturated.rate
        self._low, self._high = (1 - WIDEST_BRACKET) * saturated.rate, saturated.rate
        self._best: Trial | None = None
        self._warm_ups = 0
        self._candidate = self._just_below_high

    @property
    def _just_below_high(self) -> float:
        return (1 - self._precision) * self._high

    @property
    def goes_on(self) -> bool:
        wide = exceeds(self._high - self._low, self._precision * self._high)
        return wide and len(self._seen) <= MOST_OF_A_SEARCH

    @property
    def offer(self) -> float:
        """The rate to try next, on cores as fast as they were last."""
        return self._candidate * gained(self._saturated, self._seen[-1].pace)

    def see(self, offered: float, trial: Trial) -> None:
        """A trial of a rate that was offered."""
        self._seen.append(trial)
        gain = gained(self._saturated, trial.pace)
        rate = offered / gain
        if not trial.stable:
            self._high = min(self._high, rate)
        elif self._best is None or rate > self._low:
            self._low, self._best = rate, trial
        faster = quickening(self._saturated, trial) / gain if trial.stable else 1.0
        if faster > WARMED_UP and self._warm_ups < MOST_WARM_UPS:
            self._warm_ups += 1
            self._bound = max(self._bound, faster * self._saturated.rate)
            self._high = max(self._high, self._bound)
            self._candidate = self._just_below_high
        else:
            self._candidate = min(self._inside(), self._just_below_high)

    def _inside(self) -> float:
        """The middle; while nothing was stable, not far below what a saturated slot did, then farther and farther."""
        middle = (self._low + self._high) / 2
        gap = 2 * max(0.0, self._saturated.rate - self._high)
        return middle if self._best else max(middle, self._high - gap)

    def peak(self) -> Trial:
        """The stable trial with the highest rate. Where paces kept the bracket open, or turned it round, its middle
        counts; where the search was broken off before any rate was stable, the next one to try. No pace makes it more
        than just below the upper bound."""
        if self._best is None:
            trial = scaled_down(self._saturated, 1 - self._candidate / self._saturated.rate)
        else:
            closed = self._low <= self._high and len(self._seen) <= MOST_OF_A_SEARCH
            rate = self._low if closed else (self._low + self._high) / 2
            trial = replace(self._best, rate=min(rate, (1 - self._precision) * self._bound))
        pace = mean_pace(self._seen)
        rate = trial.rate * gained(self._saturated, pace)
        # rounds of a trial at a given rate may have fewer tuples than threads: the fastest trial shows a full one
        at_work = max((seen.rate / seen.busy * gained(seen, pace) for seen in self._seen if seen.busy), default=0.0)
        return replace(
            trial,
            rate=rate,
            busy=min(1.0, rate / at_work) if at_work else trial.busy,
            others=max(trial_seen.others for trial_seen in self._seen),
            pace=pace,
            batch_spread=pooled_spread(self._seen),
        )


def gained(trial: Trial, pace: float | None) -> float:
    """How many times as much a slot would do at another pace. Its operator wanted a core for the CPU it got and for
    what the host took; when it was not at work, the engine was."""
    if pace is None or trial.pace is None:
        return 1.0
    return 1 / slowed(trial.operator_cpu / max(LEAST_GIVEN, trial.given) + 1 - trial.busy, trial.pace / pace)


def mean_pace(trials: list[Trial]) -> float | None:
    paces = [trial.pace for trial in trials if trial.pace is not None]
    return mean(paces) if paces else None


def pooled_spread(trials: list[Trial]) -> float | None:
    """`sqrt(mean v^2)`: of all trials as if they were one."""
    spreads = [trial.batch_spread**2 for trial in trials if trial.batch_spread is not None]
    return math.sqrt(mean(spreads)) if spreads else None


def quickening(before: Trial, after: Trial) -> float:
    """How many times faster a slot became: the ratio of `rate / busy`, tuples per second of being at work."""
    return (
        (after.rate / after.busy) / (before.rate / before.busy) if before.rate and before.busy and after.busy else 1.0
    )


def scaled_down(trial: Trial, part: float) -> Trial:
    """A trial at a rate lower by `part`, with the CPU and the time at work that go with it."""
    return replace(
        trial,
        rate=(1 - part) * trial.rate,
        cpu=(1 - part) * trial.cpu,
        operator_cpu=(1 - part) * trial.operator_cpu,
        busy=(1 - part) * trial.busy,
    )


class TrialSearch(StrEnum):
    """How the points of a model are searched."""

    BRACKET = "bracket"
    """Saturated trials bound the peaks, bisection finds them."""
    STEPWISE = "stepwise"
    """As published: rates and threads rise in fixed steps until a trial is not stable."""


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
    search: TrialSearch = TrialSearch.BRACKET
    rate_step: float = 1.0
    """Tuples/s by which a stepwise search raises the rate."""
    thread_step: int = 1


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

MAX_STEPPED_RATE = 1e9
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
    if settings.search is TrialSearch.STEPWISE:
        yield from _stepwise(bench, settings, slot_memory_mb, limits)
        return
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


def _stepwise(bench: TrialRunner, settings: ProfileSettings, slot_memory_mb: float, limits: Limits) -> Iterator[Point]:
    """Walk as published; a thread count whose walk the budget cuts short gives no point, unless it is the first."""
    cut = False

    def try_rate(threads: int, rate: float) -> Point | None:
        nonlocal cut
        cut = cut or limits.spent()
        if cut:
            return None
        trial = undisturbed(partial(bench.try_rate, threads, rate, settings.trial_seconds), limits.spent)
        return point_of([replace(trial, rate=rate)], slot_memory_mb) if trial.stable else None

    steps = Steps(settings.most_threads, MAX_STEPPED_RATE, settings.thread_step, settings.rate_step)
    for position, point in enumerate(stepwise_points(try_rate, steps)):
        if not cut or position == 0:
            yield point


def one_beyond(points: Mapping[int, Point], seen: Mapping[int, list[Trial]]) -> float:
    """The least thread count found beyond one that keeps the core busy; infinite while there is none."""
    busy = [count for count, point in points.items() if core_bound(point, seen.get(count, []))]
    return min((count for count in points if busy and count > min(busy)), default=math.inf)


def core_bound(point: Point, trials: list[Trial]) -> bool:
    """Of the time its code was at work, the operator wanted a core for nearly all; trials say what the host took."""
    if not trials:
        return keeps_core_busy(point)
    return all(trial.operator_cpu >= CORE_BOUND * trial.busy * trial.given for trial in trials)


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


# The course of one trial, batch by batch: how large the next batch may be, which batches count, when it is over.
#
# Pure bookkeeping, so that it can be tested without Spark. A trial counts from the end of a batch on, never from its
# start: whole batches over whole periods.


SIZED = 1.5
"""Batches within this factor of the work they should hold are large, and small, enough."""
FEWEST_TO_VARY = 3
"""Batches a deviation needs to mean something."""
LARGEST_STEP = 20.0
"""The first batches tell little: no batch is more than so many times the one before."""
LONGEST_PERIODS = 3.0
"""Of the work a batch should hold: so long may pass from its end to that of the one before. Where the engine takes most
of that, as for code over columns, larger batches would only be longer ones."""
MOST_SIZES = 10
"""Batches whose work does not follow their size, because it comes in a few large pieces, count as they are then."""


@dataclass
class TrialSchedule:
    """Of a trial that takes at least `seconds` from `start` on, and at least `fewest_batches` that count.

    With `batch_seconds`, the bound `most_rows` is only the beginning: batches are resized until they hold so much work,
    and none counts before that. The first, which may have been slow for being so, never counts. Sizes are multiples of
    `threads`: of six tuples on four threads, two threads would do nothing half of the time.
    """

    start: float
    seconds: float
    most_rows: int
    batch_seconds: float | None = None
    threads: int = 1
    fewest_batches: int = 2
    batches: list[BatchObservation] = field(default_factory=list)
    counts_from: int | None = None
    """The batch from whose end on the trial counts."""

    def see(self, batch: BatchObservation) -> None:
        self.batches.append(batch)
        if self.counts_from is not None:
            return
        if self.batch_seconds is None:
            self.counts_from = len(self.batches) - 1
        elif batch.tuples:
            step = self._step(batch)
            wanted = self.threads * math.ceil(batch.tuples * step / self.threads)
            warm = len(self.batches) > 1
            if warm and (1 / SIZED <= step <= SIZED or wanted == batch.tuples or len(self.batches) >= MOST_SIZES):
                self.counts_from = len(self.batches) - 1
            self.most_rows = wanted

    def _step(self, batch: BatchObservation) -> float:
        """How much larger the next batch should be: `min(B / w, (3 B - F) / (T - F))`, for B seconds of work where w
        were seen in a batch that came T behind the one before, F of them whatever it held: as many as the shortest took
        before it. One that takes too long is cut by its work alone."""
        wanted = self.batch_seconds or 0.0
        step = min(wanted / max(busy_seconds(batch), 1e-6), LARGEST_STEP)
        periods = [later.finished - earlier.finished for earlier, later in pairwise(self.batches)]
        if not periods or step <= 1:
            return step
        shortest = min(periods[:-1], default=0.0)
        rows_seconds = periods[-1] - shortest
        room = LONGEST_PERIODS * wanted - shortest
        return min(step, max(1.0, room / rows_seconds)) if rows_seconds > 0 else step

    @property
    def counted(self) -> list[BatchObservation]:
        """The batch that counting starts behind, and those that count."""
        return [] if self.counts_from is None else self.batches[self.counts_from :]

    @property
    def over(self) -> bool:
        counted = self.counted
        return len(counted) > self.fewest_batches and counted[-1].finished - self.start >= self.seconds


def batch_spread(batches: Sequence[BatchObservation]) -> float | None:
    """The standard deviation of the seconds a tuple took, from one batch to the next, as a part of their mean. Small
    batches, of what was left, do not count; None: too few others."""
    largest = max((batch.tuples for batch in batches), default=0)
    each = [busy_seconds(batch) / batch.tuples for batch in batches if batch.tuples > largest / SIZED]
    return stdev(each) / mean(each) if len(each) >= FEWEST_TO_VARY and mean(each) > 0 else None


def busy_seconds(batch: BatchObservation) -> float:
    """How long the slot's code was at work on a batch."""
    return max((slot.wall_seconds for slot in batch.slots), default=0.0)
