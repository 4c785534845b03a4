"""The highest stable rate of one slot, by bisection.

A saturated slot does not wait for tuples to arrive, so what it does is an upper bound on what it keeps up with, and the
first rate tried is just below. That holds for a warm slot. One whose first trial was slow (code not compiled, caches
cold, connections not open) gives itself away: it is at work on a tuple for `busy / rate` seconds, and if that has
fallen since, the bracket is raised by as much and the search goes on. A slot that is slow for two trials long is taken
for a slow slot.

Cores need not be as fast in one trial as in the next. All rates of a search are told for the pace of the saturated
trial, and those offered are for the pace of the trial before; so what was not stable while the cores were slow does not
count against the rate at another time. The peak is told for the mean pace.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING

from penstock.dataflow.tolerance import exceeds
from penstock.modelling.cpu_speed import slowed

if TYPE_CHECKING:
    from penstock.spark.trials.trials import Trial

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
        # rounds of a trial at a given rate may have fewer tuples than threads: the best says what a full one takes
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
