"""Network cost of a placement: how far tuples travel between threads.

The cost of a stream a -> b is the mean, over all pairs of a thread of a and a thread of b, of the distance
between their slots (`Distance`: 0 same slot, 1 same node, 2 same rack, 3 other rack). With a_g the share of
a's threads in group g, the chance that a pair shares a group is the sum of a_g b_g over groups, and each
level shared saves one:

    cost(a -> b) = 3 - sum over racks a_r b_r - sum over nodes a_n b_n - sum over slots a_s b_s

Every stream counts once: parallel streams each, and a stream from an operator to itself too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from penstock.cluster.topology import Distance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cluster.topology import Cluster, Slot
    from penstock.planning.placement.contract import Placement, PlacementRequest

Group = TypeVar("Group")


def stream_costs(request: PlacementRequest, placement: Placement, cluster: Cluster) -> tuple[float, ...]:
    """The cost of each stream of a placed pipeline, in declared order; 0 where one end has no thread."""
    slots: dict[str, dict[Slot, float]] = {operator.name: {} for operator in request.operators}
    for operator, threads, slot, _ in placement.bundles:
        row = slots[operator]
        row[slot] = row.get(slot, 0.0) + threads
    total = {operator.name: float(operator.threads) for operator in request.operators}
    shares = [{slot: threads / total[name] for slot, threads in row.items()} for name, row in slots.items()]
    nodes = [_summed((slot.node, share) for slot, share in row.items()) for row in shares]
    rack = {node.name: node.rack for node in cluster.nodes}
    racks = [_summed((rack[node], share) for node, share in row.items()) for row in nodes]
    return tuple(
        float(Distance.OTHER_RACK)
        - _shared(racks[sender], racks[receiver])
        - _shared(nodes[sender], nodes[receiver])
        - _shared(shares[sender], shares[receiver])
        if shares[sender] and shares[receiver]
        else 0.0
        for sender, receiver in request.streams
    )


def weighted_cost(costs: Iterable[float], weights: Iterable[float]) -> float:
    """sum of weight x cost / sum of weights; 0 where nothing weighs."""
    pairs = list(zip(costs, weights, strict=True))
    total = sum(weight for _, weight in pairs)
    return sum(cost * weight for cost, weight in pairs) / total if total > 0 else 0.0


def mean_cost(costs: Iterable[float]) -> float:
    """The mean over streams; 0 where there is none. Of a cluster: over all streams of all its placed
    pipelines."""
    values = list(costs)
    return sum(values) / len(values) if values else 0.0


def _summed(amounts: Iterable[tuple[Group, float]]) -> dict[Group, float]:
    table: dict[Group, float] = {}
    for group, amount in amounts:
        table[group] = table.get(group, 0.0) + amount
    return table


def _shared(a: Mapping[Group, float], b: Mapping[Group, float]) -> float:
    """Sum over groups of a_g b_g."""
    if len(b) < len(a):
        a, b = b, a
    return sum(share * b[group] for group, share in a.items() if group in b)
