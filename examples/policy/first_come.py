"""A sharing policy of one's own: in the order of submission everybody gets all it desires, as long as that lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.plugins import Divides, Shares, short_of_minimum

if TYPE_CHECKING:
    from penstock import Tenants


@dataclass(frozen=True, slots=True)
class FirstCome:
    name: ClassVar[str] = "first-come"
    published: ClassVar[bool] = False
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = False
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        left, nodes = tenants.capacity, {}
        for tenant in tenants.pipelines:
            share = min(tenant.desired, left)
            # a part that is not enough to run with is left to the next one
            nodes[tenant.name] = share if share >= tenant.minimum else 0
            left -= nodes[tenant.name]
        return Shares(self.name, nodes, short_of_minimum(tenants, nodes, "others came first"))
