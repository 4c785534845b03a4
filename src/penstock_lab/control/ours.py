"""Our controller as the experiment judges it: the very code the live one runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.control.elasticity.follow import decide
from penstock.control.elasticity.limits import Bounds
from penstock.control.elasticity.memory import Memory
from penstock.control.elasticity.options import ElasticOptions
from penstock.control.elasticity.verdict import Observed
from penstock.dataflow.tolerance import whole_up

if TYPE_CHECKING:
    from penstock_lab.control.loads import LoadTrace
    from penstock_lab.control.plant import Site
    from penstock_lab.control.rivals import TickReading


@dataclass(frozen=True, slots=True)
class PerUnit:
    """Models that know what one unit does."""

    rate: float

    def units_for(self, rate: float) -> int:
        return max(1, whole_up(rate / self.rate))

    def rate_on(self, units: int) -> float:
        return units * self.rate


@dataclass
class OurRule:
    site: Site
    options: ElasticOptions = field(default_factory=ElasticOptions)
    memory: Memory = field(default_factory=Memory)
    log: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = PerUnit(self.site.model_rate)
        self._bounds = Bounds(1, self.site.most_units)

    def decide(self, seen: TickReading) -> int:
        observed = Observed(
            seen.rate, seen.processed_rate, seen.backlog, seen.busy, seen.latency_s, seen.held, seen.asked,
            self.site.latency_target_s,
        )  # fmt: skip
        self.memory, verdict = decide(self.memory, observed, self._sizes, self._bounds, self.options, seen.now)
        if verdict.changes:
            self.log.append((seen.now, f"{seen.asked} -> {verdict.units}: {verdict.why}"))
        return verdict.units


def ours(site: Site, _: LoadTrace) -> OurRule:
    return OurRule(site)
