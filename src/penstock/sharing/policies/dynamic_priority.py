"""`dynamic-priority`, the published DPS: a level takes all it desires before the next one is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.sharing.contract import Divides, Shares, short_of_minimum
from penstock.sharing.policies.filling import round_half_up

if TYPE_CHECKING:
    from penstock.sharing.tenants import Tenants


@dataclass(frozen=True, slots=True)
class DynamicPriority:
    """With ST the sum of all desired and X = min(C, ST), level by level with SP the sum of desired in the level:

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
