"""The decision: what is remembered, what is observed and the time in; what is remembered then and a verdict out."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf, isfinite
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.base.tolerance import whole_up
from penstock.control.contracts import BUCKET_SECONDS
from penstock.control.elasticity import estimates as catch_up
from penstock.control.elasticity import estimates as effect
from penstock.control.elasticity import estimates as waiting
from penstock.control.elasticity import learned_factor as learned
from penstock.control.elasticity import load_forecasts as smoothing
from penstock.control.elasticity.memory import Bucket, LastChange, Memory, Observed, SizeVerdict, VerdictKind
from penstock.control.elasticity.options import even, forbidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.elasticity.load_forecasts import Smoothed
    from penstock.control.elasticity.options import Bounds, ElasticOptions

WAIT_SHARE = 0.15
"""Of the latency target: a queue that makes tuples wait longer is looked at."""
BUSY_ENOUGH = 0.3
"""Below, how fast units are says little: too much of the time is overhead."""
SPREADS = 1.5
"""Mean deviations of headroom above the level."""
RECALL = 1.8
"""A peak of the last day is prepared for where it is no more than so many times what is needed now."""
MOST_CLEARING = 1.5
"""Times the load: no more is asked for to clear a backlog, however long it is."""
MUCH = 0.15
"""Of a size: what a pipeline asks for that does not get it is not changed for less."""
MORE_LOAD = 1.1
"""Times the load of the last growth: that it was not for."""
MOST_PROVEN = 8


class Sizes(Protocol):
    """What the models say, uncorrected."""

    def units_for(self, rate: float) -> int | None: ...

    def rate_on(self, units: int) -> float | None: ...


def decide(
    memory: Memory,
    observed: Observed,
    sizes: Sizes,
    bounds: Bounds,
    options: ElasticOptions,
    now: float,
    veto: Callable[[SizeVerdict], str | None] | None = None,
) -> tuple[Memory, SizeVerdict]:
    """1. what came in  2. what it says of the load and the models  3. grow?  4. shrink?  5. may it be"""
    memory, measured = _take_in(memory, observed, sizes, options, now)
    smoothed = memory.smoothed
    if not measured or smoothed is None:
        return memory, _unmeasured(memory, observed, options, now)
    capacity = sizes.rate_on(observed.asked)
    if capacity is None:
        return memory, SizeVerdict(VerdictKind.UNMEASURED, observed.asked, "no model says what a unit does")
    case = _Case(smoothed, observed, sizes, bounds, options, now, capacity * memory.speed.factor)
    memory, verdict = _grow(memory, case)
    if verdict is None:
        memory, verdict = _shrink(memory, case)
    if not verdict.changes:
        return memory, verdict
    reason = forbidden(verdict, options, now, veto)
    if reason is not None:
        why = f"{reason}; else: {verdict.why}"
        return memory, SizeVerdict(VerdictKind.HELD_BACK, observed.asked, why, verdict.rejected, verdict.expected)
    return _changed(memory, observed, verdict, options, now), verdict


class _Case(NamedTuple):
    """What a decision looks at, besides what is remembered."""

    smoothed: Smoothed
    observed: Observed
    sizes: Sizes
    bounds: Bounds
    options: ElasticOptions
    now: float
    capacity: float
    """Tuples/s of the units it has, by the models as corrected."""


def target_utilisation(smoothed: Smoothed, options: ElasticOptions, *, known: bool) -> float:
    """1 - SPREADS * spread, between the least and the most; the first load while the spread is not known."""
    if not known:
        return options.first_utilisation
    return min(options.max_utilisation, max(options.min_utilisation, 1 - SPREADS * smoothed.spread))


def _take_in(
    memory: Memory, observed: Observed, sizes: Sizes, options: ElasticOptions, now: float
) -> tuple[Memory, bool]:
    rate = observed.rate
    if rate is None or not isfinite(rate) or rate < 0 or not isfinite(observed.backlog) or observed.backlog < 0:
        recent = memory.measured_at is not None and now - memory.measured_at < options.unmeasured_seconds
        return memory, recent
    seconds = options.decide_seconds if memory.measured_at is None else max(0.0, now - memory.measured_at)
    smoothed = (
        smoothing.first(rate)
        if memory.smoothed is None
        else smoothing.after(memory.smoothed, rate, seconds, options.look_back_seconds)
    )
    speed = memory.speed
    busy, done = observed.busy, observed.processed_rate
    if busy is not None and done is not None and BUSY_ENOUGH < busy <= 1 and observed.held == observed.asked:
        model = sizes.rate_on(observed.held)
        if model:
            speed = learned.after(speed, done / (busy * model), seconds, now)
    last, change_seconds = memory.last, memory.change_seconds
    if last is not None and last.took is None and observed.held == last.after and not observed.changing:
        took = now - last.at if observed.took is None else observed.took
        change_seconds = learned.after(change_seconds, took, seconds, now)
        last = replace(last, took=took)
    bucket, forecast, peaks, peak = memory.bucket, memory.forecast, memory.peaks, memory.peak
    if bucket is None or now - bucket.start >= BUCKET_SECONDS:
        if bucket is not None and bucket.readings:
            forecast = forecast.after(bucket.start, bucket.total / bucket.readings)
            oldest = now - options.memory_seconds
            peaks = (*(row for row in peaks if row[0] >= oldest), (bucket.start, bucket.highest))
            peak = max(highest for _, highest in peaks)
        bucket = Bucket(now - now % BUCKET_SECONDS)
    level = smoothed.level
    bucket = Bucket(bucket.start, bucket.total + level, bucket.readings + 1, max(bucket.highest, level))
    memory = memory._replace(
        smoothed=smoothed,
        measured_at=now,
        speed=speed,
        change_seconds=change_seconds,
        last=last,
        bucket=bucket,
        forecast=forecast,
        peaks=peaks,
        peak=peak,
    )
    return memory, True


def _unmeasured(memory: Memory, observed: Observed, options: ElasticOptions, now: float) -> SizeVerdict:
    since = "never" if memory.measured_at is None else f"for {now - memory.measured_at:.0f} s not"
    return SizeVerdict(
        VerdictKind.UNMEASURED, observed.asked, f"the load was {since} measured: the last good size is kept"
    )


def _units_for(sizes: Sizes, rate: float, memory: Memory, bounds: Bounds) -> int:
    """Units for a rate, by the models as corrected."""
    units = sizes.units_for(rate / memory.speed.factor)
    return bounds.clamp(even(units or 1, bounds))


def _grow(memory: Memory, case: _Case) -> tuple[Memory, SizeVerdict | None]:
    """At once where the backlog will last too long and tuples wait for it."""
    smoothed, observed, sizes, bounds, options, now, capacity = case
    jumps = smoothed.far > 0 or smoothed.jumped
    rate = max(smoothed.level, smoothed.last, observed.latest or 0.0) if jumps else smoothed.level
    wait = catch_up.wait_seconds(observed.backlog, capacity)
    piles_up = jumps and rate > capacity and (memory.speed.counts or observed.backlog > 0)
    lasts = inf if piles_up else catch_up.catch_up_seconds(observed.backlog, rate, capacity)
    patience = WAIT_SHARE * observed.latency_target_s if observed.latency_target_s else options.decide_seconds
    if piles_up:
        # what waits now is only the beginning: what counts is what will wait when a change is done
        wait = catch_up.wait_after(observed.backlog, rate, capacity, waiting.change_seconds(memory))
    if wait <= patience or lasts <= options.catch_up_seconds:
        return memory, None
    expected = (sizes.rate_on(observed.asked) or 0.0) - (
        sizes.rate_on(memory.last.before) or 0.0 if memory.last else 0.0
    )
    memory = effect.judged(memory, observed, expected * memory.speed.factor, options, now)
    if memory.last is not None and _still_coming(memory, memory.last, observed, rate, now):
        return memory, None
    if not effect.may_grow(memory, observed.asked, now):
        why = f"growing to {memory.ineffective_at} had no effect: something else is short"
        return memory, SizeVerdict(VerdictKind.HELD_BACK, observed.asked, why)
    load = target_utilisation(smoothed, options, known=memory.speed.counts)
    clearing = catch_up.rate_to_catch_up(
        observed.backlog, rate, options.catch_up_seconds, waiting.change_seconds(memory)
    )
    soon = _soon(memory, smoothed, options, now, rate)
    # units that were asked for did not come: the cluster has no more, and asking for more brings none
    short = observed.held < observed.asked
    ahead = max(min(clearing, MOST_CLEARING * rate), soon / options.max_utilisation)
    needed = rate / load if short else max(rate / load, ahead)
    least = 1 if short else observed.asked + max(1, round(options.grow_least * observed.asked))
    units = bounds.clamp(even(max(least, sizes.units_for(needed / memory.speed.factor) or 1), bounds))
    if short and abs(units - observed.asked) <= MUCH * observed.asked:
        units = observed.asked
    if short and observed.held <= units < observed.asked:
        why = f"{observed.held} of {observed.asked} are all there are: it asks for what its load needs, not to catch up"
        return memory, SizeVerdict(VerdictKind.SHRINK, units, why, (), (("model", _model(memory)),))
    if units <= observed.asked:
        most = f"{observed.held} of {observed.asked} are all there are" if short else f"{units} is the most it may have"
        why = f"{most}; a backlog of {observed.backlog:.0f} tuples lasts"
        return memory, SizeVerdict(VerdictKind.HELD_BACK, observed.asked, why)
    then = (sizes.rate_on(units) or 0.0) * memory.speed.factor
    cleared = catch_up.seconds_with_change(observed.backlog, rate, capacity, then, waiting.change_seconds(memory))
    why = (
        f"tuples {'will ' if piles_up else ''}wait {wait:.1f} s and the backlog lasts "
        f"{'for ever' if not isfinite(lasts) else f'{lasts:.0f} s'} at {rate:.4g} tuples/s on {capacity:.4g}"
    )
    return memory, SizeVerdict(
        VerdictKind.GROW,
        units,
        why,
        ((f"{observed.asked}, as before", "the backlog would last longer than the target allows"),
         (f"{least}, a small step", "another would follow")),
        (("rate", then), ("catch_up_s", cleared if isfinite(cleared) else None), ("model", _model(memory)),
         ("forecast_rate", soon)),
    )  # fmt: skip


def _still_coming(memory: Memory, last: LastChange, observed: Observed, rate: float, now: float) -> bool:
    """The last growth is on its way, or has had no time to show: no more for the same load."""
    if observed.held < observed.asked:
        return now - last.at < _patience(memory)
    grew = last.after > last.before and not last.judged
    return grew and rate <= MORE_LOAD * last.load


def _patience(memory: Memory) -> float:
    """How long units that were asked for are waited for before more are."""
    return 3 * waiting.change_seconds(memory) + effect.SETTLE_SECONDS


def _soon(memory: Memory, smoothed: Smoothed, options: ElasticOptions, now: float, rate: float) -> float:
    """What to prepare for: the forecast, where it is heading, and a peak of the last day that is not far above."""
    forecast = memory.forecast.highest(now, options.ahead_seconds, rate) or 0.0
    heading = smoothing.heading(smoothed, rate, options.look_back_seconds, options.ahead_seconds)
    peak = memory.peak
    most = RECALL * rate
    return max(
        rate,
        min(forecast, most),
        min(heading, most, max(peak, rate)) if peak else min(heading, most),
        peak if peak <= most else 0.0,
    )


def _shrink(memory: Memory, case: _Case) -> tuple[Memory, SizeVerdict]:
    smoothed, observed, sizes, bounds, options, now, capacity = case
    asked = observed.asked
    load = target_utilisation(smoothed, options, known=memory.speed.counts)
    forecast = memory.forecast.highest(now, options.ahead_seconds, smoothed.level) or 0.0
    # units released while the load rises would be requested again
    soon = max(forecast, smoothing.heading(smoothed, smoothed.level, options.look_back_seconds, options.ahead_seconds))
    needed = _units_for(sizes, max(smoothed.level / load, soon / options.max_utilisation), memory, bounds)
    waits = observed.backlog > capacity * WAIT_SHARE * (observed.latency_target_s or options.decide_seconds)
    if needed >= asked or waits:
        if memory.low_since is not None:
            memory = memory._replace(low_since=None, waste=0.0)
        return _prove(memory, asked, smoothed.level), _hold(asked)
    since = now if memory.low_since is None else memory.low_since
    most_needed = _most_needed(memory, needed, options, now)
    most = max(most_needed[1:])
    waste = memory.waste + (asked - needed) * options.decide_seconds
    memory = memory._replace(low_since=since, most_needed=most_needed, waste=waste)
    cost = waiting.cost_of_change(memory, options, asked)
    # the first size came from untested models: correcting it need not pay off
    first = memory.last is None and memory.speed.counts
    enough = first or (asked - most >= options.shrink_least * asked and waste >= cost)
    if not enough or now - since < options.shrink_after_seconds:
        return memory, _hold(asked)
    units = max(most, _least_after_step(memory, asked, most, smoothed.level, options))
    units = bounds.clamp(even(units, bounds))
    if units >= asked:
        return memory, _hold(asked)
    then = (sizes.rate_on(units) or 0.0) * memory.speed.factor
    why = (
        f"for {(now - since) / 60:.0f} min at most {most} of {asked} were needed at {smoothed.level:.4g} tuples/s; "
        f"{waste / 3600:.2f} unit-hours wasted pay for a change ({cost / 3600:.2f})"
    )
    return memory, SizeVerdict(
        VerdictKind.SHRINK,
        units,
        why,
        ((f"{asked}, as before", "more was wasted than a change costs"),),
        (("rate", then), ("saves_unit_hours_per_hour", asked - units), ("model", _model(memory))),
    )


def _most_needed(memory: Memory, needed: int, options: ElasticOptions, now: float) -> tuple[float, int, int]:
    """The most that was needed, in two spells of half the time that must pass: the older one is forgotten in turn."""
    since, most, before = memory.most_needed
    if memory.low_since is None:
        return now, needed, 0
    if now - since >= options.shrink_after_seconds / 2:
        return now, needed, most
    return since, max(most, needed), before


def _least_after_step(memory: Memory, asked: int, wanted: int, level: float, options: ElasticOptions) -> int:
    """At most `shrink_most` of a size at a step, unless a size as small as wanted has carried such a load before."""
    if any(units <= wanted and rate >= level for units, rate in memory.proven):
        return wanted
    return max(1, whole_up(asked * (1 - options.shrink_most)))


def _prove(memory: Memory, units: int, level: float) -> Memory:
    """The size carries this load within the target."""
    known = dict(memory.proven)
    if known.get(units, 0.0) * 1.02 >= level:
        return memory
    known.pop(units, None)
    known[units] = level
    return memory._replace(proven=tuple(known.items())[-MOST_PROVEN:])


def _changed(memory: Memory, observed: Observed, verdict: SizeVerdict, options: ElasticOptions, now: float) -> Memory:
    grows = verdict.kind is VerdictKind.GROW
    return memory._replace(
        doublings=waiting.doublings_after(memory, options, now, grows=grows),
        last=LastChange(
            now,
            observed.asked,
            verdict.units,
            observed.processed_rate or 0.0,
            max(memory.smoothed.last if memory.smoothed else 0.0, observed.latest or 0.0),
        ),
        low_since=None,
        most_needed=(now, 0, 0),
        waste=0.0,
    )


def _model(memory: Memory) -> str:
    """Which model a decision used."""
    speed = memory.speed
    if not speed.counts:
        return "profiled"
    return f"learned: {speed.value:.3f} of the profiled (spread {speed.spread:.3f}, {speed.readings} readings)"


@lru_cache(maxsize=1024)
def _hold(units: int) -> SizeVerdict:
    return SizeVerdict(VerdictKind.HOLD, units)
