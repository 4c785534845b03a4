"""Keyed state in a fixed number of groups, so that another plan with other threads takes it over group by group."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

KEY_GROUPS = 128
"""The same for the life of a run: more bundles than this cannot share one keyed operator."""


def ranges(threads: Sequence[int], groups: int = KEY_GROUPS) -> list[tuple[int, int]]:
    """Consecutive groups for every bundle of a keyed operator, in proportion to its threads: of T threads in all,
    thread t answers for the groups `[t * G // T, (t + 1) * G // T)`."""
    total = sum(threads)
    edges = np.concatenate(([0], np.cumsum(threads))) * groups // total
    return [(int(first), int(end)) for first, end in pairwise(edges)]


def group_of(hashes: NDArray[np.uint64], groups: int = KEY_GROUPS) -> NDArray[np.int64]:
    return (hashes % np.uint64(groups)).astype(np.int64)
