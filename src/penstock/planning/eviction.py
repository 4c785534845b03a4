"""Who gives way where a pipeline of higher priority finds no room: the fewest threads of the lowest priorities.

Of two sets of pipelines that give way the better one takes fewer threads from the most important level either touches;
where that is equal, from the next, and so on:

    key(set) = (threads it takes from the most important level, ..., from the least important)

and the smallest key wins. So nobody gives way while less important ones would do, and of those no more than needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.planning.queue import Level

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
