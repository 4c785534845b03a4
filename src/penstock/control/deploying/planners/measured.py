"""Costs as they were measured: what an operator was planned to do over what it truly does.

    cost_n = cost * planned rate / true rate        true rate = tuples received / part of the time at work

of every operator that was at work enough to tell. One round shows all of them, so the next plan is right unless what is
short changes with the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.deploying.values import Analysis, DeployPlan, RoundReading


@dataclass(frozen=True)
class MeasuredCosts:
    name: ClassVar[str] = "measured"

    least_busy: float = 0.05
    """Below, what is measured is mostly overhead."""
    most: float = 20.0
    """A round raises a cost by no more: a reading beyond that is not believed."""

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]:
        return {name: self._cost(name, cost, plan, reading) for name, cost in costs.items()}

    def _cost(self, name: str, cost: float, plan: DeployPlan, reading: RoundReading) -> float:
        seen, planned = reading.operators.get(name), plan.capacity.get(name)
        if seen is None or planned is None or seen.busy < self.least_busy or seen.received <= 0:
            return cost
        return cost * min(self.most, max(1.0, planned / seen.true_rate))
