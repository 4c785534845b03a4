"""A plan: threads, machines, who sits where, and what that will do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.tolerance import covers
from penstock.cluster.topology import MEMORY
from penstock.dataflow.code import pipeline_document, why_not_placed
from penstock.modelling.library import models_document
from penstock.planning.prediction.placement import Routing, SlotUsage, node_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Cluster, Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.library import ModelLibrary
    from penstock.planning.allocation.contract import Allocation
    from penstock.planning.placement.contract import Placement
    from penstock.planning.prediction.forecast import RunForecast
    from penstock.planning.prediction.placement import SupportedRate
    from penstock.planning.replanning.plan_changes import ThreadMoves

FUSED, PLACED = "fused", "placed"
"""Engines a plan can be made for."""
PLAN_FORMAT = 2
"""Format of plan files. 2: they carry the models they were made with."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a placement will do at the planned rate.

    `shuffle` and `slot_aware` are the rates supported when every stream is dealt that way, `declared` when every
    stream keeps its own grouping. Usage and latency are for `routing`.
    """

    routing: Routing
    shuffle: SupportedRate
    slot_aware: SupportedRate
    declared: SupportedRate
    rate_range: Mapping[str, tuple[float, float]]
    """Lowest and highest supported rate by the spread of the trials; empty where models carry no spread."""
    slots: Mapping[Slot, SlotUsage]
    latency_ms: Mapping[str, float]
    network_cost: float
    forecast: RunForecast
    """Prediction of a run by the engine of the plan; all else is of the placement, by the models alone."""
    unmeasured: tuple[str, ...] = ()
    """Operators without a model: the rates are upper bounds, set by the others."""
    fused_only: tuple[str, ...] = ()
    """Operators that cannot run placed: there is no placed rate."""

    @property
    def supported(self) -> SupportedRate:
        """Rate with its own routing."""
        return self.slot_aware if self.routing is Routing.SLOT_AWARE else self.shuffle

    @property
    def nodes(self) -> Mapping[str, SlotUsage]:
        return node_usage(self.slots)

    def rates_document(self) -> dict[str, Any]:
        """Rates of the placement by routing: predicted, or upper bounds if operators were not measured; null if the
        pipeline cannot run placed."""
        ways = {"shuffle": self.shuffle, "slot_aware": self.slot_aware, "declared": self.declared}
        rates = {name: finite(supported.rate) for name, supported in ways.items()}
        unknown = dict.fromkeys(ways)
        if self.fused_only:
            return {"rate": unknown}
        return {"rate": unknown, "upper_bound": rates} if self.unmeasured else {"rate": rates}


@dataclass(frozen=True, slots=True)
class Considered:
    """One of the plans a re-plan chose from."""

    name: str
    """`fewest moves` or `fresh`."""
    rate: float
    slots: int
    moved: int
    chosen: bool

    @classmethod
    def of(cls, name: str, plan: Plan, *, chosen: bool) -> Considered:
        return cls(name, plan.predicted_rate, plan.slots_used, plan.moves.moved if plan.moves else 0, chosen)

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rate": finite(self.rate),
            "slots": self.slots,
            "moved": self.moved,
            "chosen": self.chosen,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision and its reasons. `cluster` is what was rented or given; `slots_asked` counts growth in."""

    pipeline: Pipeline
    rate: float
    allocation: Allocation
    cluster: Cluster
    placement: Placement
    prediction: Prediction
    slots_asked: int
    fewest_slots: int
    warnings: tuple[str, ...] = ()
    currency: str = "USD"
    moves: ThreadMoves | None = None
    """The threads that move if this plan replaces one that runs."""
    library: ModelLibrary | None = None
    """Models of its operators, which it was planned with."""
    utilisation: float = 1.0
    """Target utilisation: `rate` as a share of the rate the plan is sized for."""
    considered: tuple[Considered, ...] = ()
    """The plans a re-plan chose from."""
    engine: str = FUSED
    """Engine the verdict is about."""
    fused_machines: Cluster | None = None
    """Machines for a fused run, which needs other slots than the placement; None: those of the placement."""

    @property
    def forecast(self) -> RunForecast:
        """The verdict: what the plan will do, run by its engine."""
        return self.prediction.forecast

    @property
    def machines(self) -> Cluster:
        """The machines its engine needs."""
        return self.cluster if self.engine == PLACED or self.fused_machines is None else self.fused_machines

    @property
    def verdict(self) -> dict[str, Any]:
        """The plain contents of the key `verdict`."""
        machines = self.machines
        return {
            **self.forecast.document(),
            "unmeasured": list(self.prediction.unmeasured),
            "cannot_run_placed": list(self.prediction.fused_only),
            "machines": [{"name": n.name, "size": n.size, "slots": n.slots, "price": n.price} for n in machines.nodes],
            "price_per_hour": machines.price,
            "currency": self.currency,
        }

    @property
    def predicted_rate(self) -> float:
        """Tuples/s placed: with the planned routing or with the groupings as declared, whichever is lower."""
        return min(self.prediction.supported.rate, self.prediction.declared.rate)

    @property
    def keeps_rate(self) -> bool:
        return covers(self.predicted_rate, self.rate)

    @property
    def sized_for(self) -> float:
        """Tuples/s: threads, slots and machines are those of this rate."""
        return self.rate / self.utilisation

    @property
    def growth(self) -> int:
        """Slots added because the placer refused fewer."""
        return self.slots_asked - self.allocation.slots_with_sources_and_sinks

    @property
    def slots_used(self) -> int:
        return len(self.prediction.slots)

    @property
    def gap(self) -> float | None:
        """How far the plan can be from the fewest slots possible: 0.25 means at most a quarter more.

        None where it has fewer than that: its slots will be overloaded, or it will not do the rate.
        """
        slots = max(self.slots_asked, self.slots_used)
        return slots / self.fewest_slots - 1 if slots >= self.fewest_slots else None

    def __str__(self) -> str:
        """What it takes and what it will do; `document()` has the rest."""
        nodes, price = len(self.cluster.nodes), self.cluster.price
        highest = self.forecast.max_rate
        fused = "" if highest is None or self.engine != FUSED else f"; {highest.value:,.4g} tuples/s fused"
        return "\n".join(
            [
                f"{self.pipeline.name} at {self.rate:,.6g} tuples/s, by {self.allocation.allocator} and "
                f"{self.placement.placer}: {self.slots_used} slots on {nodes} machine{'' if nodes == 1 else 's'}"
                + ("" if price is None else f", {price:,.3f} {self.currency} per hour"),
                f"predicted  {self._placed_words()}{fused}",
                *(f"warning    {warning}" for warning in self.warnings),
            ]
        )

    def _placed_words(self) -> str:
        supported = self.prediction.supported
        limit = f", limited by {supported.bottleneck}" if supported.bottleneck else ""
        if self.prediction.fused_only:
            return why_not_placed(self.prediction.fused_only)
        if self.prediction.unmeasured:
            return f"unknown: {', '.join(self.prediction.unmeasured)} not measured"
        return f"{supported.rate:,.4g} tuples/s placed{limit}"

    def document(self) -> dict[str, Any]:
        """The plain contents of a plan file, and of `penstock plan --json`."""
        prediction = self.prediction
        return {
            "format": PLAN_FORMAT,
            "pipeline": self.pipeline.name,
            "rate": self.rate,
            "allocator": self.allocation.allocator,
            "placer": self.placement.placer,
            "operators": {
                operator.name: {
                    "rate": operator.rate,
                    "threads": operator.threads,
                    "cpu": operator.cpu,
                    "memory": operator.memory,
                }
                for operator in self.allocation.operators
            },
            "slots": {
                "allocated": self.allocation.slots,
                "allocated_with_ends": self.allocation.slots_with_sources_and_sinks,
                "placed": self.slots_asked,
                "acquired": len(self.cluster.slots),
                "used": self.slots_used,
                "memory_mb": min(node.capacity[MEMORY] / node.slots for node in self.cluster.nodes),
            },
            "nodes": [
                {
                    "name": node.name,
                    "rack": node.rack,
                    "size": node.size,
                    "slots": node.slots,
                    "price": node.price,
                }
                for node in self.cluster.nodes
            ],
            "placement": [
                {"node": slot.node, "slot": slot.number, "threads": threads}
                for slot, threads in sorted(self.placement.by_slot().items(), key=self._slot_order)
            ],
            "prediction": {
                "routing": str(prediction.routing),
                **prediction.rates_document(),
                "rate_range": {name: list(map(finite, ends)) for name, ends in prediction.rate_range.items()},
                "bottleneck": {
                    "shuffle": prediction.shuffle.bottleneck,
                    "slot_aware": prediction.slot_aware.bottleneck,
                    "declared": prediction.declared.bottleneck,
                },
                "slots": [
                    {"node": slot.node, "slot": slot.number, "cpu": used.cpu, "memory": used.memory}
                    for slot, used in sorted(prediction.slots.items(), key=self._slot_order)
                ],
                "nodes": [
                    {"node": name, "cpu": used.cpu, "memory": used.memory} for name, used in prediction.nodes.items()
                ],
                "latency_ms": {name: finite(value) for name, value in prediction.latency_ms.items()},
                "network_cost": prediction.network_cost,
                "fused": _of_fused(prediction.forecast),
            },
            "verdict": self.verdict,
            **({"utilisation": self.utilisation} if self.utilisation < 1 else {}),
            "bounds": {"slots": self.fewest_slots, "gap": self.gap},
            "price_per_hour": self.cluster.price,
            "currency": self.currency,
            "warnings": list(self.warnings),
            **({"moves": self.moves.document()} if self.moves else {}),
            **({"considered": [plan.document() for plan in self.considered]} if self.considered else {}),
            **self._models(),
            "definition": pipeline_document(self.pipeline),
        }

    def _models(self) -> dict[str, Any]:
        """So that who runs or simulates the plan needs no other file."""
        if self.library is None or not (self.library.models or self.library.profiles):
            return {}
        return {"models": models_document(self.library, profiles=self.library.profiles.values())}

    def _slot_order(self, item: tuple[Slot, object]) -> tuple[int, int]:
        return self.cluster.position(item[0].node), item[0].number


def _of_fused(forecast: RunForecast) -> dict[str, Any] | None:
    """Fused run in plan files, beside the verdict; None: it is unknown, or the plan is for a placed run."""
    if forecast.max_rate is None or forecast.engine != FUSED:
        return None
    document = forecast.document()
    return {"rate": document["rate"], "latency_ms": document["latency_ms"], "batch_tuples": forecast.batch_rows}


def finite(value: float) -> float | None:
    """JSON knows no infinity: an unbounded figure is null."""
    return value if math.isfinite(value) else None
