"""Plans put to the test in simulated time: is this rate stable, and what is the highest that is?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.allocation.pipeline import demands_of
from penstock.modelling.library import reference_library
from penstock.prediction.rate import Routing
from penstock.simulation.engine import simulate_scenario
from penstock.simulation.from_plan import Options, from_plan
from penstock.simulation.system import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.modelling.library import ModelLibrary
    from penstock.planning.plan import Plan
    from penstock.simulation.outcome import PipelineOutcome, SimulationOutcome

PUBLISHED_SLOPE = 0.001
"""Seconds per second: a trial whose latency rises no faster is stable (model-driven scheduling, Algorithm 1)."""
WARM_UP_SHARE = 0.2


@dataclass(frozen=True)
class SimulatedTrial:
    """A plan and how it is tried. On Storm a slot is a process that may use all cores of its node."""

    plan: Plan
    seconds: float
    routing: Routing = Routing.SHUFFLE
    seed: int = 0
    library: ModelLibrary | None = None

    def at(self, rate: float) -> SimulationOutcome:
        demands = demands_of(self.plan.pipeline, self.library or reference_library())
        return simulate_scenario(
            Scenario(
                cluster=self.plan.cluster,
                pipelines=(from_plan(self.plan, demands, rate, Options(routing=self.routing)),),
                seconds=self.seconds,
                warm_up=WARM_UP_SHARE * self.seconds,
                seed=self.seed,
                slot_cores=None,
            )
        )

    def is_stable(self, rate: float) -> bool:
        return is_stable(self.at(rate).pipelines[self.plan.pipeline.name])


def is_stable(outcome: PipelineOutcome) -> bool:
    """It did what was offered, and latency does not rise faster than the document allows."""
    return outcome.stable and outcome.latency_slope <= PUBLISHED_SLOPE


def highest(stable: Callable[[int], bool], guess: int, most: int | None = None) -> int:
    """The largest whole number up to `most` that is stable, 0 where 1 is not; what is stable is so for all below.

    Strides double away from the guess until they have crossed the edge, then the gap is halved.
    """
    low, high = 0, math.inf if most is None else most + 1
    tried, stride = min(max(guess, 1), most or max(guess, 1)), 1
    while low + 1 < high:
        if stable(tried):
            low, following = tried, tried + stride
        else:
            high, following = tried, tried - stride
        stride *= 2
        tried = following if low < following < high else (low + int(min(high, 2 * low + 2))) // 2
    return low
