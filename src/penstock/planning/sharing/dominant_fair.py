"""`dominant-fair`: dominant resource fairness (Ghodsi et al.) above the minima, for pipelines of different needs."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.tolerance import TOLERANCE, ratio_key
from penstock.planning.sharing.contract import Divides, Shares
from penstock.planning.sharing.division import DEFAULT_PATIENCE, FEW_STEPS, admit
from penstock.planning.sharing.fair_priority import Patience  # noqa: TC001 - options are checked by their annotations at run time
from penstock.planning.sharing.max_min import by_fairness

if TYPE_CHECKING:
    from penstock.planning.sharing.contract import Tenants
    from penstock.planning.sharing.division import Amounts, Counts

HALVINGS = 60


@dataclass(frozen=True, slots=True)
class DominantFair:
    """A pipeline's dominant share is the largest share it has of any resource of the cluster. Unit after unit (a unit
    is what it declares one node's worth to be) goes to the smallest dominant share; one whose next unit does not fit
    stands aside. Pipelines that declare nothing take whole nodes, and the result is that of `fair-max-min`.

    It divides sums of resources. Whether a unit then finds one node with all it needs is for a placer to see.
    """

    patience: Patience = DEFAULT_PATIENCE

    name: ClassVar[str] = "dominant-fair"
    published: ClassVar[bool] = False
    divides: ClassVar[Divides] = Divides.RESOURCES
    keeps_minima: ClassVar[bool] = True
    wastes_nothing: ClassVar[bool] = True
    obeys_priority: ClassVar[bool] = False

    def share(self, tenants: Tenants) -> Shares:
        everyone = tenants.pipelines
        demands, capacity, names = unit_demands(tenants)
        minima = np.array([tenant.minimum for tenant in everyone], dtype=np.int64)
        admission = admit(tenants, demands * minima[:, None], capacity, names, self.patience)
        admitted = np.array(admission.admitted)
        floors = np.where(admitted, minima, 0)
        caps = np.where(admitted, np.array([tenant.desired for tenant in everyone], dtype=np.int64), 0)
        ranks = by_fairness([tenant.fairness for tenant in everyone])
        units = _fill(demands, capacity, floors, caps, ranks)
        nodes: dict[str, float] = {tenant.name: int(unit) for tenant, unit in zip(everyone, units, strict=True)}
        return Shares(self.name, nodes, admission.waiting)


def unit_demands(tenants: Tenants) -> tuple[Amounts, Amounts, list[str]]:
    """Demand of one unit of every pipeline, capacity of the cluster, and the names of the resources both are in.

    Resources nobody asks for by name count as well, for those who take whole nodes; one no node has does not.
    """
    cluster = tenants.cluster
    totals = {
        dimension.name: sum(node.capacity[dimension.name] for node in cluster.nodes) for dimension in cluster.dimensions
    }
    asked = {name for tenant in tenants.pipelines for name, amount in (tenant.resources or {}).items() if amount > 0}
    names = [name for name, total in totals.items() if total > 0 or name in asked]
    capacity = np.array([totals[name] for name in names], dtype=float)
    whole = capacity / tenants.capacity
    demands = np.array(
        [
            whole if tenant.resources is None else [tenant.resources.get(name, 0.0) for name in names]
            for tenant in tenants.pipelines
        ],
        dtype=float,
    )
    return demands, capacity, names


def dominant_unit(demands: Amounts, capacity: Amounts) -> Amounts:
    """What one unit adds to the dominant share of its pipeline."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(demands > 0, demands / capacity, 0.0)
    largest: Amounts = parts.max(axis=1)
    return largest


def _fill(
    demands: Amounts,
    capacity: Amounts,
    floors: Counts,
    caps: Counts,
    ranks: list[int],
) -> list[int]:
    """The level up to which everybody's units fit is searched; from there it goes unit by unit.

    Starting at the level is safe: every unit below it would have been handed out, and none refused, in single steps
    too.
    """
    unit = dominant_unit(demands, capacity)
    limit = capacity * (1 + TOLERANCE)
    capable = np.isfinite(unit) & (caps > 0)

    def at(level: float) -> Counts:
        counts = np.zeros_like(floors)
        counts[capable] = np.ceil(np.minimum(level / unit[capable], caps[capable].astype(float))).astype(np.int64)
        clipped: Counts = np.clip(counts, floors, caps)
        return clipped

    bottom, top = 0.0, 1.0
    few = int((caps - floors).sum()) <= FEW_STEPS * len(caps)
    for _ in range(0 if few else HALVINGS):
        middle = (bottom + top) / 2
        if bool((at(middle) @ demands <= limit).all()):
            bottom = middle
        else:
            top = middle
    units: list[int] = at(bottom * (1 - TOLERANCE)).tolist()
    used = np.array(units) @ demands
    queue = [
        (ratio_key(units[position] * float(unit[position])), ranks[position], position)
        for position in np.flatnonzero(capable).tolist()
        if units[position] < caps[position]
    ]
    heapq.heapify(queue)
    while queue:
        _, rank, position = queue[0]
        after = used + demands[position]
        if not bool((after <= limit).all()):
            heapq.heappop(queue)
            continue
        used = after
        units[position] += 1
        if units[position] < caps[position]:
            heapq.heapreplace(queue, (ratio_key(units[position] * float(unit[position])), rank, position))
        else:
            heapq.heappop(queue)
    return units
