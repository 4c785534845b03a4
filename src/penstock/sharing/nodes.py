"""Nodes for shares, keeping what is held: equal nodes always come out, nodes of different sizes as nearly as they can.

Filling shares with whole nodes of different sizes exactly is bin packing. The rule here: everyone keeps its own nodes
as far as its share goes; the others go from the largest down, each to whoever lacks most; then nodes too large for
what anyone lacks go to those still below their minimum, and what is left to whoever desires that much more.
"""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cluster.topology import Node
    from penstock.sharing.contract import Sharer
    from penstock.sharing.tenants import Tenant, Tenants
    from penstock.sharing.threads import ThreadLayout


def chosen_nodes(
    tenants: Tenants,
    shares: Mapping[str, float],
    sharer: Sharer,
    before: Mapping[str, ThreadLayout],
    by_name: Mapping[str, Node],
    turns: Sequence[Tenant],
) -> dict[str, list[Node]]:
    """Every pipeline's nodes, in declared order; those who come first in `turns` choose first."""
    held = {
        tenant.name: _own_nodes(tenants, tenant, int(shares[tenant.name]), before[tenant.name], by_name)
        for tenant in tenants.pipelines
    }
    taken = {node.name for mine in held.values() for node in mine}
    # sorted() is stable: declared order among nodes of a size
    pool = sorted(
        (node for node in tenants.cluster.nodes if node.name not in taken), key=lambda node: -tenants.size(node)
    )
    sizes = {name: sum(map(tenants.size, mine)) for name, mine in held.items()}

    def give(tenant: Tenant, node: Node) -> None:
        held[tenant.name].append(node)
        sizes[tenant.name] += tenants.size(node)

    lacks = {tenant.name: int(shares[tenant.name]) - sizes[tenant.name] for tenant in turns}
    pool = _largest_to_largest(tenants, pool, turns, lacks, give)
    for tenant in turns:
        if sizes[tenant.name] < tenant.minimum <= shares[tenant.name]:
            more = _covering(tenants, pool, tenant.minimum - sizes[tenant.name])
            for node in more:
                pool.remove(node)
                give(tenant, node)
            if more:
                returned = _needless(tenants, tenant, held[tenant.name])
            else:
                returned = held[tenant.name] if sharer.keeps_minima else []
            held[tenant.name] = [node for node in held[tenant.name] if node not in returned]
            sizes[tenant.name] -= sum(map(tenants.size, returned))
            pool = sorted(
                [*pool, *returned], key=lambda node: (-tenants.size(node), tenants.cluster.position(node.name))
            )
    if sharer.wastes_nothing:
        takers = [tenant for tenant in turns if sizes[tenant.name] >= tenant.minimum or not sharer.keeps_minima]
        wants = {tenant.name: tenant.desired - sizes[tenant.name] for tenant in takers}
        _largest_to_largest(tenants, pool, takers, wants, give)
    for mine in held.values():
        mine.sort(key=lambda node: tenants.cluster.position(node.name))
    return held


def _own_nodes(
    tenants: Tenants, tenant: Tenant, share: int, before: ThreadLayout, by_name: Mapping[str, Node]
) -> list[Node]:
    """The nodes it holds and may keep: large ones first, then those with the most threads, while the share has room."""
    running: dict[str, int] = {}
    for slot, row in before.items():
        running[slot.node] = running.get(slot.node, 0) + len(row)
    mine = [by_name[name] for name in tenant.current if name in by_name]
    mine.sort(key=lambda node: (-tenants.size(node), -running.get(node.name, 0)))
    kept: list[Node] = []
    for node in mine:
        if tenants.size(node) <= share:
            kept.append(node)
            share -= tenants.size(node)
    return kept


def _covering(tenants: Tenants, pool: list[Node], lack: int) -> list[Node]:
    """The smallest node of `pool` (largest first) that covers the lack, or the largest that together do, or none."""
    alone = [node for node in pool if tenants.size(node) >= lack]
    if alone:
        return alone[-1:]
    chosen: list[Node] = []
    for node in pool:
        chosen.append(node)
        lack -= tenants.size(node)
        if lack <= 0:
            return chosen
    return []


def _needless(tenants: Tenants, tenant: Tenant, mine: list[Node]) -> list[Node]:
    """Small nodes that a large one has made needless: above what is desired, and not needed for the minimum."""
    size = sum(map(tenants.size, mine))
    needless: list[Node] = []
    for node in sorted(mine, key=tenants.size):
        if size > tenant.desired and size - tenants.size(node) >= tenant.minimum:
            needless.append(node)
            size -= tenants.size(node)
    return needless


def _largest_to_largest(
    tenants: Tenants,
    pool: list[Node],
    takers: Sequence[Tenant],
    lacks: Mapping[str, int],
    give: Callable[[Tenant, Node], None],
) -> list[Node]:
    """Each node, from the largest, to whoever lacks most, if it lacks that much; the nodes nobody took, largest first.

    Among nodes of one size nothing depends on that order, so each taker gets its nodes in a row: neighbours share a
    rack.
    """
    if pool and tenants.size(pool[0]) == tenants.size(pool[-1]):
        size, rest = tenants.size(pool[0]), iter(pool)
        for tenant in takers:
            for node in islice(rest, max(0, lacks[tenant.name]) // size):
                give(tenant, node)
        return list(rest)
    queue = [(-lacks[tenant.name], rank) for rank, tenant in enumerate(takers) if lacks[tenant.name] > 0]
    heapq.heapify(queue)
    left: list[Node] = []
    for node in pool:
        size = tenants.size(node)
        if not queue or -queue[0][0] < size:
            left.append(node)
            continue
        lack, rank = queue[0]
        give(takers[rank], node)
        if lack + size < 0:
            heapq.heapreplace(queue, (lack + size, rank))
        else:
            heapq.heappop(queue)
    return left
