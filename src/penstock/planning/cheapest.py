"""Everything fits: in which order, and with which weights, does the network cost the least?

Who is placed first chooses first, so the order decides what a nearly full cluster costs, and no order is best on
every cluster. Where everything found a place, a few more orders within each level are tried, as long as that stays
quick. Of the placements that hold everything and cost at most 4 % more per stream than the one with the least, the one
with the least cost by weight (what passes through streams, else pairs of threads) is the answer.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.repair.bound import total_demand
from penstock.placement.repair.together import Together, one_by_one, place_together
from penstock.placement.weights import common_weights, valued
from penstock.prediction.network import mean_cost, stream_costs, weighted_cost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.placement.contract import Placement, PlacementRequest, Placer, Repairs, Room

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
