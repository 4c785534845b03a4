"""One thread of every operator on every node: how the Metis scheduler, P-Deployer's baseline, parallelises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from penstock.allocation.profiled import equal_threads
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.modelling.conversion import profile_of
from penstock.modelling.traffic import Traffic

if TYPE_CHECKING:
    from penstock.allocation.contract import OperatorAllocation
    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile


@dataclass(frozen=True, slots=True)
class PerNode:
    """As many threads of every operator as there are nodes, whatever the operator needs: as published, with few nodes
    that is too few. `nodes` sets the number; unset it is that of the cluster, or of the machines the work fills."""

    name: ClassVar[str] = "per-node"

    nodes: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    def on_nodes(self, nodes: int) -> PerNode:
        return self if self.nodes is not None else PerNode(nodes)

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        profile = profile_of(model, DEFAULT_SLOT_MEMORY_MB, handled=1.0)
        return self.allocate_profiled(operator, Traffic(rate, (), ()), profile, DEFAULT_SLOT_MEMORY_MB)

    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation:
        return equal_threads(operator, traffic, profile, self.nodes or 1, slot_memory_mb, "one thread for every node")
