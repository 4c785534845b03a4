"""`max-min` (E-Stream): node after node to the pipeline with the fewest; `fair-max-min`: the same above the minima."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.tolerance import tie_key
from penstock.planning.sharing.contract import Divides, Shares, short_of_minimum
from penstock.planning.sharing.division import DEFAULT_PATIENCE, whole_shares
from penstock.planning.sharing.fair_priority import Patience, guaranteed_shares

if TYPE_CHECKING:
    from penstock.planning.sharing.contract import Tenant, Tenants


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Progressive filling up to desired, in whole nodes; ties to the lower fairness degree so far, then to submission
    order. Nobody can gain a node without one who has no more losing one. Nodes are taken in order of rising degree.
    Priorities and minima play no part."""

    name: ClassVar[str] = "max-min"
    published: ClassVar[bool] = True
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        everyone = tenants.pipelines
        shares = whole_shares(
            tenants.capacity,
            floors=[0] * len(everyone),
            caps=[tenant.desired for tenant in everyone],
            weights=[1.0] * len(everyone),
            order=by_fairness([tenant.fairness for tenant in everyone]),
        )
        nodes = {tenant.name: share for tenant, share in zip(everyone, shares, strict=True)}
        reason = "everybody gets as much as that, and max-min does not look at minima"
        takers = tuple(sorted(everyone, key=lambda tenant: tie_key(tenant.fairness, 1.0)))
        return Shares(self.name, nodes, short_of_minimum(tenants, nodes, reason), takers=takers)


def by_fairness(degrees: list[float]) -> list[int]:
    """The rank of every position: lowest degree first, ties by position."""
    ranks = [0] * len(degrees)
    for rank, position in enumerate(sorted(range(len(degrees)), key=lambda position: tie_key(degrees[position], 1.0))):
        ranks[position] = rank
    return ranks


@dataclass(frozen=True, slots=True)
class FairMaxMin:
    """`clamp(level, minimum, desired)` in whole nodes: nobody can gain one without somebody losing one who has no
    more, or has only its minimum. Ties to the lower fairness degree so far. Priority only decides who waits."""

    patience: Patience = DEFAULT_PATIENCE

    name: ClassVar[str] = "fair-max-min"
    published: ClassVar[bool] = False
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = True
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        return guaranteed_shares(self.name, tenants, [1.0] * len(tenants.pipelines), self.patience, _by_fairness)


def _by_fairness(tenant: Tenant) -> float:
    return tie_key(tenant.fairness, 1.0)
