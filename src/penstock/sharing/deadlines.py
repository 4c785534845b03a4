"""A division whose predicted response time exceeds somebody's deadline is rejected, and another one is made.

`needs` says with how many nodes a pipeline keeps its deadline. Who was given fewer is promised as many, and the same
policy divides again: all of a priority level together or none of it, the highest level first, as far as everything that
was promised fits. So nobody is picked from among equals, and where not all deadlines can be kept the division stays as
fair as the policy is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.sharing.contract import Sharer, Shares
    from penstock.sharing.tenants import Tenants


@dataclass(frozen=True, slots=True)
class SharesInTime:
    shares: Shares
    rejected: Shares | None = None
    """What the policy alone would give, where somebody's deadline stood against it."""
    late: tuple[str, ...] = ()
    """Whose deadlines those were."""


def share_in_time(sharer: Sharer, tenants: Tenants, needs: Mapping[str, int]) -> SharesInTime:
    """Policies that are kept as published, or promise no minima, divide as they do."""
    alone = sharer.share(tenants)
    if sharer.published or not sharer.keeps_minima:
        return SharesInTime(alone)
    late = [tenant for tenant in tenants.pipelines if alone.nodes[tenant.name] < needs.get(tenant.name, 0)]
    if not late or tenants.needed > tenants.capacity:
        return SharesInTime(alone)
    floors = _promised(tenants, needs, by_priority=sharer.obeys_priority)
    kept = tuple(tenant.name for tenant in late if floors[tenant.name] >= needs[tenant.name])
    if not kept:
        return SharesInTime(alone)
    raised = tuple(replace(tenant, minimum=floors[tenant.name]) for tenant in tenants.pipelines)
    return SharesInTime(sharer.share(replace(tenants, pipelines=raised)), alone, kept)


def _promised(tenants: Tenants, needs: Mapping[str, int], *, by_priority: bool) -> dict[str, int]:
    """By pipeline its minimum, or what it keeps its deadline with: level by level, all of a level or none."""
    floors = {tenant.name: tenant.minimum for tenant in tenants.pipelines}
    for level in tenants.levels.values() if by_priority else [tenants.pipelines]:
        needed = {tenant.name: min(needs.get(tenant.name, 0), tenant.desired) for tenant in level}
        after = {**floors, **{name: max(floors[name], units) for name, units in needed.items()}}
        if sum(after.values()) > tenants.capacity:
            break
        floors = after
    return floors
