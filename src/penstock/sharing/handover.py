"""Which nodes a share is, which pipelines move for it and which stay.

`published` is the resource allocator of the priority schedulers: a pipeline whose number of nodes changes is taken
off all its nodes and started anew, each of its threads. `fewest` keeps what a pipeline has and still may have, and
moves only the threads that must move to be spread evenly again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cluster.topology import Node
from penstock.sharing.contract import counted
from penstock.sharing.nodes import chosen_nodes
from penstock.sharing.threads import ThreadLayout, dealt, moved_least

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sharing.contract import Sharer
    from penstock.sharing.tenants import Tenant, Tenants


class Moves(StrEnum):
    FEWEST = "fewest"
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pipeline holds afterwards."""

    nodes: tuple[str, ...]
    layout: ThreadLayout
    moved: int
    """Threads that ran before and now start on another slot, or anew on the same one; those that stop do not count."""
    kept: bool
    """It holds the nodes it held, and nothing was done to it."""


@dataclass(frozen=True, slots=True)
class HandOver:
    holdings: Mapping[str, Holding]
    nodes: Mapping[str, int]
    """What everyone holds, in standard nodes: the share, unless nodes of different sizes did not come out even."""
    waiting: Mapping[str, str]
    """Those whose share was enough and whose nodes are not, and why."""
    free: tuple[Node, ...]

    @property
    def moved_threads(self) -> int:
        return sum(holding.moved for holding in self.holdings.values())

    @property
    def moved_pipelines(self) -> int:
        return sum(holding.moved > 0 for holding in self.holdings.values())

    def after(self, tenants: Tenants) -> Tenants:
        """The same pipelines, holding this: what the next decision starts from."""
        return replace(
            tenants,
            pipelines=tuple(
                replace(tenant, current=holding.nodes, layout=holding.layout)
                for tenant in tenants.pipelines
                for holding in (self.holdings[tenant.name],)
            ),
        )


def hand_over(
    tenants: Tenants,
    shares: Mapping[str, float],
    sharer: Sharer,
    moves: Moves,
    takers: Sequence[Tenant] = (),
) -> HandOver:
    """Nodes for the shares of a policy that divides nodes. Pipelines take them in the order of `takers`; without, level
    by level, in submission order inside one."""
    turns = takers or [tenant for level in tenants.levels.values() for tenant in level]
    by_name = {node.name: node for node in tenants.cluster.nodes}
    before = {tenant.name: _layout_before(tenants, tenant, by_name) for tenant in tenants.pipelines}
    if moves is Moves.PUBLISHED:
        held = published_nodes(tenants, shares, by_name, turns)
    else:
        held = chosen_nodes(tenants, shares, sharer, before, by_name, turns)
    holdings: dict[str, Holding] = {}
    for tenant in tenants.pipelines:
        mine = held[tenant.name]
        names = tuple(node.name for node in mine)
        if moves is Moves.PUBLISHED:
            holdings[tenant.name] = _started_anew(tenants, tenant, mine, before[tenant.name])
        else:
            layout, moved = moved_least(before[tenant.name], mine, tenants.workers(tenant), tenants.threads(tenant))
            kept = bool(names) and set(names) == set(tenant.current)
            holdings[tenant.name] = Holding(names, layout, moved, kept and not moved)
    nodes = {name: sum(map(tenants.size, mine)) for name, mine in held.items()}
    waiting = {
        tenant.name: _did_not_come_out(tenant, nodes[tenant.name])
        for tenant in tenants.pipelines
        if nodes[tenant.name] < tenant.minimum <= shares[tenant.name]
    }
    taken = {node.name for mine in held.values() for node in mine}
    free = tuple(node for node in tenants.cluster.nodes if node.name not in taken)
    return HandOver(holdings, nodes, waiting, free)


def published_nodes(
    tenants: Tenants, shares: Mapping[str, float], by_name: Mapping[str, Node], turns: Sequence[Tenant]
) -> dict[str, list[Node]]:
    """A pipeline with as many nodes as its share, all alive, keeps them. All others are freed; then each in turn takes
    free nodes in declared order until they cover its share."""
    held: dict[str, list[Node]] = {}
    for tenant in tenants.pipelines:
        mine = [by_name[name] for name in tenant.current if name in by_name]
        alive = len(mine) == len(tenant.current)
        if mine and alive and sum(map(tenants.size, mine)) == shares[tenant.name]:
            held[tenant.name] = mine
    kept = {node.name for mine in held.values() for node in mine}
    free = iter([node for node in tenants.cluster.nodes if node.name not in kept])
    for tenant in turns:
        if tenant.name in held:
            continue
        held[tenant.name] = []
        left = shares[tenant.name]
        while left > 0 and (node := next(free, None)) is not None:
            held[tenant.name].append(node)
            left -= tenants.size(node)
    return held


def _started_anew(tenants: Tenants, tenant: Tenant, mine: Sequence[Node], before: ThreadLayout) -> Holding:
    names = tuple(node.name for node in mine)
    if names and names == tenant.current:
        layout = before
        return Holding(names, layout, 0, kept=True)
    layout = dealt(mine, tenants.workers(tenant), tenants.threads(tenant))
    running = sum(len(row) for row in before.values())
    return Holding(names, layout, min(running, tenants.threads(tenant)) if mine else 0, kept=False)


def _layout_before(tenants: Tenants, tenant: Tenant, by_name: Mapping[str, Node]) -> ThreadLayout:
    """Where its threads sit now. A node that is gone is taken for a standard one: its threads have to move."""
    if tenant.layout is not None:
        return tenant.layout
    mine = [by_name.get(name) or Node(name, "", tenants.slots, {}) for name in tenant.current]
    return dealt(mine, tenants.workers(tenant), tenants.threads(tenant))


def _did_not_come_out(tenant: Tenant, got: int) -> str:
    return (
        f"holds {got} of at least {tenant.minimum} {counted(tenant.minimum)}: "
        "the shares fit the nodes taken together, but not one by one, because they differ in size"
    )
