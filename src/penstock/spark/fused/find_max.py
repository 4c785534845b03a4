"""The highest rate a pipeline keeps up with, found by running it: decided here, run by whoever is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.report.report import Report

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
