"""How low the network cost weighted by thread pairs can be on a cluster at all, beside what `compact` reaches.

    python bench/pair_cost_floor.py [CLUSTER.json] [--json]

The cost of a stream is 3 less the chances that a pair of its threads shares a rack, a node, a slot. A bin (rack, node,
slot) of capacity 1 that holds c_a threads of every operator, of which one takes p_a, is filled with u_a = p_a c_a, the
sum of which is at most 1. Pairs of the streams between a and b that meet in it, weighted, are m_ab u_a u_b with
m_ab = weight / (threads of a x threads of b x p_a p_b), and m_aa u_a^2 for streams from a to itself. Prices P that make

    sum of m_ab u_a u_b  <=  sum of P_a u_a        in every bin, whatever it is filled with,

bound what meets in all bins together by the sum of P_a x (all that a takes). The worst bin holds operators that all
talk to each other (of two that do not, one can be exchanged for the other without loss), so where no three operators
talk in a triangle it is enough to look at every two:

    sqrt(P_a - m_aa) + sqrt(P_b - m_bb)  >=  sqrt(m_ab - m_aa - m_bb)

Streams are parted into sets without triangles, each with the prices of the least sum (a convex program). No placement
within the limits has a lower cost than this floor. It looks at a whole pipeline, not at one stream alone, but still
as if no other pipeline were there.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.planning.files import read_whole_cluster
from penstock.planning.placement.communication import thread_pairs
from penstock.planning.placement.contract import PlacementRequest, Room
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.whole_cluster import place_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Streams = Mapping[tuple[int, int], float]

MIXES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights of the first resource against the others: what keeps both limits keeps any mix of them."""
SWEEPS = 300


def without_triangles(streams: Streams) -> Iterator[dict[tuple[int, int], float]]:
    """The streams (by pair of operators, weighted) in sets without triangles, the heaviest first."""
    left = dict(sorted(streams.items(), key=lambda entry: -entry[1]))
    while left:
        near: dict[int, set[int]] = {}
        part = {}
        for (a, b), weight in left.items():
            if a == b or not near.setdefault(a, set()) & near.setdefault(b, set()):
                part[a, b] = weight
                if a != b:
                    near[a].add(b)
                    near[b].add(a)
        left = {pair: weight for pair, weight in left.items() if pair not in part}
        yield part


def least_prices(gaps: Streams, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """r >= 0 of the least sum of amounts x r^2 with r_a + r_b >= gap of every pair: Hildreth's rule, sweep after sweep,
    then scaled up until every pair holds, so that the answer is a bound however far the sweeps came."""
    roots = np.zeros(len(amounts))
    pressure = dict.fromkeys(gaps, 0.0)
    for _ in range(SWEEPS):
        for (a, b), gap in gaps.items():
            ease = 0.5 / amounts[a] + 0.5 / amounts[b]
            step = max((gap - roots[a] - roots[b]) / ease, -pressure[a, b])
            pressure[a, b] += step
            roots[a] += step * 0.5 / amounts[a]
            roots[b] += step * 0.5 / amounts[b]
    scale = max((gap / max(roots[a] + roots[b], 1e-300) for (a, b), gap in gaps.items()), default=1.0)
    return roots * max(scale, 1.0)


def most_met(streams: Streams, threads: NDArray[np.float64], needs: NDArray[np.float64]) -> float:
    """The most weight that can meet in bins of capacity 1, of which one thread takes `needs`."""
    alone = {pair: weight for pair, weight in streams.items() if needs[list(pair)].min() <= 0}
    density = {
        (a, b): weight / (threads[a] * threads[b] * needs[a] * needs[b])
        for (a, b), weight in streams.items()
        if (a, b) not in alone
    }
    loops = np.array([density.get((a, a), 0.0) for a in range(len(threads))])
    gaps = {
        (a, b): float(np.sqrt(max(dense - loops[a] - loops[b], 0.0))) for (a, b), dense in density.items() if a != b
    }
    amounts = threads * needs
    prices = least_prices(gaps, np.maximum(amounts, 1e-300)) ** 2 + loops
    return sum(alone.values()) + min(float(prices @ amounts), sum(streams.values()) - sum(alone.values()))


def floor_of(request: PlacementRequest, bins: Sequence[NDArray[np.float64]]) -> float:
    """The least cost of all streams of a pipeline together, by weight, for bins of at most these sizes."""
    threads = np.array([operator.threads for operator in request.operators], dtype=float)
    demand = np.array([operator.demand for operator in request.operators])
    streams: dict[tuple[int, int], float] = {}
    for (a, b), pairs in zip(request.streams, thread_pairs(request), strict=True):
        streams[min(a, b), max(a, b)] = streams.get((min(a, b), max(a, b)), 0.0) + pairs
    cost = 3.0 * sum(streams.values())
    for size in bins:
        there = size > 0  # of what no bin has, nothing bounds the cost
        share = demand[:, there] / size[there]
        mixes = [
            share @ np.array([mix, *[(1 - mix) / max(share.shape[1] - 1, 1)] * (share.shape[1] - 1)]) for mix in MIXES
        ]
        cost -= sum(min(most_met(part, threads, mix) for mix in mixes) for part in without_triangles(streams))
    return max(cost, 0.0)


def floor(requests: Sequence[PlacementRequest], room: Room) -> float:
    node = room.capacity.max(axis=0)
    rack = np.array([room.capacity[room.rack == r].sum(axis=0) for r in np.unique(room.rack)]).max(axis=0)
    total = weighted = 0.0
    for request in requests:
        slot = node.copy()
        if room.memory_axis is not None and request.slot_memory is not None:
            slot[room.memory_axis] = min(request.slot_memory, node[room.memory_axis])
        weighted += floor_of(request, (rack, node, slot))
        total += sum(thread_pairs(request))
    return weighted / total if total else 0.0


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    shipped = str(files("penstock.workloads") / "clusters" / "yahoo-1312-nodes.json")
    parser.add_argument("cluster", nargs="?", default=shipped, help="a cluster file (default: the shipped one)")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    options = parser.parse_args(arguments)
    whole = read_whole_cluster(Path(options.cluster))
    room = Room(whole.cluster, slot_memory_shared=False)
    least = floor([request for request, _ in whole.requests], room)
    reached = place_all(whole.cluster, whole.requests, Compact())
    figures = {"floor": least, "compact": reached.network_cost_by_pairs, "network_cost": reached.network_cost}
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"by pairs: compact {figures['compact']:.4f}, no placement below {least:.4f} "
            f"({100 * (figures['compact'] / least - 1):.1f} % above); mean over streams {reached.network_cost:.4f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
