"""`e-stream`: max-min over what pipelines need now, with deadlines (E-Stream, section 4.6 and Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.tolerance import tie_key
from penstock.planning.sharing.contract import Divides, Shares, late_in, short_of_minimum
from penstock.planning.sharing.division import whole_shares
from penstock.planning.sharing.max_min import by_fairness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.planning.sharing.contract import Tenants


@dataclass(frozen=True, slots=True)
class EStreamMaxMin:
    """Progressive filling up to what every pipeline needs; ties to the lower fairness degree, then as submitted.

    A division in which a pipeline misses its deadline is rejected. The next one promises such pipelines what they
    keep it with, in order of rising degree as far as it fits, and fills up the others above that. If all divisions
    are rejected, the one with the fewest late pipelines stands. Nodes are taken in order of rising degree.
    """

    name: ClassVar[str] = "e-stream"
    published: ClassVar[bool] = True
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = False
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        """Return the division without regard to deadlines."""
        return self._fill(tenants, {})

    def divisions(self, tenants: Tenants) -> Iterator[Shares]:
        """Yield the division without deadlines, then those that promise more and more pipelines their deadline."""
        by_degree = sorted(tenants.pipelines, key=lambda tenant: tie_key(tenant.fairness, 1.0))
        promised: dict[str, int] = {}
        tried: set[str] = set()
        shares = self._fill(tenants, promised)
        yield shares
        while True:
            late = set(late_in(shares, tenants)) - tried
            before = len(promised)
            for tenant in by_degree:
                if tenant.name not in late:
                    continue
                tried.add(tenant.name)
                if tenant.in_time <= min(tenant.desired, tenants.capacity - sum(promised.values())):
                    promised[tenant.name] = tenant.in_time
            if len(promised) == before:
                return
            shares = self._fill(tenants, promised)
            yield shares

    def _fill(self, tenants: Tenants, promised: Mapping[str, int]) -> Shares:
        everyone = tenants.pipelines
        floors = [promised.get(tenant.name, 0) for tenant in everyone]
        shares = whole_shares(
            tenants.capacity,
            floors=floors,
            caps=[max(tenant.wanted, floor) for tenant, floor in zip(everyone, floors, strict=True)],
            weights=[1.0] * len(everyone),
            order=by_fairness([tenant.fairness for tenant in everyone]),
        )
        nodes = {tenant.name: share for tenant, share in zip(everyone, shares, strict=True)}
        reason = "max-min over what is needed does not look at minima"
        takers = tuple(sorted(everyone, key=lambda tenant: tie_key(tenant.fairness, 1.0)))
        return Shares(self.name, nodes, short_of_minimum(tenants, nodes, reason), takers=takers)
