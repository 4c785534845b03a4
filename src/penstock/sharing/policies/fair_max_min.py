"""`fair-max-min`: max-min fairness above the minima; those who wait move up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.dataflow.tolerance import tie_key
from penstock.sharing.contract import Divides, Shares
from penstock.sharing.policies.admission import DEFAULT_PATIENCE
from penstock.sharing.policies.fair_priority import Patience, guaranteed_shares

if TYPE_CHECKING:
    from penstock.sharing.tenants import Tenant, Tenants


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
