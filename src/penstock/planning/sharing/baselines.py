"""Sharing policies to compare with: `shared`, `isolation`, `static-priority` and `dynamic-priority`."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.cluster.topology import Slot
from penstock.planning.sharing.contract import Divides, Shares, got_of, short_of_minimum
from penstock.planning.sharing.division import round_half_up

if TYPE_CHECKING:
    from penstock.planning.sharing.contract import Tenants


@dataclass(frozen=True, slots=True)
class Shared:
    """Storm's default. In submission order, every pipeline gets the workers it wants while there are slots: one slot
    of each node in turn, the node with the most free slots first. Priorities and minima have no effect."""

    name: ClassVar[str] = "shared"
    published: ClassVar[bool] = True
    divides: ClassVar[Divides] = Divides.SLOTS
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        nodes = tenants.cluster.nodes
        queue = [(-node.slots, position) for position, node in enumerate(nodes)]
        heapq.heapify(queue)
        slots: dict[str, tuple[Slot, ...]] = {}
        shares: dict[str, float] = {}
        waiting: dict[str, str] = {}
        for tenant in tenants.pipelines:
            wanted = tenants.workers(tenant)
            free: dict[int, int] = {}
            taken: list[Slot] = []
            while queue and len(taken) < wanted:
                negative, position = heapq.heappop(queue)
                free[position] = -negative - 1
                taken.append(Slot(nodes[position].name, nodes[position].slots + negative))
            while len(taken) < wanted and any(free.values()):
                for position in [position for position, left in free.items() if left]:
                    if len(taken) == wanted:
                        break
                    taken.append(Slot(nodes[position].name, nodes[position].slots - free[position]))
                    free[position] -= 1
            for position, left in free.items():
                if left:
                    heapq.heappush(queue, (-left, position))
            slots[tenant.name] = tuple(taken)
            got = len(taken) / tenants.slots
            shares[tenant.name] = int(got) if got.is_integer() else got
            if len(taken) < min(wanted, tenant.minimum * tenants.slots):
                waiting[tenant.name] = (
                    f"{got_of(got, tenant)}: {len(taken)} of {wanted} workers; submitted after the slots were taken"
                )
        return Shares(self.name, shares, waiting, slots)


@dataclass(frozen=True, slots=True)
class Isolation:
    """First come, first served: `min(desired, left)` nodes, in submission order and in declared order of nodes.
    Priorities and minima have no effect."""

    name: ClassVar[str] = "isolation"
    published: ClassVar[bool] = True
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        left = tenants.capacity
        nodes: dict[str, float] = {}
        for tenant in tenants.pipelines:
            nodes[tenant.name] = share = min(tenant.desired, left)
            left -= share
        waiting = short_of_minimum(tenants, nodes, "those submitted before it have the rest")
        return Shares(self.name, nodes, waiting, takers=tenants.pipelines)


@dataclass(frozen=True, slots=True)
class StaticPriority:
    """The published SPS: every level gets its proportion, higher levels round first.

    C nodes; if the minima add up to exactly C, everyone gets its minimum. Otherwise, with ST the sum of all
    desired and X = min(C, ST), level by level with SP the sum of desired in the level:

        PF = min(X, round(min(C, ST) * SP / ST));  for each pipeline: cn = min(X, round(PF * desired / SP)), X -= cn

    Published as it is, with two slips put right so that it gives its own tables; `printed` is the pseudo-code letter
    by letter: a level's pipelines share PF, not X, and C stands for min(C, ST) even in a cluster larger than everyone
    wants.
    """

    printed: bool = False

    name: ClassVar[str] = "static-priority"
    published: ClassVar[bool] = True
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = False
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        if tenants.capacity == tenants.needed:
            return Shares(self.name, {tenant.name: tenant.minimum for tenant in tenants.pipelines}, {})
        dealt: dict[str, float] = {}
        total = sum(tenant.desired for tenant in tenants.pipelines)
        left = min(tenants.capacity, total)
        offered = tenants.capacity if self.printed else left
        for level in tenants.levels.values():
            wanted = sum(tenant.desired for tenant in level)
            portion = min(left, round_half_up(offered * wanted, total))
            most = portion if self.printed else left
            for tenant in level:
                share = min(most, round_half_up(portion * tenant.desired, wanted))
                dealt[tenant.name] = share
                most -= share
            left = left - portion if self.printed else most
        nodes = {tenant.name: dealt[tenant.name] for tenant in tenants.pipelines}
        reason = "its proportion of what all desire comes to no more, and static-priority does not look at minima"
        return Shares(self.name, nodes, short_of_minimum(tenants, nodes, reason))


@dataclass(frozen=True, slots=True)
class DynamicPriority:
    """The published DPS: a level takes all it desires before the next level gets anything.

    With ST the sum of all desired and X = min(C, ST), level by level with SP the sum of desired in the level:

        P = min(X, SP);  for each pipeline: cn = min(X, round(P * desired / SP)), X -= cn

    All pipelines start at the same level; a trigger moves one up and its end moves it back, which is the caller's part.
    """

    name: ClassVar[str] = "dynamic-priority"
    published: ClassVar[bool] = True
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = False
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        dealt: dict[str, float] = {}
        left = min(tenants.capacity, sum(tenant.desired for tenant in tenants.pipelines))
        for level in tenants.levels.values():
            wanted = sum(tenant.desired for tenant in level)
            portion = min(left, wanted)
            for tenant in level:
                share = min(left, round_half_up(portion * tenant.desired, wanted))
                dealt[tenant.name] = share
                left -= share
        nodes = {tenant.name: dealt[tenant.name] for tenant in tenants.pipelines}
        reason = "higher levels and its own take the rest, and dynamic-priority does not look at minima"
        return Shares(self.name, nodes, short_of_minimum(tenants, nodes, reason))
