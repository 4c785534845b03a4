"""Sharing a cluster by one policy, or by all of them for comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides
from penstock.planning.sharing.dominant_fair import dominant_unit, unit_demands
from penstock.planning.sharing.handover import HandOver, Moves, hand_over
from penstock.planning.sharing.measures import Measures, measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.planning.sharing.contract import Sharer, Shares, Tenants


@dataclass(frozen=True, slots=True)
class Sharing:
    """A division of a cluster: shares, the nodes they are, what moves, and how fair it is."""

    tenants: Tenants
    sharer: Sharer
    shares: Shares
    handed: HandOver | None
    """None where pipelines share nodes: then nobody holds any."""
    nodes: Mapping[str, float]
    """What everybody gets, in standard nodes."""
    waiting: Mapping[str, str]
    measures: Measures

    @property
    def must_wait(self) -> bool:
        """Whether somebody waits because the minima do not fit, and not because the policy is like that."""
        return bool(self.waiting) and (self.sharer.keeps_minima or self.tenants.needed > self.tenants.capacity)

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "policy": self.shares.policy,
            "nodes": self.tenants.capacity,
            "shares": dict(self.nodes),
            "waiting": dict(self.waiting),
            "measures": {
                "minima_missed": self.measures.minima_missed,
                "starved": self.measures.starved,
                "unused": self.measures.unused,
                "jain": self.measures.jain,
                "fairness_degree": self.measures.fairness,
            },
        }
        if self.handed is not None:
            document["held"] = {name: list(holding.nodes) for name, holding in self.handed.holdings.items()}
            document["moved"] = {name: holding.moved for name, holding in self.handed.holdings.items() if holding.moved}
        if self.sharer.divides is Divides.SLOTS:
            document["slots"] = {name: [str(slot) for slot in slots] for name, slots in self.shares.slots.items()}
        if self.sharer.divides is Divides.RESOURCES:
            document["dominant_shares"] = dominant_shares(self.tenants, self.nodes)
        return document


def share_cluster(tenants: Tenants, sharer: Sharer, moves: Moves = Moves.FEWEST) -> Sharing:
    shares = sharer.share(tenants)
    if sharer.divides is not Divides.NODES:
        measures = measure(tenants, sharer, shares, shares.nodes)
        return Sharing(tenants, sharer, shares, None, shares.nodes, shares.waiting, measures)
    handed = hand_over(tenants, shares.nodes, sharer, moves, shares.takers)
    waiting = {
        tenant.name: shares.waiting.get(tenant.name) or handed.waiting[tenant.name]
        for tenant in tenants.pipelines
        if (tenant.name in shares.waiting and handed.nodes[tenant.name] < tenant.minimum)
        or tenant.name in handed.waiting
    }
    measures = measure(tenants, sharer, shares, handed.nodes)
    return Sharing(tenants, sharer, shares, handed, handed.nodes, waiting, measures)


def compare_sharers(tenants: Tenants) -> Iterator[tuple[Sharing, HandOver | None]]:
    """Every policy's division with the fewest moves, and beside it the published way to move."""
    for name in SHARERS.names():
        sharer = SHARERS.create(name)
        sharing = share_cluster(tenants, sharer)
        shares = sharing.shares
        beside = hand_over(tenants, shares.nodes, sharer, Moves.PUBLISHED, shares.takers) if sharing.handed else None
        yield sharing, beside


def dominant_shares(tenants: Tenants, nodes: Mapping[str, float]) -> dict[str, float]:
    """The largest share each pipeline has of any resource."""
    demands, capacity, _ = unit_demands(tenants)
    units = np.array([nodes[tenant.name] for tenant in tenants.pipelines], dtype=float)
    with np.errstate(invalid="ignore"):
        largest = np.where(units > 0, units * dominant_unit(demands, capacity), 0.0)
    return {tenant.name: float(part) for tenant, part in zip(tenants.pipelines, largest, strict=True)}


# A division whose predicted response time exceeds a pipeline's deadline is rejected, and another one is made.
#
# `needs` has the number of nodes with which a pipeline keeps its deadline. Pipelines that got fewer are promised that
# number, and the same policy divides again: all of a priority level together or none of it, the highest level first,
# until the promises no longer fit. So no pipeline is picked from among equals, and if not all deadlines can be kept the
# division stays as fair as the policy is.


@dataclass(frozen=True, slots=True)
class SharesInTime:
    shares: Shares
    rejected: Shares | None = None
    """What the policy alone would give, where somebody's deadline stood against it."""
    late: tuple[str, ...] = ()
    """Whose deadlines those were."""


def share_in_time(sharer: Sharer, tenants: Tenants, needs: Mapping[str, int]) -> SharesInTime:
    """Policies that are kept as published, or promise no minima, divide as they do."""
    alone = sharer.share(tenants)
    if sharer.published or not sharer.keeps_minima:
        return SharesInTime(alone)
    late = [tenant for tenant in tenants.pipelines if alone.nodes[tenant.name] < needs.get(tenant.name, 0)]
    if not late or tenants.needed > tenants.capacity:
        return SharesInTime(alone)
    floors = _promised(tenants, needs, by_priority=sharer.obeys_priority)
    kept = tuple(tenant.name for tenant in late if floors[tenant.name] >= needs[tenant.name])
    if not kept:
        return SharesInTime(alone)
    raised = tuple(replace(tenant, minimum=floors[tenant.name]) for tenant in tenants.pipelines)
    return SharesInTime(sharer.share(replace(tenants, pipelines=raised)), alone, kept)


def _promised(tenants: Tenants, needs: Mapping[str, int], *, by_priority: bool) -> dict[str, int]:
    """By pipeline its minimum, or what it keeps its deadline with: level by level, all of a level or none."""
    floors = {tenant.name: tenant.minimum for tenant in tenants.pipelines}
    for level in tenants.levels.values() if by_priority else [tenants.pipelines]:
        needed = {tenant.name: min(needs.get(tenant.name, 0), tenant.desired) for tenant in level}
        after = {**floors, **{name: max(floors[name], units) for name, units in needed.items()}}
        if sum(after.values()) > tenants.capacity:
            break
        floors = after
    return floors
