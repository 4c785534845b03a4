"""Every allocator with every placer, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.planning.plan import Plan, finite
from penstock.planning.registry import ALLOCATORS, PLACERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.base.errors import Refusal
    from penstock.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class Compared:
    """One pair of policies and its answer."""

    allocator: str
    placer: str
    answer: Plan | Refusal | str
    """A plan, a refusal, or why the placer does not come into question for the pipeline."""

    def document(self) -> dict[str, Any]:
        pair = {"allocator": self.allocator, "placer": self.placer}
        if not isinstance(self.answer, Plan):
            return {**pair, "refused": str(self.answer)}
        plan = self.answer
        return {
            **pair,
            "slots": plan.document()["slots"],
            "nodes": len(plan.cluster.nodes),
            "price_per_hour": plan.cluster.price,
            **plan.prediction.rates_document(),
            "highest_slot_cpu": max(used.cpu for used in plan.prediction.slots.values()),
            "highest_slot_memory": max(used.memory for used in plan.prediction.slots.values()),
            "latency_ms": {name: finite(value) for name, value in plan.prediction.latency_ms.items()},
            "network_cost": plan.prediction.network_cost,
        }


def pairs(allocator: str | None = None, placer: str | None = None) -> list[tuple[str, str]]:
    """Every allocator with every placer, or only with those named."""
    allocators = [allocator] if allocator else ALLOCATORS.names()
    placers = [placer] if placer else PLACERS.names()
    return [(a, p) for a in allocators for p in placers]


def compare(planner: Planner, rate: float, asked: Iterable[tuple[str, str]]) -> Iterator[Compared]:
    for allocator, placer in asked:
        policies = ALLOCATORS.create(allocator), PLACERS.create(placer)
        yield Compared(allocator, placer, planner.unkept_resources(policies[1]) or planner.plan(rate, *policies))
