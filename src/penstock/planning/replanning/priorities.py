"""Who is placed first: guarantees of owners, then priorities.

An owner's pipelines count against its guarantee in the order of their priority. As long as they stay within it they
go before everybody's that do not, whatever priority those have: nobody gets ahead of another's guarantee by calling
a pipeline important. Inside each of the two groups the lowest number goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError, nearest
from penstock.base.tolerance import exceeds
from penstock.planning.placement.group_placement import total_demand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster
    from penstock.planning.placement.contract import PlacementRequest


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


# Eviction for a pipeline of higher priority without room: as few threads of the lowest priorities as possible.
#
# Between two sets of evicted pipelines, the better takes fewer threads from the most important level either touches; on
# a tie, from the next, and so on:
#
# key(set) = (threads it takes from the most important level, ..., from the least important)
#
# and the smallest key wins. So no pipeline is evicted while less important ones would do, and no more than needed.


ENUMERATED = 10
"""Up to so many pipelines every set is looked at, the smallest key first; beyond, a set from which nobody can be left
out is found by adding and leaving out."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pipeline that runs and may give way."""

    pipeline: str
    level: Level
    threads: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """Why a pipeline gave way."""

    pipeline: str
    threads: int
    for_pipeline: str
    reason: str

    def __str__(self) -> str:
        return f"'{self.pipeline}' ({self.threads:,} threads) gave way to '{self.for_pipeline}': {self.reason}"


def fewest(candidates: Sequence[Candidate], fits: Callable[[frozenset[str]], bool]) -> tuple[Candidate, ...] | None:
    """The set with the smallest key without which the pipeline `fits`; None where it does not even without all."""
    if not candidates or not fits(frozenset(each.pipeline for each in candidates)):
        return None
    if len(candidates) <= ENUMERATED:
        sets = [group for size in range(1, len(candidates) + 1) for group in combinations(candidates, size)]
        levels = sorted({each.level for each in candidates})
        for group in sorted(sets, key=lambda group: (key(group, levels), len(group))):
            if fits(frozenset(each.pipeline for each in group)):
                return group
    return _irreducible(candidates, fits)


def key(group: Iterable[Candidate], levels: Sequence[Level]) -> tuple[int, ...]:
    taken = dict.fromkeys(levels, 0)
    for each in group:
        taken[each.level] += each.threads
    return tuple(taken[level] for level in levels)


def _irreducible(candidates: Sequence[Candidate], fits: Callable[[frozenset[str]], bool]) -> tuple[Candidate, ...]:
    """The least important are added until it fits, then the most important and largest left out where it still does.

    Adding doubles its steps back by halves, so that few sets are tried: fits is monotone but for a placer's whims.
    """
    order = sorted(candidates, key=lambda each: (each.level, -each.threads), reverse=True)
    low, high = 1, len(order)
    while low < high:
        middle = (low + high) // 2
        if fits(frozenset(each.pipeline for each in order[:middle])):
            high = middle
        else:
            low = middle + 1
    chosen = list(order[:high])
    for each in sorted(chosen, key=lambda each: (each.level, -each.threads)):
        fewer = [other for other in chosen if other is not each]
        if fewer and fits(frozenset(other.pipeline for other in fewer)):
            chosen = fewer
    return tuple(chosen)
