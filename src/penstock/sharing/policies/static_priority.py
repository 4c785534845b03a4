"""`static-priority`, the published SPS: every level gets its proportion, higher levels round first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.sharing.contract import Divides, Shares, short_of_minimum
from penstock.sharing.policies.filling import round_half_up

if TYPE_CHECKING:
    from penstock.sharing.tenants import Tenants


@dataclass(frozen=True, slots=True)
class StaticPriority:
    """C nodes; if the minima add up to exactly C, everyone gets its minimum. Otherwise, with ST the sum of all
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
