"""Who gets its minimum when not all minima fit: by priority, and the longer one waits the higher it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE, ratio_key, whole_down
from penstock.sharing.contract import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sharing.policies.filling import Amounts
    from penstock.sharing.tenants import Tenant, Tenants

DEFAULT_PATIENCE = 600.0
"""Seconds of waiting that lift a pipeline by one priority level."""


@dataclass(frozen=True, slots=True)
class Admission:
    """`admitted` has one entry per pipeline; `waiting` the reasons of those who are not."""

    admitted: tuple[bool, ...]
    waiting: dict[str, str]


def aged_level(tenant: Tenant, patience: float) -> int:
    """priority - floor(waited / patience): below 1 for those who have waited long enough to stand before everybody."""
    return tenant.priority - whole_down(tenant.waited / patience)


def admit(tenants: Tenants, minima: Amounts, capacity: Amounts, names: Sequence[str], patience: float) -> Admission:
    """All, if the minima (one row per pipeline, one column per resource) fit together. Otherwise one by one by aged
    level, then by how long they waited, then in submission order; one that does not fit is passed over, so that a
    smaller one behind it does not wait for nothing. It cannot be passed over for ever: whoever runs has not waited,
    so in the end it stands first."""
    everyone = tenants.pipelines
    limit = capacity * (1 + TOLERANCE)
    if bool((minima.sum(axis=0) <= limit).all()):
        return Admission((True,) * len(everyone), {})

    def turn(position: int) -> tuple[int, float, int]:
        tenant = everyone[position]
        return aged_level(tenant, patience), -ratio_key(tenant.waited), position

    order = sorted(range(len(everyone)), key=turn)
    admitted = [False] * len(everyone)
    used = np.zeros_like(capacity)
    reasons: dict[int, str] = {}
    before = 0
    for position in order:
        after = used + minima[position]
        if bool((after <= limit).all()):
            used = after
            admitted[position] = True
            before += 1
        else:
            scarce = _scarcest(after, capacity)
            reasons[position] = _reason(
                everyone[position], names[scarce], minima[position][scarce], (capacity - used)[scarce], before
            )
            if not bool((minima[position] <= limit).all()):
                reasons[position] = _impossible(everyone[position], names, minima[position], capacity)
    return Admission(tuple(admitted), {everyone[position].name: reasons[position] for position in sorted(reasons)})


def _scarcest(needs: Amounts, capacity: Amounts) -> int:
    """The resource of which the largest part is missing, in shares of what the cluster has."""
    return int(np.argmax((needs - capacity) / np.maximum(capacity, TOLERANCE)))


def _reason(tenant: Tenant, what: str, needs: float, left: float, before: int) -> str:
    unit = counted(needs) if what == "nodes" else what
    return (
        f"needs at least {needs:g} {unit}, {left:g} left after the minima of those who stand before it ({before}); "
        f"priority {tenant.priority}, waited {tenant.waited:g} s"
    )


def _impossible(tenant: Tenant, names: Sequence[str], needs: Amounts, capacity: Amounts) -> str:
    scarce = _scarcest(needs, capacity)
    what = counted(needs[scarce]) if names[scarce] == "nodes" else names[scarce]
    return (
        f"needs at least {needs[scarce]:g} {what} and the whole cluster has {capacity[scarce]:g}: "
        f"waiting will not help; lower its minimum ({tenant.minimum}) or add nodes"
    )
