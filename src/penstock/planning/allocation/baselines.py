"""Allocators to compare with: `lsa`, linear scaling (Shukla and Simmhan, Algorithm 2), and `per-node`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from penstock.base.tolerance import exceeds, whole_down
from penstock.planning.allocation.contract import OperatorAllocation, ThreadBundle, idle_operator
from penstock.planning.allocation.profiled import ByProfile, equal_threads

if TYPE_CHECKING:
    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile, Traffic


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """`n = floor(w / I(1))` threads of C(1), M(1); a remainder r > 0 adds one thread of C(1)*r/I(1), M(1)*r/I(1)."""

    name: ClassVar[str] = "lsa"

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        one_rate, one_cpu, one_memory = model.rate(1), model.cpu(1), model.memory(1)
        if rate <= 0:
            return idle_operator(operator, rate)
        whole = whole_down(rate / one_rate)
        rest = (rate - whole * one_rate) / one_rate
        remains = not whole or exceeds(rate, whole * one_rate)
        bundles = [(whole, ThreadBundle(1, one_cpu, one_memory))] if whole else []
        if remains:
            bundles.append((1, ThreadBundle(1, one_cpu * rest, one_memory * rest)))
        reason = (
            f"one thread of '{model.name}' supports {one_rate:g}/s: {rate:g} / {one_rate:g} = {whole} whole threads"
        )
        if remains:
            reason += f" and one for the remaining {rest * one_rate:g}/s"
        return OperatorAllocation(operator, rate, tuple(bundles), reason)


@dataclass(frozen=True, slots=True)
class PerNode(ByProfile):
    """One thread of every operator per node, as the Metis scheduler of P-Deployer's baseline does: with few nodes
    that is too few. `nodes` sets the number; unset it is that of the cluster, or of the machines the work fills."""

    name: ClassVar[str] = "per-node"

    nodes: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def on_nodes(self, nodes: int) -> PerNode:
        return self if self.nodes is not None else PerNode(nodes)

    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation:
        return equal_threads(operator, traffic, profile, self.nodes or 1, slot_memory_mb, "one thread for every node")
