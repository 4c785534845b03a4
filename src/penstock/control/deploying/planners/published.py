"""003 as published: the unit costs of what falls short are gradually exaggerated. The factor is not stated; a tenth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.deploying.values import Analysis, DeployPlan, RoundReading


@dataclass(frozen=True)
class PublishedCosts:
    name: ClassVar[str] = "published"

    factor: float = 1.1

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]:
        return {name: cost * (self.factor if name in analysis.short else 1.0) for name, cost in costs.items()}
