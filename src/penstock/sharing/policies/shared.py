"""`shared`, Storm's default: workers are dealt out evenly over all nodes, and pipelines share nodes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.cluster.topology import Slot
from penstock.sharing.contract import Divides, Shares, got_of

if TYPE_CHECKING:
    from penstock.sharing.tenants import Tenants


@dataclass(frozen=True, slots=True)
class Shared:
    """In submission order, every pipeline gets the workers it wants while there are slots: one slot of every node in
    turn, the node with the most free slots first. Priorities and minima play no part."""

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
