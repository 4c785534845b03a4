"""`isolation`: first come, first served, every node to one pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.sharing.contract import Divides, Shares, short_of_minimum

if TYPE_CHECKING:
    from penstock.sharing.tenants import Tenants


@dataclass(frozen=True, slots=True)
class Isolation:
    """In submission order, `min(desired, what is left)` of the nodes in declared order. Priorities and minima play no
    part."""

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
