"""Communication in a pipeline: which operators exchange tuples, and which to keep together.

With c_a threads of each operator in a group (a slot, a node, a rack), the part of all thread pairs of all
streams that meet in the group is

    1/2 c' Q c,    Q_ab = streams between a and b / (threads of a x threads of b),    Q_aa = 2 x self-loops / threads^2

and the network cost of a pipeline is 3 per stream minus that sum over all its slots, nodes and racks.
"""

from __future__ import annotations

from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE, settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacementRequest


def blended(weights: Sequence[float], part: float) -> tuple[float, ...]:
    """Weights of mean 1: (1 - part) + part x weight / mean weight."""
    mean = sum(weights) / max(len(weights), 1)
    return tuple((1 - part) + part * weight / mean if mean > 0 else 1.0 for weight in weights)


class Talk:
    """The numbers of one pipeline: threads, demands of one thread, and Q, each indexed by operator."""

    def __init__(self, request: PlacementRequest, dimensions: int, weights: Sequence[float] = ()) -> None:
        """`weights`: the weight of every stream; equal by default."""
        self.size = len(request.operators)
        self.threads = [operator.threads for operator in request.operators]
        self.demand = settled(np.array([o.demand for o in request.operators], dtype=float)).reshape(-1, dimensions)
        self.streams = np.zeros((self.size, self.size))
        for (sender, receiver), weight in zip(request.streams, weights or [1.0] * len(request.streams), strict=True):
            self.streams[sender, receiver] += weight
            self.streams[receiver, sender] += weight
        ends = np.argwhere(np.triu(self.streams, 1)).tolist()
        self.pairs = {(i, j): float(self.streams[i, j]) for i, j in ends}
        """Streams between two different operators, in either direction."""
        share = 1.0 / np.maximum(np.array(self.threads, dtype=float), 1.0)
        self.pull = self.streams * np.outer(share, share)
        """Q above."""
        self.total = (self.demand * np.array(self.threads, dtype=float)[:, None]).sum(axis=0)

    def overlap(self, counts: NDArray[np.float64]) -> float:
        """1/2 c' Q c, summed over groups (the rows of `counts`)."""
        return 0.5 * float((counts @ self.pull * counts).sum())


def blocks(
    talk: Talk, counts: Sequence[int], bin_size: NDArray[np.float64], demand: NDArray[np.float64]
) -> list[list[int]]:
    """Operators grouped into blocks that share bins of `bin_size`, in an order that keeps related blocks
    adjacent.

    A block that fills N > 1 bins is spread over them evenly, so that each of its inner streams meets in 1/N
    of its pairs; a block within one bin meets in all. Blocks merge, best first, while the sum over blocks of
    inner streams / max(1, N) grows. What is left is chained by the streams between blocks.
    """
    load = demand * np.array(counts, dtype=float)[:, None] / np.where(bin_size > 0, bin_size, np.inf)
    clusters = {
        operator: _Cluster([[operator]], load[operator].tolist(), float(talk.streams[operator, operator]) / 2)
        for operator in range(talk.size)
        if counts[operator]
    }
    near: dict[int, dict[int, float]] = {i: {} for i in clusters}
    for (i, j), streams in talk.pairs.items():
        if i in clusters and j in clusters:
            near[i][j] = near[j][i] = streams
    gains = {(i, j): clusters[i].gain(clusters[j], near[i][j]) for i in near for j in near[i] if i < j}
    mixing = True
    while gains:
        i, j = max(gains, key=gains.__getitem__)
        gain = gains.pop((i, j))
        mixing = mixing and gain > TOLERANCE
        clusters[i].absorb(clusters.pop(j), near[i].pop(j), mix=mixing)
        for other, streams in near.pop(j).items():
            if other != i:
                del gains[min(j, other), max(j, other)], near[other][j]
                near[i][other] = near[other][i] = near[i].get(other, 0.0) + streams
        for other, streams in near[i].items():
            gains[min(i, other), max(i, other)] = clusters[i].gain(clusters[other], streams)
    return [block for cluster in clusters.values() for block in cluster.blocks]


class _Cluster:
    """Blocks that have been joined: their size in bins along every axis, and the streams inside."""

    __slots__ = ("blocks", "inner", "load")

    def __init__(self, blocks: list[list[int]], load: list[float], inner: float) -> None:
        self.blocks = blocks
        self.load = load
        self.inner = inner

    def gain(self, other: _Cluster, between: float) -> float:
        """Return the gain of joining: inner streams / max(1, N) of the union, less those of the two."""
        joint: float = max(1.0, *map(add, self.load, other.load))
        return (
            (self.inner + other.inner + between) / joint
            - self.inner / max(1.0, *self.load)
            - other.inner / max(1.0, *other.load)
        )

    def absorb(self, other: _Cluster, between: float, *, mix: bool) -> None:
        """Join another: as one block (`mix`), or as neighbours only."""
        self.blocks = [self.blocks[0] + other.blocks[0]] if mix else self.blocks + other.blocks
        self.inner += other.inner + between
        self.load = list(map(add, self.load, other.load))


def interleaved(block: Sequence[int], counts: Sequence[int]) -> list[int]:
    """The operator of every thread of a block, each operator spread evenly over the sequence."""
    threads = np.array([counts[o] for o in block])
    number = np.arange(int(threads.sum())) - np.repeat(np.cumsum(threads) - threads, threads)
    place = (number + 0.5) / np.repeat(threads, threads)
    sequence: list[int] = np.repeat(np.array(block), threads)[np.argsort(place, kind="stable")].tolist()
    return sequence


# Weights of streams in the network cost.


def stream_weights(request: PlacementRequest) -> tuple[float, ...]:
    """Return the volume between the ends of each stream, as far as it is known: bytes/s, else tuples/s, else the pairs
    of threads that may exchange tuples."""
    if any(request.traffic):
        return request.traffic
    return request.rates if any(request.rates) else thread_pairs(request)


def thread_pairs(request: PlacementRequest) -> tuple[float, ...]:
    """Return, for each stream, threads of its sender x threads of its receiver."""
    threads = [operator.threads for operator in request.operators]
    return tuple(float(threads[sender] * threads[receiver]) for sender, receiver in request.streams)


def common_weights(requests: Sequence[PlacementRequest]) -> list[tuple[float, ...]]:
    """The weights of every pipeline's streams in one measure: bytes/s or tuples/s where every pipeline knows them,
    else pairs of threads, which all of them have."""
    talking = [request for request in requests if request.streams]
    if all(any(request.traffic) for request in talking):
        return [request.traffic for request in requests]
    if all(any(request.rates) for request in talking):
        return [request.rates for request in requests]
    return [thread_pairs(request) for request in requests]


def valued(requests: Sequence[PlacementRequest]) -> list[PlacementRequest]:
    """Return the pipelines with the value of their streams relative to each other (`PlacementRequest.streams_worth`).

    worth = streams + all streams x its part of all weight, so half of all worth depends on the volume.
    """
    weights = [sum(row) for row in common_weights(requests)]
    total, streams = sum(weights), sum(len(request.streams) for request in requests)
    if not total:
        return list(requests)
    return [
        replace(request, streams_worth=len(request.streams) + streams * weight / total)
        for request, weight in zip(requests, weights, strict=True)
    ]
