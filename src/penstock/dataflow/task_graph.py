"""Arithmetic on graphs whose vertices cost time to compute and whose edges cost time to cross (E-Stream, section 4).

Vertices are positions 0..n-1. What a cost means is the caller's: seconds for a tuple, or seconds of work for every
second of the stream.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Edge(NamedTuple):
    """The cost of crossing from one vertex to another on a different node."""

    sender: int
    receiver: int
    seconds: float


def kahn_order(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Kahn's order with a first-in-first-out queue, ties in declared order.

    If a cycle leaves nothing ready, the first declared vertex that remains is next.
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


# Vertices of an acyclic graph in convex groups: every vertex on a path between two members is a member too.
#
# Convex groups can still form a cycle among themselves (a1 -> b1, b2 -> a2 with {a1, a2} and {b1, b2}). In the
# quotient, the graph of the groups, both faults are cycles: a path that leaves a group and comes back, through other
# groups or through one vertex. So groups on a common cycle are merged; the resulting groups are convex and acyclic.


Pair = tuple[int, int]


def convex_groups(order: Sequence[int], pairs: Sequence[Pair], joined: Iterable[Pair]) -> list[list[int]]:
    """The smallest groups that hold every pair of `joined` together, are convex and have an acyclic quotient.

    `order` is a topological order of the graph with the edges `pairs`. Groups and their members stand in topological
    order. Linear in vertices and edges.
    """
    group = _united(len(order), joined)
    quotient = _quotient(group, pairs)
    component = _strong_components(group, quotient)
    return in_order(order, pairs, [component[group[vertex]] for vertex in range(len(order))])


def capped_groups(
    order: Sequence[int], pairs: Sequence[Pair], joined: Iterable[Pair], fits: Callable[[list[int]], bool]
) -> list[list[int]]:
    """Return groups as `convex_groups` does, but join a pair, in the order given, only if `fits(members)` holds for the
    resulting group, closure included. O(vertices + edges) for every pair."""
    group = list(range(len(order)))
    for sender, receiver in joined:
        if group[sender] == group[receiver]:
            continue
        ends = {group[sender], group[receiver]}
        quotient = _quotient(group, pairs)
        backward = [(b, a) for a, b in quotient]
        united = ends | (_reached(ends, quotient) & _reached(ends, backward))
        members = [vertex for vertex in order if group[vertex] in united]
        if fits(members):
            for vertex in members:
                group[vertex] = members[0]
    return in_order(order, pairs, group)


def in_order(order: Sequence[int], pairs: Sequence[Pair], group: Sequence[int]) -> list[list[int]]:
    """Groups (`group[vertex]` is any label) with an acyclic quotient as lists, both in topological order."""
    members: dict[int, list[int]] = {}
    for vertex in order:
        members.setdefault(group[vertex], []).append(vertex)
    place = {label: position for position, label in enumerate(members)}
    quotient = dict.fromkeys((place[group[a]], place[group[b]]) for a, b in pairs if group[a] != group[b])
    rows = list(members.values())
    return [rows[position] for position in kahn_order(len(rows), quotient)]


def _united(count: int, joined: Iterable[Pair]) -> list[int]:
    """Return for every vertex the first of those it is joined with, directly or through others (a union-find)."""
    parent = list(range(count))

    def find(vertex: int) -> int:
        while parent[vertex] != vertex:
            parent[vertex] = parent[parent[vertex]]
            vertex = parent[vertex]
        return vertex

    for a, b in joined:
        first, second = sorted((find(a), find(b)))
        parent[second] = first
    return [find(vertex) for vertex in range(count)]


def _quotient(group: Sequence[int], pairs: Iterable[Pair]) -> list[Pair]:
    return list(dict.fromkeys((group[a], group[b]) for a, b in pairs if group[a] != group[b]))


def _reached(start: set[int], pairs: Iterable[Pair]) -> set[int]:
    following: dict[int, list[int]] = {}
    for a, b in pairs:
        following.setdefault(a, []).append(b)
    seen: set[int] = set()
    waiting = list(start)
    while waiting:
        for vertex in following.get(waiting.pop(), ()):
            if vertex not in seen:
                seen.add(vertex)
                waiting.append(vertex)
    return seen


def _strong_components(labels: Iterable[int], pairs: Iterable[Pair]) -> dict[int, int]:
    """Return for every label one of those on a common cycle with it, the same for all of them (Tarjan, without
    recursion)."""
    following: dict[int, list[int]] = {label: [] for label in labels}
    for a, b in pairs:
        following[a].append(b)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    path: list[int] = []
    for root, first in following.items():
        if root in index:
            continue
        work = [(root, iter(first))]
        index[root] = low[root] = len(index)
        path.append(root)
        while work:
            vertex, rest = work[-1]
            for receiver in rest:
                if receiver not in index:
                    index[receiver] = low[receiver] = len(index)
                    path.append(receiver)
                    work.append((receiver, iter(following[receiver])))
                    break
                if receiver not in component:
                    low[vertex] = min(low[vertex], index[receiver])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                if low[vertex] == index[vertex]:
                    while vertex not in component:
                        component[path.pop()] = vertex
    return component
