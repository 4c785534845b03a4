"""What a planner of rounds is: from the costs a round was planned with and what it showed, the costs for the next.

Costs are factors of what the models say, by operator. `measured` answers are absolute, `published` ones go up step by
step; the loop plans again with whatever comes back and stops where that gives the same plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.deploying.values import Analysis, DeployPlan, RoundReading


class RoundPlanner(Protocol):
    name: ClassVar[str]

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]: ...
