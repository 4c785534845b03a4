"""What a sharing policy is asked and what it answers: how much of the cluster each pipeline gets.

A sharer gets `Tenants` (the cluster and all who want of it) and returns `Shares`. It moves nothing: which nodes
those are, and what has to move for it, is decided by `penstock.sharing.handover`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.sharing.tenants import Tenant, Tenants


class Divides(StrEnum):
    """What a policy hands out."""

    NODES = "nodes"
    """Whole nodes, each to one pipeline."""
    SLOTS = "slots"
    """Single slots: pipelines share nodes. A share counts slots in nodes, so it may be a fraction."""
    RESOURCES = "resources"
    """Nodes' worth of declared resources: as many as fit in every resource, so perhaps more than there are nodes."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Every pipeline's share in standard nodes, and of those who got less than they can run with, why."""

    policy: str
    nodes: Mapping[str, float]
    waiting: Mapping[str, str]
    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Where policies that divide slots put the workers."""
    takers: tuple[Tenant, ...] = ()
    """In which order pipelines take nodes, where that is not level by level."""


class Sharer(Protocol):
    """One way of dividing a cluster. Pure and deterministic; what nothing else decides, submission order does.

    No policy hands out more than there is or gives a pipeline more than it desires. What else it promises it says
    here, and the tests hold it to that over random clusters.
    """

    name: ClassVar[str]
    published: ClassVar[bool]
    """Kept as its publication has it, weaknesses included."""
    divides: ClassVar[Divides]
    keeps_minima: ClassVar[bool]
    """Nobody gets less than its minimum while all minima fit; when they do not, nobody gets a part it cannot use."""
    wastes_nothing: ClassVar[bool]
    """Nothing stays unused while a pipeline wants it and can use it."""
    obeys_priority: ClassVar[bool]
    """Of two pipelines alike in everything but priority, the higher one never gets less."""

    def share(self, tenants: Tenants) -> Shares: ...


def short_of_minimum(tenants: Tenants, nodes: Mapping[str, float], reason: str) -> dict[str, str]:
    """The pipelines below their minimum, with how far and the policy's reason."""
    return {
        tenant.name: f"{got_of(nodes[tenant.name], tenant)}; {reason}"
        for tenant in tenants.pipelines
        if nodes[tenant.name] < tenant.minimum
    }


def got_of(got: float, tenant: Tenant) -> str:
    return f"gets {got:g} of at least {tenant.minimum} {counted(tenant.minimum)}"


def counted(nodes: float) -> str:
    return "node" if nodes == 1 else "nodes"
