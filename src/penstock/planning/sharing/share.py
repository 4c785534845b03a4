"""Sharing a cluster by one policy, or by all of them: shares, the nodes they are, and which pipelines move for it.

`published` is the resource allocator of the priority schedulers: a pipeline whose number of nodes changes is taken
off all its nodes and started anew, each of its threads. `fewest` keeps what a pipeline has and still may have, and
moves only the threads that must move to be spread evenly again.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cluster.topology import Node, Slot
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides, RejectsLate, counted, late_in
from penstock.planning.sharing.dominant_fair import dominant_unit, unit_demands
from penstock.planning.sharing.measures import Measures, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.planning.sharing.contract import Sharer, Shares, Tenant, Tenants

# Nodes for shares, keeping those held: exact for equal nodes, as close as possible for nodes of different sizes.
#
# Filling shares with whole nodes of different sizes exactly is bin packing. The rule here: each pipeline keeps its own
# nodes within its share; the others go from the largest down, each to the pipeline that lacks most; then nodes too
# large for any lack go to pipelines below their minimum, and the rest to pipelines that desire that much more.


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


# Threads of one pipeline on the slots of its nodes: in turn, or with as few moves as possible.


ThreadLayout = Mapping[Slot, tuple[int, ...]]
"""Which threads (numbered from 0) sit on which slot."""


def worker_slots(nodes: Sequence[Node], workers: int) -> list[Slot]:
    """`workers` slots taken evenly: slot 0 of every node, then slot 1, ... while there are any."""
    slots: list[Slot] = []
    for number in range(max((node.slots for node in nodes), default=0)):
        for node in nodes:
            if len(slots) == workers:
                return slots
            if number < node.slots:
                slots.append(Slot(node.name, number))
    return slots


def dealt(nodes: Sequence[Node], workers: int, threads: int) -> dict[Slot, tuple[int, ...]]:
    """Thread i to worker i mod W."""
    slots = worker_slots(nodes, workers)
    return {slot: tuple(range(position, threads, len(slots))) for position, slot in enumerate(slots)}


def moved_least(
    before: ThreadLayout, nodes: Sequence[Node], workers: int, threads: int
) -> tuple[dict[Slot, tuple[int, ...]], int]:
    """An even layout on `nodes` that leaves as many threads of `before` where they are as any, and how many move.

    Even means what dealing out would give: workers even over nodes, threads even over workers. A worker's threads
    count as kept up to its even share, so the fullest workers are kept, and the odd worker and the odd thread stay
    where they save one.
    """
    slots = _kept_slots(before, nodes, workers)
    if not slots:
        return {}, 0
    share, odd = divmod(threads, len(slots))
    fullest = sorted(range(len(slots)), key=lambda position: -len(before.get(slots[position], ())))
    room = dict.fromkeys(slots, share)
    for position in fullest[:odd]:
        room[slots[position]] += 1
    layout: dict[Slot, list[int]] = {}
    for slot in slots:
        running = [thread for thread in before.get(slot, ()) if thread < threads]
        layout[slot] = running[: room[slot]]
    placed = {thread for row in layout.values() for thread in row}
    homeless = iter([thread for thread in range(threads) if thread not in placed])
    for slot, row in layout.items():
        row.extend(next(homeless) for _ in range(room[slot] - len(row)))
    ran = {thread for row in before.values() for thread in row if thread < threads}
    return {slot: tuple(sorted(row)) for slot, row in layout.items()}, len(ran - placed)


def _kept_slots(before: ThreadLayout, nodes: Sequence[Node], workers: int) -> list[Slot]:
    """As many slots of every node as taking them evenly gives; those where workers run first, the fullest foremost."""
    by_node: dict[str, list[Slot]] = {node.name: [] for node in nodes}
    for slot in sorted(before, key=lambda slot: (-len(before[slot]), slot.number)):
        if slot.node in by_node:
            by_node[slot.node].append(slot)
    counts = dict.fromkeys(by_node, 0)
    left = min(workers, sum(node.slots for node in nodes))
    while left:
        open_nodes = [node for node in nodes if counts[node.name] < node.slots]
        if left < len(open_nodes):
            open_nodes.sort(key=lambda node: -_saved(before, by_node[node.name], counts[node.name]))
            open_nodes = open_nodes[:left]
        for node in open_nodes:
            counts[node.name] += 1
        left -= len(open_nodes)
    chosen: list[Slot] = []
    for node in nodes:
        kept = by_node[node.name][: counts[node.name]]
        numbers = {slot.number for slot in kept}
        fresh = (number for number in range(node.slots) if number not in numbers)
        chosen += kept
        chosen += [Slot(node.name, next(fresh)) for _ in range(counts[node.name] - len(kept))]
    return chosen


def _saved(before: ThreadLayout, running: Sequence[Slot], count: int) -> int:
    """Threads of the worker that one slot more on a node would keep."""
    return len(before[running[count]]) if count < len(running) else 0


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


# Sharing by one policy, or by all of them for comparison.


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
