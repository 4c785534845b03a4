"""Many pipelines on one cluster, each all or nothing on what the earlier ones left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import BadInputError, Refusal
from penstock.placement.contract import Room
from penstock.placement.slots import TOLERANCE
from penstock.prediction.network import mean_cost, stream_costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.topology import Cluster, Slot
    from penstock.placement.contract import Placement, Placer, Request
    from penstock.planning.matching import Moves


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


@dataclass(frozen=True, slots=True)
class ClusterPlacement:
    """What one placer made of a cluster and its pipelines."""

    placer: str
    placements: Mapping[str, Placement]
    refused: Mapping[str, Refusal]
    usage: Usage
    network_cost: float
    """Mean over all streams of all placed pipelines (`penstock.prediction.network`)."""
    network_costs: Mapping[str, float]
    """Mean over the streams of each placed pipeline."""
    moves: Mapping[str, Moves] = field(default_factory=dict)
    """What it takes of each placed pipeline, where they ran before."""


def place_all(cluster: Cluster, requests: Sequence[tuple[Request, int]], placer: Placer) -> ClusterPlacement:
    """Place pipelines in order of priority (the lowest number first, ties in declared order)."""
    room = Room(cluster, slot_memory_shared=False)
    placements: dict[str, Placement] = {}
    refused: dict[str, Refusal] = {}
    for request, _ in sorted(requests, key=lambda entry: entry[1]):
        if request.pipeline in placements or request.pipeline in refused:
            raise BadInputError(f"pipeline '{request.pipeline}' is declared twice")
        answer = placer.place(request, room)
        if isinstance(answer, Refusal):
            refused[request.pipeline] = answer
            continue
        room.take(answer, {operator.name: operator.demand for operator in request.operators})
        placements[request.pipeline] = answer
    return summed_up(cluster, [request for request, _ in requests], placer.name, placements, refused)


def summed_up(
    cluster: Cluster,
    requests: Sequence[Request],
    placer: str,
    placements: Mapping[str, Placement],
    refused: Mapping[str, Refusal],
    moves: Mapping[str, Moves] | None = None,
) -> ClusterPlacement:
    """Placements with what they take of the cluster and how far their tuples travel."""
    asked = {request.pipeline: request for request in requests}
    costs = {name: stream_costs(asked[name], placement, cluster) for name, placement in placements.items()}
    return ClusterPlacement(
        placer,
        placements,
        refused,
        usage(cluster, requests, placements),
        mean_cost(cost for row in costs.values() for cost in row),
        {pipeline: mean_cost(row) for pipeline, row in costs.items()},
        moves or {},
    )


def usage(cluster: Cluster, requests: Sequence[Request], placements: Mapping[str, Placement]) -> Usage:
    """Sum up placements, whatever the placer's own books said."""
    room = Room(cluster, slot_memory_shared=False)
    holder: dict[Slot, str] = {}
    bad_slots: set[Slot] = set()
    for request in requests:
        placement = placements.get(request.pipeline)
        if placement is None:
            continue
        room.take(placement, {operator.name: operator.demand for operator in request.operators})
        memory: dict[Slot, float] = {}
        axis = room.memory_axis
        demand = {operator.name: 0.0 if axis is None else operator.demand[axis] for operator in request.operators}
        for operator, threads, slot, _ in placement.bundles:
            memory[slot] = memory.get(slot, 0.0) + threads * demand[operator]
        for slot, amount in memory.items():
            position = cluster.position(slot.node)
            limit = min(float(room.slot_memory[position]), request.slot_memory or np.inf)
            over = amount > limit * (1 + TOLERANCE) or slot.number >= room.slots[position]
            if over or holder.setdefault(slot, request.pipeline) != request.pipeline:
                bad_slots.add(slot)
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
    )
