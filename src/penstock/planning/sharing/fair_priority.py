"""`fair-priority`: minima first, then by priority and desire, to the last node; those who wait move up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from penstock.planning.sharing.contract import Divides, Shares
from penstock.planning.sharing.division import DEFAULT_PATIENCE, admit, whole_shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.planning.sharing.contract import Tenant, Tenants

LEAST_WEIGHT = 1e-100
"""Levels so far down that they would weigh less weigh this: next to nothing, but something."""

Ratio = Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)]
Patience = Annotated[float, Field(ge=1e-3, le=1e9, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class FairPriority:
    """What `static-priority` and `dynamic-priority` set out to do.

    Where all minima fit, the share of a pipeline is

        clamp(level * weight * desired, minimum, desired),   weight = ratio ** -(priority - highest priority)

    rounded to whole nodes, with the one level at which all nodes are handed out: a step in priority is worth `ratio`
    times the nodes, and what the highest cannot use goes down. With a large ratio it is strict: a level is satisfied
    before the next gets more than its minima. Where minima do not fit, see `admission`; who is not admitted gets
    nothing, so that the others can use it.
    """

    ratio: Ratio = 2.0
    patience: Patience = DEFAULT_PATIENCE

    name: ClassVar[str] = "fair-priority"
    published: ClassVar[bool] = False
    divides: ClassVar[Divides] = Divides.NODES
    keeps_minima: ClassVar[bool] = True
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = True

    def share(self, tenants: Tenants) -> Shares:
        highest = min(tenant.priority for tenant in tenants.pipelines)
        weights = [
            max(self.ratio ** -(tenant.priority - highest), LEAST_WEIGHT) * tenant.desired
            for tenant in tenants.pipelines
        ]
        return guaranteed_shares(self.name, tenants, weights, self.patience, _by_priority)


def _by_priority(tenant: Tenant) -> float:
    return tenant.priority


def guaranteed_shares(
    policy: str, tenants: Tenants, weights: list[float], patience: float, ties: Callable[[Tenant], float]
) -> Shares:
    """Minima to those who are admitted, the rest among them by weight; ties go to the smaller value of `ties`."""
    everyone = tenants.pipelines
    minima = np.array([[float(tenant.minimum)] for tenant in everyone])
    admission = admit(tenants, minima, np.array([float(tenants.capacity)]), ("nodes",), patience)
    chosen = [position for position, admitted in enumerate(admission.admitted) if admitted]
    ranked = sorted(chosen, key=lambda position: ties(everyone[position]))
    rank_of = {position: rank for rank, position in enumerate(ranked)}
    shares = whole_shares(
        tenants.capacity,
        floors=[everyone[position].minimum for position in chosen],
        caps=[everyone[position].desired for position in chosen],
        weights=[weights[position] for position in chosen],
        order=[rank_of[position] for position in chosen],
    )
    nodes: dict[str, float] = dict.fromkeys((tenant.name for tenant in everyone), 0)
    nodes.update({everyone[position].name: share for position, share in zip(chosen, shares, strict=True)})
    return Shares(policy, nodes, admission.waiting)
