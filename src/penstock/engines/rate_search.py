"""The highest rate a pipeline keeps up with, found by running it: decided here, run by whoever is given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, InterruptedWorkError
from penstock.dataflow.load import Load
from penstock.report.result import TriedRate

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.report.report import Report
    from penstock.report.simulated_result import SimulatedResult


MORE_THAN_ANY = 5e6
"""Tuples/s no pipeline keeps up with."""
PRECISION = 0.05
"""How near the highest stable and the lowest unstable rate must come, as a share of the latter."""
STEP_DOWN = 0.8
"""While no rate has been stable yet, the next is so much of the last."""
MOST_TRIALS = 12


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One run: the rate offered, whether it was stable, the report. `saturated`: more was offered than can be done."""

    rate: float
    stable: bool
    report: Report
    saturated: bool = False


@dataclass(frozen=True, slots=True)
class HighestRate:
    """The stable trial with the highest rate (None: none was), and all trials in the order they were run."""

    best: RateTrial | None
    trials: tuple[RateTrial, ...]


def find_highest_rate(
    offer: Callable[[float], Report],
    stopped: Callable[[], bool],
    low: float | None = None,
    high: float | None = None,
    tried: Callable[[RateTrial], None] | None = None,
) -> HighestRate:
    """Bisection on whether a rate is stable, between `low` and `high`.

    Without `high` a run that is offered more than it can do says what that is: a saturated pipeline never waits for
    tuples, so what it does is an upper bound on what it keeps up with. Without `low` rates fall from there until one is
    stable.
    """
    trials: list[RateTrial] = []

    def run(rate: float, *, saturated: bool = False) -> RateTrial:
        report = offer(rate)
        trial = RateTrial(report.sustained_rate if saturated else rate, report.stable, report, saturated)
        trials.append(trial)
        if tried is not None:
            tried(trial)
        return trial

    best: RateTrial | None = None
    if high is None:
        first = run(MORE_THAN_ANY, saturated=True)
        if first.rate <= 0:
            return HighestRate(None, tuple(trials))
        high = first.rate
        candidate = (1 - PRECISION) * high
    else:
        candidate = high
    low = low or 0.0
    while not stopped() and len(trials) < MOST_TRIALS:
        trial = run(candidate)
        if trial.stable and not stopped():
            best, low = trial, candidate
        else:
            high = candidate
        if high - low <= PRECISION * high:
            break
        candidate = (low + high) / 2 if best is not None or low > 0 else STEP_DOWN * high
    return HighestRate(best, tuple(trials))


# The highest rate a plan sustains, by simulating it at one rate after the other.


SEARCH_PRECISION = 0.01
"""How near the highest stable and the lowest unstable rate come, as a part of the latter."""
STEP_UP = 1.25
LEAST_PART = 1e-3
MOST_LEFT = 0.005
ALWAYS_BUSY = 0.99


def highest_stable(stable: Callable[[float], bool], first: float) -> float | None:
    """The highest rate that is stable, within `SEARCH_PRECISION`: steps of a quarter up or a fifth down from `first`
    until one rate is stable and another is not, then bisection. None: not even a thousandth of `first` is."""
    low, high, rate = 0.0, math.inf, first
    while high - low > SEARCH_PRECISION * high or math.isinf(high):
        if stable(rate):
            low = rate
        else:
            high = rate
        if high < first * LEAST_PART:
            return None
        rate = STEP_UP * low if math.isinf(high) else (low + high) / 2 if low else high / STEP_UP
    return low


def keeps_up(result: SimulatedResult) -> bool:
    """Whether a trial of a search was stable, more strictly than a report can say of a run with its noise.

    A report looks at all tuples. Where one slot of many is asked for too much, few tuples wait, but ever longer. So: no
    station that is always at work has more waiting than `MOST_LEFT` of what it received, and sources hold no more
    than that back.
    """
    report, outcome = result.report, result.outcome
    if not report.stable:
        return False
    if outcome is None:
        return report.backlog <= MOST_LEFT * report.audit.emitted
    seen = outcome.pipelines[result.first.pipeline]
    if seen.waiting > MOST_LEFT * seen.offered:
        return False
    return not any(
        station.utilisation >= ALWAYS_BUSY and station.queued - station.threads > MOST_LEFT * station.received
        for station in seen.stations
    )


def search(
    where: str, predicted: float, offer: Callable[[Load], SimulatedResult], tell: Callable[[str], None]
) -> SimulatedResult:
    if not 0 < predicted < math.inf:
        raise BadInputError(f"{where}: no operator with a model limits its rate, so there is none to look for")
    results: dict[float, SimulatedResult] = {}
    tried: list[TriedRate] = []

    def stable(rate: float) -> bool:
        results[rate] = offer(Load.constant(rate))
        is_stable, report = keeps_up(results[rate]), results[rate].report
        tried.append(TriedRate(rate, is_stable, report.sustained_rate, saturated=False))
        tell(f"{rate:,.4g} tuples/s: {'stable' if is_stable else 'falls behind'}")
        return is_stable

    try:
        best = highest_stable(stable, predicted)
    except KeyboardInterrupt as error:
        kept = [trial.rate for trial in tried if trial.stable]
        raise InterruptedWorkError(
            f"highest stable rate so far: {max(kept):,.4g} tuples/s" if kept else "no stable rate so far"
        ) from error
    shown = results[tried[-1].rate if best is None else best]
    return replace(shown, pipelines=(replace(shown.first, highest_rate=best),), searched=True, tried=tuple(tried))
