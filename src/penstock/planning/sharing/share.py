"""Sharing a cluster by one policy, or by all of them for comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides, RejectsLate, late_in
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
    rejected: Shares | None = None
    """The division of the policy alone, if it would miss a deadline and another one is better."""
    late: tuple[str, ...] = ()
    """Pipelines that keep their deadline only by the other division."""

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
        if self.rejected is not None:
            document["rejected"] = {"shares": dict(self.rejected.nodes), "late": list(self.late)}
        if self.handed is not None:
            document["held"] = {name: list(holding.nodes) for name, holding in self.handed.holdings.items()}
            document["moved"] = {name: holding.moved for name, holding in self.handed.holdings.items() if holding.moved}
        if self.sharer.divides is Divides.SLOTS:
            document["slots"] = {name: [str(slot) for slot in slots] for name, slots in self.shares.slots.items()}
        if self.sharer.divides is Divides.RESOURCES:
            document["dominant_shares"] = dominant_shares(self.tenants, self.nodes)
        return document


def share_cluster(tenants: Tenants, sharer: Sharer, moves: Moves = Moves.FEWEST) -> Sharing:
    made = share_in_time(sharer, tenants)
    shares, rejected = made.shares, made.rejected
    if sharer.divides is not Divides.NODES:
        measures = measure(tenants, sharer, shares, shares.nodes)
        return Sharing(tenants, sharer, shares, None, shares.nodes, shares.waiting, measures, rejected, made.late)
    handed = hand_over(tenants, shares.nodes, sharer, moves, shares.takers)
    waiting = {
        tenant.name: shares.waiting.get(tenant.name) or handed.waiting[tenant.name]
        for tenant in tenants.pipelines
        if (tenant.name in shares.waiting and handed.nodes[tenant.name] < tenant.minimum)
        or tenant.name in handed.waiting
    }
    measures = measure(tenants, sharer, shares, handed.nodes)
    return Sharing(tenants, sharer, shares, handed, handed.nodes, waiting, measures, rejected, made.late)


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
# `in_time` of a tenant is the number of nodes with which it keeps its deadline. Pipelines that got fewer are promised
# that number, and the same policy divides again: all of a priority level together or none of it, the highest level
# first, until the promises no longer fit. So no pipeline is picked from among equals, and if not all deadlines can be
# kept the division stays as fair as the policy is. A policy that `RejectsLate` has a rule of its own for it.


@dataclass(frozen=True, slots=True)
class SharesInTime:
    shares: Shares
    rejected: Shares | None = None
    """The division of the policy alone, if it would miss a deadline and another one is better."""
    late: tuple[str, ...] = ()
    """Pipelines that keep their deadline only by the other division."""


def share_in_time(sharer: Sharer, tenants: Tenants) -> SharesInTime:
    """Return the division of a policy that keeps the deadlines it can.

    Policies that are kept as published, or promise no minima, divide as they do.
    """
    if isinstance(sharer, RejectsLate):
        first, *others = sharer.divisions(tenants)
        best = min((first, *others), key=lambda shares: len(late_in(shares, tenants)))
        if best is first:
            return SharesInTime(first)
        still = set(late_in(best, tenants))
        return SharesInTime(best, first, tuple(name for name in late_in(first, tenants) if name not in still))
    alone = sharer.share(tenants)
    if sharer.published or not sharer.keeps_minima:
        return SharesInTime(alone)
    late = late_in(alone, tenants)
    if not late or tenants.needed > tenants.capacity:
        return SharesInTime(alone)
    floors = _promised(tenants, by_priority=sharer.obeys_priority)
    needs = {tenant.name: tenant.in_time for tenant in tenants.pipelines}
    kept = tuple(name for name in late if floors[name] >= needs[name])
    if not kept:
        return SharesInTime(alone)
    raised = tuple(replace(tenant, minimum=floors[tenant.name]) for tenant in tenants.pipelines)
    return SharesInTime(sharer.share(replace(tenants, pipelines=raised)), alone, kept)


def _promised(tenants: Tenants, *, by_priority: bool) -> dict[str, int]:
    """Return the minimum of every pipeline, or what keeps its deadline: level by level, all of a level or none."""
    floors = {tenant.name: tenant.minimum for tenant in tenants.pipelines}
    for level in tenants.levels.values() if by_priority else [tenants.pipelines]:
        needed = {tenant.name: min(tenant.in_time, tenant.desired) for tenant in level}
        after = {**floors, **{name: max(floors[name], units) for name, units in needed.items()}}
        if sum(after.values()) > tenants.capacity:
            break
        floors = after
    return floors
