"""Who talks to whom in a pipeline, and which operators to keep together.

With c_a threads of each operator in a group (a slot, a node, a rack), the part of all thread pairs of all streams
that meet in the group is

    1/2 c' Q c,    Q_ab = streams between a and b / (threads of a x threads of b),    Q_aa = 2 x self-loops / threads^2

and the network cost of a pipeline is 3 per stream minus that sum over all its slots, nodes and racks.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.place.contract import Request


class Talk:
    """The numbers of one pipeline: threads, demands of one thread, and Q, each indexed by operator."""

    def __init__(self, request: Request, dimensions: int) -> None:
        self.size = len(request.operators)
        self.threads = [operator.threads for operator in request.operators]
        self.demand = np.array([o.demand for o in request.operators], dtype=float).reshape(-1, dimensions)
        self.streams = np.zeros((self.size, self.size))
        for sender, receiver in request.streams:
            self.streams[sender, receiver] += 1
            self.streams[receiver, sender] += 1
        share = 1.0 / np.maximum(np.array(self.threads, dtype=float), 1.0)
        self.pull = self.streams * np.outer(share, share)
        """Q above."""
        self.total = (self.demand * np.array(self.threads, dtype=float)[:, None]).sum(axis=0)

    def overlap(self, counts: NDArray[np.float64]) -> float:
        """1/2 c' Q c, summed over groups (the rows of `counts`)."""
        return float(0.5 * np.einsum("ga,ab,gb->", counts, self.pull, counts, optimize=True))


def blocks(talk: Talk, counts: Sequence[int], bin_size: NDArray[np.float64], demand: NDArray[np.float64]) -> list[list[int]]:
    """Operators grouped into blocks that share bins of `bin_size`, in an order that keeps related blocks adjacent.

    A block that fills N > 1 bins is spread over them evenly, so that each of its inner streams meets in 1/N of its
    pairs; a block within one bin meets in all. Blocks merge, best first, while the sum over blocks of
    inner streams / max(1, N) grows. What is left is chained by the streams between blocks.
    """
    members = [[operator] for operator in range(talk.size) if counts[operator]]
    size = np.where(bin_size > 0, bin_size, np.inf)
    load = [demand[block[0]] * counts[block[0]] / size for block in members]
    present = [block[0] for block in members]
    streams = talk.streams[np.ix_(present, present)].copy()
    inner = [streams[i, i] / 2 for i in range(len(members))]
    np.fill_diagonal(streams, 0.0)
    between = {(i, j): float(streams[i, j]) for i, j in combinations(range(len(members)), 2) if streams[i, j]}
    alive = set(range(len(members)))
    worth = [inner[i] / max(1.0, float(load[i].max(initial=0.0))) for i in range(len(members))]
    joined: list[list[list[int]]] = [[block] for block in members]
    mixing = True
    while between:
        best, pair = -np.inf, (-1, -1)
        for (i, j), streams_between in between.items():
            bins = max(1.0, float((load[i] + load[j]).max()))
            gain = (inner[i] + inner[j] + streams_between) / bins - worth[i] - worth[j]
            if gain > best + 1e-12:
                best, pair = gain, (i, j)
        mixing = mixing and best > 1e-12
        i, j = pair
        if mixing:
            joined[i] = [joined[i][0] + joined[j][0]]
        else:
            joined[i] += joined[j]
        inner[i] += inner[j] + between.pop((i, j))
        load[i] = load[i] + load[j]
        worth[i] = inner[i] / max(1.0, float(load[i].max()))
        alive.remove(j)
        for other in alive - {i}:
            moved = between.pop((min(j, other), max(j, other)), 0.0)
            if moved:
                key = (min(i, other), max(i, other))
                between[key] = between.get(key, 0.0) + moved
    return [block for i in sorted(alive) for block in joined[i]]


def interleaved(block: Sequence[int], counts: Sequence[int]) -> list[int]:
    """The operator of every thread of a block, each operator spread evenly over the sequence."""
    operator = np.repeat(np.array(block), [counts[o] for o in block])
    place = np.concatenate([(np.arange(counts[o]) + 0.5) / max(counts[o], 1) for o in block])
    sequence: list[int] = operator[np.argsort(place, kind="stable")].tolist()
    return sequence
