"""Arithmetic on graphs whose vertices cost time to compute and whose edges cost time to cross (E-Stream, section 4).

Vertices are positions 0..n-1. What a cost means is the caller's: seconds for a tuple, or seconds of work for every
second of the stream.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penstock.dataflow.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Edge(NamedTuple):
    """What it costs to cross from one vertex to another that is not on the same node."""

    sender: int
    receiver: int
    seconds: float


def kahn_order(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Kahn's order with a first-in-first-out queue, ties in declared order.

    Where a cycle leaves nothing ready, the first declared vertex that is left goes next.
    """
    following: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for sender, receiver in pairs:
        if sender != receiver:
            following[sender].append(receiver)
            missing[receiver] += 1
    order: list[int] = []
    taken = [False] * count
    queue = deque(vertex for vertex in range(count) if not missing[vertex])
    for declared in range(count):
        if not queue and not taken[declared]:
            queue.append(declared)
        while queue:
            vertex = queue.popleft()
            if taken[vertex]:
                continue
            taken[vertex] = True
            order.append(vertex)
            for receiver in following[vertex]:
                missing[receiver] -= 1
                if not missing[receiver] and not taken[receiver]:
                    queue.append(receiver)
    return order


def merged(edges: Iterable[Edge]) -> list[Edge]:
    """Parallel edges as one, their costs added up, in the order of the first of them."""
    costs: dict[tuple[int, int], float] = {}
    for sender, receiver, seconds in edges:
        costs[sender, receiver] = costs.get((sender, receiver), 0.0) + seconds
    return [Edge(sender, receiver, seconds) for (sender, receiver), seconds in costs.items()]


def forward(order: Sequence[int], edges: Iterable[Edge]) -> list[Edge]:
    """The edges that go on in `order`: without those that close a cycle."""
    position = {vertex: place for place, vertex in enumerate(order)}
    return [edge for edge in edges if position[edge.sender] < position[edge.receiver]]


def upward_ranks(costs: Sequence[float], edges: Sequence[Edge], order: Sequence[int]) -> list[float]:
    """`p(v) = c(v) + max over k of (p(k) + c(v, k))`; without edges out `p = c` (Eq. 13, 14). Parallel edges add up."""
    following: list[list[Edge]] = [[] for _ in costs]
    for edge in merged(edges):
        following[edge.sender].append(edge)
    ranks = [0.0] * len(costs)
    for vertex in reversed(order):
        beyond = max((ranks[edge.receiver] + edge.seconds for edge in following[vertex]), default=0.0)
        ranks[vertex] = costs[vertex] + beyond
    return ranks


def communication_to_computation(costs: Sequence[float], edges: Iterable[Edge]) -> dict[tuple[int, int], float]:
    """`ccr(i, j) = c(i, j) / (c(i) + c(j))` of every pair that is joined (Eq. 11); infinite where only moving costs."""
    ratios = {}
    for sender, receiver, seconds in merged(edges):
        computing = costs[sender] + costs[receiver]
        ratios[sender, receiver] = seconds / computing if computing > 0 else math.inf if seconds > 0 else 0.0
    return ratios


def joined_pairs(ratios: Mapping[tuple[int, int], float], delta: float) -> list[tuple[int, int]]:
    """The pairs with `ccr > delta`; a ratio that is above it by rounding alone is equal to it, and not joined."""
    return [pair for pair, ratio in ratios.items() if ratio > delta * (1 + TOLERANCE)]
