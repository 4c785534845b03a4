"""Clusters of the kind of the one that ships, drawn anew: what `compact` places on clusters nobody tuned it for.

    python bench/production_like.py [--seeds N] [--json]

Small ones: 80 nodes, 50 pipelines of some 1,400 threads that ask for 74 % of CPU and 72 % of memory. Large ones: the
1,312 nodes that ship, and pipelines drawn from those that ship until 76 % of CPU are asked for; also cut to the first
70 and 67 %, where hardly anything may be left over. Free ones: 300 to 2,000 nodes of up to three kinds, 20 to 50
pipelines of shapes of their own, 70 to 75 % of CPU and of memory. Beside it what a peer (`ras_peer`) places.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cluster.topology import Cluster, Node
from penstock.planning.files import read_whole_cluster
from penstock.planning.placement.contract import OperatorRequest, PlacementRequest
from penstock.planning.placement.group_placement import most_that_fit, total_demand
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.whole_cluster import place_all
from ras_peer import placed_by_peer

if TYPE_CHECKING:
    from collections.abc import Sequence

SHIPPED = Path(str(files("penstock.workloads") / "clusters" / "yahoo-1312-nodes.json"))
SMALL_THREADS, SMALL_CPU, SMALL_MEMORY, LARGE_CPU = 1414, 0.74, 0.72, 0.76

Work = tuple[Cluster, list[tuple[PlacementRequest, int]]]


def drawn(request: PlacementRequest, name: str, threads: Sequence[int], scale: Sequence[float]) -> PlacementRequest:
    operators = []
    for operator, count in zip(request.operators, threads, strict=True):
        demand = np.multiply(operator.demand, scale)
        # What grew above half a small node becomes more threads of less.
        pieces = max(1, int(np.ceil((demand / np.maximum((1200.0, 59000.0), operator.demand)).max())))
        operators.append(OperatorRequest(operator.name, count * pieces, tuple(np.round(demand / pieces, 1).tolist())))
    return PlacementRequest(name, tuple(operators), request.streams, request.sources, request.slot_memory)


def small(seed: int) -> Work:
    """80 nodes of two kinds that ship, and 50 pipelines that ship, with fewer threads."""
    draw = random.Random(seed)  # noqa: S311 - a bench wants the same clusters every time, not secrets
    shipped = read_whole_cluster(SHIPPED)
    kinds = [(3600.0, 178000.0), (2400.0, 118100.0)]
    nodes = [
        Node(f"n{k}", f"r{k // 20}", 50, dict(zip(("cpu", "memory_mb"), kinds[k // 60], strict=True)))
        for k in range(80)
    ]
    chosen = [draw.choice(shipped.requests)[0] for _ in range(50)]
    counts = [[max(1, round(o.threads ** draw.uniform(0.3, 0.8))) for o in request.operators] for request in chosen]
    ratio = SMALL_THREADS / sum(map(sum, counts))
    counts = [[max(1, round(count * ratio)) for count in row] for row in counts]
    wanted = np.array([[n.capacity["cpu"], n.capacity["memory_mb"]] for n in nodes]).sum(axis=0)
    total = sum(
        np.multiply(o.demand, count)
        for request, row in zip(chosen, counts, strict=True)
        for o, count in zip(request.operators, row, strict=True)
    )
    scale = wanted * (SMALL_CPU, SMALL_MEMORY) / total
    requests = [drawn(request, f"p{k}", counts[k], scale) for k, request in enumerate(chosen)]
    # A thread that outgrew its slot's heap gets a heap it fits.
    requests = [
        PlacementRequest(
            r.pipeline,
            r.operators,
            r.streams,
            r.sources,
            max(r.slot_memory or 0.0, *(o.demand[1] for o in r.operators)),
        )
        for r in requests
    ]
    return Cluster(tuple(nodes)), [(request, draw.choice([1, 29, 29, 29])) for request in requests]


def large(seed: int, part: float = 1.0) -> Work:
    """The nodes that ship, or the first part of them, and pipelines that ship, drawn until CPU is asked for enough."""
    draw = random.Random(seed)  # noqa: S311
    shipped = read_whole_cluster(SHIPPED)
    capacity = sum(node.capacity["cpu"] for node in shipped.cluster.nodes)
    requests: list[tuple[PlacementRequest, int]] = []
    asked = 0.0
    while True:
        request, priority = draw.choice(shipped.requests)
        factor = draw.uniform(0.3, 1.5)
        counts = [max(1, round(operator.threads * factor)) for operator in request.operators]
        made = drawn(request, f"p{len(requests)}", counts, (1.0, 1.0))
        size = float(total_demand(made)[0])
        if asked + size > LARGE_CPU * capacity:
            if asked > (LARGE_CPU - 0.01) * capacity:
                break
            continue
        asked += size
        requests.append((made, priority))
    nodes = shipped.cluster.nodes[: round(len(shipped.cluster.nodes) * part)]
    return Cluster(nodes), requests


def free(seed: int) -> Work:
    """Nodes and pipelines that owe nothing to those that ship: threads and demands are spread log-normally, a few
    operators take most of a pipeline, and all is scaled to 70 to 75 % of CPU and of memory."""
    draw = random.Random(seed)  # noqa: S311
    kinds = [(4800.0, 256000.0), (3200.0, 131072.0), (1600.0, 65536.0), (2400.0, 192000.0)]
    chosen = draw.sample(kinds, draw.randint(1, 3))
    count, rack = draw.randint(300, 2000), draw.choice([20, 32, 40])
    nodes = tuple(
        Node(
            f"n{k}", f"r{k // rack}", 40, dict(zip(("cpu", "memory_mb"), chosen[k // rack % len(chosen)], strict=True))
        )
        for k in range(count)
    )
    capacity = np.array([[n.capacity["cpu"], n.capacity["memory_mb"]] for n in nodes]).sum(axis=0)
    shapes = [
        [
            (
                max(1, round(draw.lognormvariate(2.0, 1.3))),
                draw.lognormvariate(3.5, 0.8),
                draw.lognormvariate(6.8, 0.9),
            )
            for _ in range(draw.randint(3, 30))
        ]
        for _ in range(draw.randint(20, 50))
    ]
    total = np.sum([[threads * cpu, threads * memory] for rows in shapes for threads, cpu, memory in rows], axis=0)
    scale = capacity * (draw.uniform(0.70, 0.75), draw.uniform(0.70, 0.75)) / total
    half = np.array(chosen).min(axis=0) / 2
    requests = []
    for number, rows in enumerate(shapes):
        operators = []
        for position, (threads, cpu, memory) in enumerate(rows):
            demand = np.array([cpu, memory]) * scale
            pieces = max(1, int(np.ceil((demand / half).max())))
            operators.append(
                OperatorRequest(f"o{position}", threads * pieces, tuple(np.round(demand / pieces, 1).tolist()))
            )
        streams = tuple((draw.randrange(k), k) for k in range(1, len(operators)))
        heap = max(draw.choice([4096.0, 8192.0, 16384.0]), *(o.demand[1] for o in operators))
        request = PlacementRequest(f"p{number}", tuple(operators), streams, (0,), heap)
        requests.append((request, draw.choice([1, 10, 29])))
    return Cluster(nodes), requests


def measure(label: str, seed: int, work: Work) -> dict[str, Any]:
    cluster, requests = work
    start = time.process_time()
    result = place_all(cluster, requests, Compact())
    seconds = time.process_time() - start
    by_peer = placed_by_peer(cluster, requests)
    sizes = np.array([total_demand(request) for request, _ in requests])
    capacity = np.array([[n.capacity["cpu"], n.capacity["memory_mb"]] for n in cluster.nodes]).sum(axis=0)
    return {
        "cluster": label,
        "seed": seed,
        "nodes": len(cluster.nodes),
        "threads": sum(request.threads for request, _ in requests),
        "demand": [round(float(share), 3) for share in sizes.sum(axis=0) / capacity],
        "pipelines": len(requests),
        "placed": len(result.placements),
        "placed_by_peer": len(by_peer),
        "only_by_peer": sorted(set(by_peer) - set(result.placements)),
        "bound": most_that_fit(sizes, capacity),
        "violations": result.usage.hard_violations + result.usage.nodes_overloaded,
        "network_cost": round(result.network_cost, 4),
        "network_cost_by_pairs": round(result.network_cost_by_pairs, 4),
        "seconds": round(seconds, 3),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="clusters of each kind (default 5)")
    parser.add_argument("--json", action="store_true", help="print every cluster as JSON")
    options = parser.parse_args(arguments)
    found = []
    for seed in range(options.seeds):
        found += [measure("80 nodes", seed, small(seed)), measure("free", seed, free(seed))]
        found += [measure(f"1,312 nodes, {part:.0%}", seed, large(seed, part)) for part in (1.0, 0.70, 0.67)]
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for row in found:
        print(
            f"{row['cluster']:<18} seed {row['seed']}: {row['threads']:>6} threads, demand {row['demand']}, "
            f"placed {row['placed']} of {row['pipelines']} (peer {row['placed_by_peer']}, bound {row['bound']}), "
            f"{row['violations']} violations, "
            f"cost {row['network_cost']}, by pairs {row['network_cost_by_pairs']}, {row['seconds']} s"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
