"""One thread of every operator on every node: how the Metis scheduler, P-Deployer's baseline, parallelises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from penstock.allocation.profiled import ByProfile, equal_threads

if TYPE_CHECKING:
    from penstock.allocation.contract import OperatorAllocation
    from penstock.modelling.task_profile import TaskProfile
    from penstock.modelling.traffic import Traffic


@dataclass(frozen=True, slots=True)
class PerNode(ByProfile):
    """As many threads of every operator as there are nodes, whatever the operator needs: as published, with few nodes
    that is too few. `nodes` sets the number; unset it is that of the cluster, or of the machines the work fills."""

    name: ClassVar[str] = "per-node"

    nodes: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def on_nodes(self, nodes: int) -> PerNode:
        return self if self.nodes is not None else PerNode(nodes)

    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation:
        return equal_threads(operator, traffic, profile, self.nodes or 1, slot_memory_mb, "one thread for every node")
