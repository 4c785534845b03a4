"""The best of several fills, each improved by local search: used for nodes, and for the slots of each
node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.placement.compact.fill import fill
from penstock.placement.compact.graph import blocks
from penstock.placement.compact.search import Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.placement.compact.graph import Talk

SCALES = (1.0, 0.8, 0.5)
"""Bin sizes, as parts of the real one, for which blocks are formed: smaller blocks leave fewer gaps, larger
ones keep more streams inside. None is best everywhere."""
TRIES, THOROUGH_TRIES = 2, 6
"""Bundles looked at per stream: a try costs the same in every pipeline, and what it can bring goes with its streams."""
SEARCHED = 0.3
"""Streams per bin from which local search runs: below, the share of an operator in one bin is small, and so
is what could be gained."""
MOST_BINS = 2000
"""Beyond this many no search: every try looks at all of them."""
THOROUGH = 2.5
"""Streams per bin from which every scale is tried."""


def arrange(
    talk: Talk,
    counts: Sequence[int],
    demand: NDArray[np.float64],
    room: NDArray[np.float64],
    groups: Sequence[NDArray[np.int64]],
    *,
    spare: int,
) -> tuple[NDArray[np.float64], list[int]]:
    """Threads of each operator in each bin (bins x operators), and how many found no bin.

    `groups` says, per level above the bin, which group each bin belongs to; `spare` is how many unused bins
    the search may open.
    """
    if not len(room):
        return np.zeros((0, talk.size)), list(counts)
    streams = talk.overlap(np.array([counts], dtype=float))
    present = [operator for operator, count in enumerate(counts) if count]
    best: tuple[tuple[float, float], NDArray[np.float64], list[int]] | None = None
    for scale in SCALES:
        together = [present] if streams < SEARCHED else blocks(talk, counts, scale * room[0], demand)
        held, missing = fill(talk, counts, demand, room, together)
        full = held.any(axis=1)
        bins = int(full.sum())
        if (bins <= 1 and not any(missing)) or not _searchable(streams, bins):
            return held, missing
        saved = improve(talk, demand, room, held, groups, spare=spare)
        rank = (-float(sum(missing)), saved)
        if best is None or rank > best[0]:
            best = (rank, held, missing)
        if streams < THOROUGH * bins:
            break
    return best[1:] if best else (np.zeros((len(room), talk.size)), list(counts))


def improve(
    talk: Talk,
    demand: NDArray[np.float64],
    room: NDArray[np.float64],
    held: NDArray[np.float64],
    groups: Sequence[NDArray[np.int64]],
    *,
    spare: int = 0,
) -> float:
    """Local search over the used bins and `spare` unused ones, in place; returns what their contents save."""
    full = held.any(axis=1)
    streams = talk.overlap(held.sum(axis=0, keepdims=True))
    if not _searchable(streams, int(full.sum())):
        return 0.0
    used = np.concatenate([np.flatnonzero(full), np.flatnonzero(~full)[:spare]])
    levels = [np.arange(len(used)), *(np.unique(group[used], return_inverse=True)[1] for group in groups)]
    search = Search(talk, demand, room[used], held[used], levels)
    search.run(1 + int(streams * (THOROUGH_TRIES if streams >= THOROUGH * full.sum() else TRIES)))
    held[used] = search.held
    return search.overlap()


def _searchable(streams: float, bins: int) -> bool:
    return streams >= SEARCHED * bins and bins <= MOST_BINS
