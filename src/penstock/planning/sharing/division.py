"""Dividing one amount: by progressive filling in fractions, and in whole nodes one by one.

Whole nodes go one after the other to whoever has the smallest `(share + 1/2) / weight` (Webster's, or Sainte-Laguë's,
rule). Everyone ends at its proportion of the total, rounded and kept between floor and cap. The rule is taken instead
of the largest remainder because one node more then never costs anybody a node.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE, ratio_key, whole_down
from penstock.planning.sharing.contract import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planning.sharing.contract import Tenant, Tenants


Counts = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Amounts = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

HALVINGS = 70
"""Of the range in which the level is searched: enough for every digit a float has."""

FEW_STEPS = 2
"""Per pipeline: single steps that cost no more than the search."""


def round_half_up(numerator: int, denominator: int) -> int:
    """numerator / denominator to the nearest whole number, halves up, without floats."""
    return (2 * numerator + denominator) // (2 * denominator)


def filled(demands: Sequence[float], capacity: float) -> list[float]:
    """Max-min fair fractions: everybody gets min(demand, level), with the level at which the capacity is used up.

    From the smallest demand up: a demand below the equal share of what is left is met, and the rest share the rest.
    """
    shares = [0.0] * len(demands)
    left = float(capacity)
    order = sorted(range(len(demands)), key=lambda position: demands[position])
    for done, position in enumerate(order):
        shares[position] = min(demands[position], left / (len(order) - done))
        left -= shares[position]
    return shares


def whole_shares(
    capacity: int,
    floors: Sequence[int],
    caps: Sequence[int],
    weights: Sequence[float],
    order: Sequence[int] | None = None,
) -> list[int]:
    """Whole numbers between floors and caps, `capacity` in all where the caps allow; the floors must fit.

    The next one goes to the smallest `(share + 1/2) / weight`, ties to the smallest `order` (default: position). A
    search for the level below which all of these are handed out skips the steps that are certain; the last ones are
    taken singly.
    """
    if not len(floors):
        return []
    low, high = np.array(floors, dtype=np.int64), np.array(caps, dtype=np.int64)
    scale = np.array(weights, dtype=float)
    left = min(capacity, int(high.sum()))
    few = left - int(low.sum()) <= FEW_STEPS * len(low)
    shares = low if few else _certain(left, low, high, scale)
    result: list[int] = shares.tolist()
    ranks = range(len(floors)) if order is None else order
    open_to: list[int] = np.flatnonzero(shares < high).tolist()
    queue = [
        (ratio_key((result[position] + 0.5) / weights[position]), ranks[position], position) for position in open_to
    ]
    heapq.heapify(queue)
    rest = left - int(shares.sum())
    while rest > 0 and queue:
        _, rank, position = queue[0]
        result[position] += 1
        rest -= 1
        if result[position] < caps[position]:
            heapq.heapreplace(queue, (ratio_key((result[position] + 0.5) / weights[position]), rank, position))
        else:
            heapq.heappop(queue)
    return result


def _certain(
    left: int,
    low: Counts,
    high: Counts,
    scale: Amounts,
) -> Counts:
    """Shares at the highest level at which they still fit, a hair below it so that ties stay open."""

    def at(level: float) -> Counts:
        rounded = np.floor(np.minimum(level * scale + 0.5, high.astype(float))).astype(np.int64)
        clipped: Counts = np.clip(rounded, low, high)
        return clipped

    bottom = np.log(0.25 / float(scale.max()))
    top = np.log(float((high / scale).max()) + 1.0) + 1.0
    for _ in range(HALVINGS):
        middle = (bottom + top) / 2
        if int(at(float(np.exp(middle))).sum()) <= left:
            bottom = middle
        else:
            top = middle
    return at(float(np.exp(bottom)) * (1 - TOLERANCE))


# Choice of pipelines that get their minimum if not all fit: by priority, raised by waiting time.


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
