"""Many pipelines on one cluster, each all or nothing on what the earlier ones left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError, Refusal
from penstock.base.tolerance import TOLERANCE
from penstock.planning.placement.communication import common_weights, thread_pairs, valued
from penstock.planning.placement.constraints import broken, heap_mb, not_isolated
from penstock.planning.placement.contract import Repairs, Room
from penstock.planning.placement.group_placement import Together, one_by_one, place_together, total_demand
from penstock.planning.prediction.placement import mean_cost, stream_costs, weighted_cost
from penstock.planning.replanning.priorities import queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.cluster.topology import Cluster, Slot
    from penstock.planning.placement.contract import Placement, PlacementRequest, Placer
    from penstock.planning.replanning.plan_changes import ThreadMoves
    from penstock.planning.replanning.priorities import Eviction


# Everything fits: in which order, and with which weights, does the network cost the least?
#
# Pipelines placed first choose first, so the order decides the cost of a nearly full cluster, and no order is best on
# every cluster. If everything found a place, a few more orders within each level are tried, within a work limit. Of the
# placements that hold everything and cost at most 4 % more per stream than the one with the least, the one with the
# least cost by weight (traffic of streams, else pairs of threads) is the answer.


MORE_THREADS = 25_000
"""Threads that may be placed again in other orders; a stream counts as much as `STREAM` threads."""
STREAM = 5
DEARER = 0.04
"""How much more than the least mean over streams the answer may cost, for a lower cost by weight."""
MORE_BY_WEIGHT = 0.7


def place_cheaply(placer: Repairs, leveled: Sequence[tuple[PlacementRequest, object]], room: Room) -> Together:
    """`leveled` as for `place_together`, whose answer it is unless a cheaper one holds everything."""
    first = place_together(placer, leveled, room)
    requests = [request for request, _ in leveled]
    work = sum(request.threads + STREAM * len(request.streams) for request in requests)
    passes = int(MORE_THREADS / max(work, 1))
    if first.refused or not passes or len(requests) < 2:
        return first
    complete = [first]
    for _, (other, order) in zip(range(passes), _attempts(placer, leveled, room), strict=False):
        placements, refused = one_by_one(other, order, room)
        if not refused:
            complete.append(Together({request.pipeline: placements[request.pipeline] for request in requests}, {}))
    costs = [_costs(requests, answer.placements, room) for answer in complete]
    allowed = (1 + DEARER) * min(mean for mean, _ in costs) + TOLERANCE
    best = min((n for n, (mean, _) in enumerate(costs) if mean <= allowed), key=lambda n: round(costs[n][1], 9))
    return complete[best]


def _attempts(
    placer: Repairs, leveled: Sequence[tuple[PlacementRequest, object]], room: Room
) -> Iterator[tuple[Placer, list[PlacementRequest]]]:
    """Placers and orders, those that were the best most often on random clusters first."""
    requests = valued([request for request, _ in leveled])
    levels = [list(numbers) for _, numbers in groupby(range(len(leveled)), key=lambda number: leveled[number][1])]
    capacity = np.maximum(room.free.clip(min=0.0).sum(axis=0), 1e-300)
    size = [float((total_demand(request) / capacity).max(initial=0.0)) for request in requests]
    worth = [request.streams_worth or 0.0 for request in requests]

    def ordered(key: Sequence[float]) -> list[PlacementRequest]:
        return [requests[n] for level in levels for n in sorted(level, key=lambda n: key[n])]

    yield placer, ordered([-worth[n] / max(size[n], 1e-300) for n in range(len(requests))])
    yield placer.weighing(0.0), requests
    yield placer.weighing(MORE_BY_WEIGHT), ordered([-amount for amount in worth])
    yield placer, ordered([-len(request.streams) for request in requests])
    yield placer, ordered(size)


def _costs(
    requests: Sequence[PlacementRequest], placements: Mapping[str, Placement], room: Room
) -> tuple[float, float]:
    """The mean over streams, and the cost by weight."""
    costs = [cost for r in requests for cost in stream_costs(r, placements[r.pipeline], room.cluster)]
    return mean_cost(costs), weighted_cost(costs, [weight for row in common_weights(requests) for weight in row])


@dataclass(frozen=True, slots=True)
class Usage:
    """What placements take of a cluster, summed up from the placements alone."""

    nodes_used: int
    hard_violations: int
    """Pairs of a node and a hard dimension above capacity, plus slots above their memory limit or held
    twice."""
    soft_overload: Mapping[str, float]
    """Per soft dimension, how much is taken above capacity, summed over nodes."""
    nodes_overloaded: int
    """Nodes above capacity in some soft dimension."""
    constraints_broken: int = 0


@dataclass(frozen=True, slots=True)
class ClusterPlacement:
    """What one placer made of a cluster and its pipelines."""

    placer: str
    placements: Mapping[str, Placement]
    refused: Mapping[str, Refusal]
    usage: Usage
    network_cost: float
    """Mean over all streams of all placed pipelines (`penstock.planning.prediction.placement`)."""
    network_cost_by_pairs: float
    """The same with every stream weighted by the pairs of threads it joins."""
    network_cost_by_rate: float | None
    """The same weighted by what passes (bytes/s, else tuples/s); None where nobody says."""
    network_costs: Mapping[str, float]
    """Mean over the streams of each placed pipeline."""
    moves: Mapping[str, ThreadMoves] = field(default_factory=dict)
    """What it takes of each placed pipeline, where they ran before."""
    repair_moves: int = 0
    """Threads that were put down and moved again for others while everything was placed."""
    evicted: Mapping[str, Eviction] = field(default_factory=dict)
    """Pipelines that ran, gave way to one of higher priority, and found no other room."""


def place_all(
    cluster: Cluster,
    requests: Sequence[tuple[PlacementRequest, int]],
    placer: Placer,
    guarantees: Mapping[str, Mapping[str, float]] | None = None,
) -> ClusterPlacement:
    """Place pipelines in the order of the queue: guarantees of their owners, then priority (the lowest number first),
    then as declared. A placer that `repairs` places those of one level together."""
    names = [request.pipeline for request, _ in requests]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"pipeline '{twice}' is declared twice")
    room = Room(cluster, slot_memory_shared=False)
    line = queue(requests, cluster, guarantees or {})
    if isinstance(placer, Repairs):
        together = place_cheaply(placer, [(entry.request, entry.level) for entry in line], room)
        placements, refused, moved = together.placements, together.refused, together.moved
    else:
        moved = 0
        placements, refused = one_by_one(placer, [entry.request for entry in line], room)
    answer = summed_up(cluster, [request for request, _ in requests], placer.name, placements, refused)
    return replace(answer, repair_moves=moved)


def summed_up(
    cluster: Cluster,
    requests: Sequence[PlacementRequest],
    placer: str,
    placements: Mapping[str, Placement],
    refused: Mapping[str, Refusal],
    moves: Mapping[str, ThreadMoves] | None = None,
    evicted: Mapping[str, Eviction] | None = None,
) -> ClusterPlacement:
    """Placements with what they take of the cluster and how far their tuples travel."""
    asked = {request.pipeline: request for request in requests}
    costs = {name: stream_costs(asked[name], placement, cluster) for name, placement in placements.items()}
    every = [cost for row in costs.values() for cost in row]
    pairs = [pairs for name in costs for pairs in thread_pairs(asked[name])]
    passing = [amount for name in costs for amount in _passing(asked[name])]
    return ClusterPlacement(
        placer,
        placements,
        refused,
        usage(cluster, requests, placements),
        mean_cost(every),
        weighted_cost(every, pairs),
        weighted_cost(every, passing) if any(passing) else None,
        {pipeline: mean_cost(row) for pipeline, row in costs.items()},
        moves or {},
        evicted=evicted or {},
    )


def _passing(request: PlacementRequest) -> tuple[float, ...]:
    if any(request.traffic):
        return request.traffic
    return request.rates if any(request.rates) else (0.0,) * len(request.streams)


def usage(cluster: Cluster, requests: Sequence[PlacementRequest], placements: Mapping[str, Placement]) -> Usage:
    """Sum up placements, whatever the placer's own books said."""
    room = Room(cluster, slot_memory_shared=False)
    holder: dict[Slot, str] = {}
    bad_slots: set[Slot] = set()
    rules_broken = 0
    for request in requests:
        placement = placements.get(request.pipeline)
        if placement is None:
            continue
        demands = {operator.name: operator.demand for operator in request.operators}
        room.take(placement, demands, request.constraints)
        rules_broken += sum(1 for _ in broken(cluster, request, placement))
        for slot, row in placement.by_slot().items():
            position = cluster.position(slot.node)
            limit = min(float(room.slot_memory[position]), request.slot_memory or np.inf)
            heap = heap_mb(request, row, room.memory_axis)
            over = heap > limit * (1 + TOLERANCE) or slot.number >= room.slots[position]
            if over or holder.setdefault(slot, request.pipeline) != request.pipeline:
                bad_slots.add(slot)
    rules_broken += sum(1 for _ in not_isolated(requests, placements))
    over = np.maximum(-room.free, 0.0)
    over[over <= TOLERANCE * room.capacity.max(axis=0, initial=0.0)] = 0.0
    hard = np.array([dimension.hard for dimension in room.dimensions], dtype=bool)
    return Usage(
        nodes_used=int(np.count_nonzero(room.slots_taken)),
        hard_violations=int(np.count_nonzero(over[:, hard])) + len(bad_slots),
        soft_overload={
            dimension.name: float(over[:, axis].sum())
            for axis, dimension in enumerate(room.dimensions)
            if not dimension.hard
        },
        nodes_overloaded=int(np.count_nonzero(over[:, ~hard].any(axis=1))),
        constraints_broken=rules_broken,
    )
