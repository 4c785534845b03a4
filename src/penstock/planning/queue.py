"""Who is placed first: guarantees of owners, then priorities.

An owner's pipelines count against its guarantee in the order of their priority. As long as they stay within it they
go before everybody's that do not, whatever priority those have: nobody gets ahead of another's guarantee by calling
a pipeline important. Inside each of the two groups the lowest number goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import exceeds
from penstock.errors import BadInputError, nearest
from penstock.placement.repair.bound import total_demand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster
    from penstock.placement.contract import PlacementRequest


@dataclass(frozen=True, slots=True, order=True)
class Level:
    """Pipelines of one level are equals: none gives way to another. The least comes first."""

    beyond_guarantee: bool
    priority: int

    def __str__(self) -> str:
        beyond = " beyond its owner's guarantee" if self.beyond_guarantee else ""
        return f"priority {self.priority}{beyond}"


@dataclass(frozen=True, slots=True)
class Queued:
    request: PlacementRequest
    level: Level
    share: float = 0.0
    """Of its owner's guarantee, what the owner's pipelines up to this one take: the largest over the dimensions."""


def queue(
    requests: Sequence[tuple[PlacementRequest, int]], cluster: Cluster, guarantees: Mapping[str, Mapping[str, float]]
) -> list[Queued]:
    """Pipelines in the order in which they are placed; of equals, the owner with the lower share first, then as
    declared."""
    if not guarantees:
        entries = [Queued(request, Level(False, priority)) for request, priority in requests]
        return sorted(entries, key=lambda entry: entry.level)
    names = [dimension.name for dimension in cluster.dimensions]
    taken: dict[str, NDArray[np.float64]] = {}
    entries = []
    for request, priority in sorted(requests, key=lambda entry: entry[1]):
        owner = request.owner
        if owner is None or owner not in guarantees:
            whose = "it has no owner" if owner is None else f"owner '{owner}' has no guarantee"
            raise BadInputError(f"pipeline '{request.pipeline}': {whose}; {nearest(owner or '', guarantees)}")
        own = guarantees[owner]
        used = taken.get(owner, np.zeros(len(names))) + total_demand(request)
        taken[owner] = used
        parts = [_part(amount, own[name]) for name, amount in zip(names, used.tolist(), strict=True) if name in own]
        share = max(parts, default=0.0)
        entries.append(Queued(request, Level(exceeds(share, 1.0), priority), share))
    return sorted(entries, key=lambda entry: (entry.level, entry.share))


def _part(amount: float, guaranteed: float) -> float:
    return amount / guaranteed if guaranteed > 0 else (inf if amount > 0 else 0.0)
