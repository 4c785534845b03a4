"""How fair and how thrifty a division is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.planning.sharing.contract import Divides
from penstock.planning.sharing.dominant_fair import unit_demands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.planning.sharing.contract import Sharer, Shares, Tenants


@dataclass(frozen=True, slots=True)
class Served:
    """What one pipeline was given and what it needed so far, as integrals over time. More than it needs now does not
    make up for less than it needed before."""

    allocated: float = 0.0
    needed: float = 0.0

    def after(self, seconds: float, allocated: float, needed: float) -> Served:
        """So many seconds later, during which it held `allocated` and needed `needed`."""
        return Served(self.allocated + seconds * min(allocated, needed), self.needed + seconds * needed)

    @property
    def degree(self) -> float:
        """The fairness degree: integral of allocated / integral of needed, in [0, 1]; 1 where nothing was needed."""
        return self.allocated / self.needed if self.needed > 0 else 1.0


def fairness_degree(degrees: Sequence[float]) -> float:
    """Of the whole cluster: the mean of its pipelines' degrees."""
    return sum(degrees) / len(degrees)


def jain(values: Sequence[float]) -> float:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 if all are equal (nothing for anybody too), 1/n if one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Measures:
    minima_missed: int
    """Pipelines with less than their minimum."""
    starved: int
    """Pipelines with nothing."""
    unused: float
    """Nodes nobody has although somebody wants and can use them."""
    jain: float
    """Jain's index of the shares as parts of what is needed."""
    fairness: float
    """Fairness degree of the cluster while this division lasts: the mean of these parts."""


def measure(tenants: Tenants, sharer: Sharer, shares: Shares, nodes: Mapping[str, float]) -> Measures:
    """`nodes`: what everybody holds in the end, where that differs from the shares."""
    parts = satisfied(tenants, sharer, shares, nodes)
    return Measures(
        minima_missed=sum(missed_minimum(tenants, sharer, shares, nodes).values()),
        starved=sum(not nodes[tenant.name] for tenant in tenants.pipelines),
        unused=unused(tenants, sharer, shares, nodes),
        jain=jain(parts),
        fairness=fairness_degree(parts),
    )


def missed_minimum(tenants: Tenants, sharer: Sharer, shares: Shares, nodes: Mapping[str, float]) -> dict[str, bool]:
    """Where slots are divided, one that got all workers it asked for misses nothing."""
    if sharer.divides is Divides.SLOTS:
        return {tenant.name: tenant.name in shares.waiting for tenant in tenants.pipelines}
    return {tenant.name: nodes[tenant.name] < tenant.minimum for tenant in tenants.pipelines}


def satisfied(tenants: Tenants, sharer: Sharer, shares: Shares, nodes: Mapping[str, float]) -> list[float]:
    """Return the part of its need that each pipeline has: nodes, or workers if slots are divided."""
    if sharer.divides is Divides.SLOTS:
        return [len(shares.slots[tenant.name]) / tenants.workers(tenant) for tenant in tenants.pipelines]
    return [min(1.0, nodes[tenant.name] / tenant.wanted) for tenant in tenants.pipelines]


def unused(tenants: Tenants, sharer: Sharer, shares: Shares, nodes: Mapping[str, float]) -> float:
    """What is left, as far as pipelines want it that can use it: those with their minimum, and those whose minimum
    the rest would cover."""
    if sharer.divides is Divides.SLOTS:
        slots = sum(node.slots for node in tenants.cluster.nodes)
        free = slots - sum(map(len, shares.slots.values()))
        lacking = sum(tenants.workers(tenant) - len(shares.slots[tenant.name]) for tenant in tenants.pipelines)
        return min(free, lacking) / tenants.slots
    if sharer.divides is Divides.RESOURCES:
        return _units_that_fit(tenants, nodes)
    left = tenants.capacity - sum(nodes.values())
    wanted = sum(
        tenant.wanted - nodes[tenant.name]
        for tenant in tenants.pipelines
        if tenant.minimum <= nodes[tenant.name] + left and nodes[tenant.name] < tenant.wanted
    )
    return max(0, min(left, wanted))


def _units_that_fit(tenants: Tenants, nodes: Mapping[str, float]) -> int:
    """How many units of how many pipelines would fit into the resources left, taken in submission order."""
    demands, capacity, _ = unit_demands(tenants)
    used = np.array([nodes[tenant.name] for tenant in tenants.pipelines], dtype=float) @ demands
    left = capacity * (1 + TOLERANCE) - used
    fitting = 0
    for tenant, demand in zip(tenants.pipelines, demands, strict=True):
        needs = demand > 0
        room = int(np.floor((left[needs] / demand[needs]).min()))
        missing = tenant.minimum - int(nodes[tenant.name])
        units = min(room, tenant.wanted - int(nodes[tenant.name]))
        if units > 0 and room >= missing:
            left = left - units * demand
            fitting += units
    return fitting
