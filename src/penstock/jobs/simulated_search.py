"""The highest rate a plan sustains, by simulating it at one rate after the other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.dataflow.load import Load
from penstock.errors import BadInputError, InterruptedWorkError
from penstock.report.result import TriedRate

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.report.simulated_result import SimulatedResult

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
