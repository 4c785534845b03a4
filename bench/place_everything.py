"""Random clusters filled to 70 to 95 %: how many pipelines each way of placing them gets in, and how many any could.

    python bench/place_everything.py [--cases N] [--json]

Beside `compact` with everything it does in a whole pass (`place`): `compact` one pipeline after the other, first fit
with the largest threads first, and best fit on the scarcest resource, each in declared order and with the largest
pipelines first. All pipelines have one priority, so the number placed is what counts. The bound is of sums over the
whole cluster; no placement holds more.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.topology import Cluster, Node
from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Room
from penstock.planning.placement.group_placement import most_that_fit, one_by_one, total_demand
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.whole_cluster import place_all

if TYPE_CHECKING:
    from collections.abc import Sequence

FILLS = (0.70, 0.95)
WAYS = (
    "compact",
    "compact, one by one",
    "first fit decreasing",
    "first fit decreasing, largest pipeline first",
    "best fit, scarcest",
    "best fit, scarcest, largest pipeline first",
)


def random_case(seed: int) -> tuple[Cluster, list[PlacementRequest]]:
    """20 to 80 nodes of up to three kinds, and pipelines until CPU and memory are both asked for to a share drawn
    between 70 and 95 %: threads lean to CPU or to memory, and the last pipelines are scaled to meet both shares."""
    draw = random.Random(seed)  # noqa: S311 - a bench wants the same clusters every time, not secrets
    kinds = [(3600.0, 178000.0), (2400.0, 118100.0), (1200.0, 42480.0), (1600.0, 130000.0)]
    chosen = draw.sample(kinds, draw.randint(1, 3))
    count = draw.randint(20, 80)
    nodes = []
    for index in range(count):
        cpu, memory = chosen[index * len(chosen) // count]
        nodes.append(Node(f"n{index}", f"r{index // 20}", 50, {"cpu": cpu, "memory_mb": memory}))
    capacity = np.array([[node.capacity["cpu"], node.capacity["memory_mb"]] for node in nodes]).sum(axis=0)
    wanted = capacity * [draw.uniform(*FILLS), draw.uniform(*FILLS)]
    pipelines = draw.randint(10, 50)
    shapes = []
    for _ in range(pipelines):
        rows = []
        for _ in range(draw.randint(2, 8)):
            lean = draw.choice([(1.0, 0.3), (0.3, 1.0), (1.0, 1.0)])
            rows.append(
                [
                    draw.choice([1, 2, 4, 8, 16, 32]),
                    lean[0] * draw.choice([10, 25, 50, 100, 200, 400, 900]),
                    lean[1] * draw.choice([256, 512, 2048, 4096, 16384, 40000]),
                ]
            )
        shapes.append(rows)
    total = np.array([np.sum([[t * c, t * m] for t, c, m in rows], axis=0) for rows in shapes]).sum(axis=0)
    scale = wanted / total
    largest = min(node.capacity["cpu"] for node in nodes), min(node.capacity["memory_mb"] for node in nodes)
    requests = []
    for index, rows in enumerate(shapes):
        operators = []
        for position, (threads, cpu, memory) in enumerate(rows):
            pieces = max(1, *np.ceil([cpu * scale[0] / largest[0] * 2, memory * scale[1] / largest[1] * 2]).astype(int))
            demand = (round(cpu * scale[0] / pieces, 1), round(memory * scale[1] / pieces, 1))
            operators.append(OperatorRequest(f"o{position}", int(threads * pieces), demand))
        streams = tuple((draw.randrange(k), k) for k in range(1, len(operators)))
        requests.append(PlacementRequest(f"p{index}", tuple(operators), streams, (0,), None))
    return Cluster(tuple(nodes)), requests


def plain(cluster: Cluster, requests: Sequence[PlacementRequest], *, best_fit: bool) -> int:
    """Pipelines placed one after the other, all or nothing, thread by thread with the largest first."""
    free = np.array([[node.capacity["cpu"], node.capacity["memory_mb"]] for node in cluster.nodes])
    capacity = free.sum(axis=0)
    placed = 0
    for request in requests:
        scarce = int(np.argmax(total_demand(request) / np.maximum(free.sum(axis=0), 1e-9)))
        left = free.copy()
        threads = sorted(
            (o for o in request.operators for _ in range(o.threads)),
            key=lambda o: -o.demand[scarce] if best_fit else -max(np.array(o.demand) / capacity),
        )
        for operator in threads:
            fits = np.flatnonzero((left >= np.array(operator.demand) - 1e-6).all(axis=1))
            if not len(fits):
                break
            node = fits[np.argmin(left[fits, scarce])] if best_fit else fits[0]
            left[node] -= operator.demand
        else:
            free, placed = left, placed + 1
    return placed


def measure(seed: int) -> dict[str, object]:
    cluster, requests = random_case(seed)
    sizes = np.array([total_demand(request) for request in requests])
    capacity = np.array([[node.capacity["cpu"], node.capacity["memory_mb"]] for node in cluster.nodes]).sum(axis=0)
    large = [requests[k] for k in np.argsort(-(sizes / capacity).max(axis=1), kind="stable").tolist()]
    start = time.process_time()
    result = place_all(cluster, [(request, 1) for request in requests], Compact())
    seconds = time.process_time() - start
    alone, _ = one_by_one(Compact(), requests, Room(cluster, slot_memory_shared=False))
    counts = [
        len(result.placements),
        len(alone),
        plain(cluster, requests, best_fit=False),
        plain(cluster, large, best_fit=False),
        plain(cluster, requests, best_fit=True),
        plain(cluster, large, best_fit=True),
    ]
    return {
        "seed": seed,
        "nodes": len(cluster.nodes),
        "pipelines": len(requests),
        "threads": sum(request.threads for request in requests),
        "demand": [round(float(share), 3) for share in sizes.sum(axis=0) / capacity],
        "placed": dict(zip(WAYS, counts, strict=True)),
        "bound": most_that_fit(sizes, capacity),
        "violations": result.usage.hard_violations + result.usage.nodes_overloaded,
        "seconds": round(seconds, 3),
    }


def summary(cases: Sequence[dict[str, object]]) -> dict[str, object]:
    rows = [dict(case["placed"]) for case in cases]  # type: ignore[call-overload]
    asked = sum(int(str(case["pipelines"])) for case in cases)
    return {
        "cases": len(cases),
        "pipelines": asked,
        "placed": {way: sum(row[way] for row in rows) for way in WAYS},
        "all_placed": {
            way: sum(row[way] == case["pipelines"] for row, case in zip(rows, cases, strict=True)) for way in WAYS
        },
        "bound": sum(int(str(case["bound"])) for case in cases),
        "fewer_than_another": sum(row["compact"] < max(row.values()) for row in rows),
        "violations": sum(int(str(case["violations"])) for case in cases),
        "longest_seconds": max(float(str(case["seconds"])) for case in cases),
    }


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=200, help="random clusters (default 200)")
    parser.add_argument("--json", action="store_true", help="print every case as JSON")
    options = parser.parse_args(arguments)
    cases = [measure(seed) for seed in range(options.cases)]
    found = summary(cases)
    if options.json:
        print(json.dumps({"summary": found, "cases": cases}, indent=1))
        return
    print(f"{found['cases']} clusters, {found['pipelines']} pipelines; no placement holds more than {found['bound']}")
    placed, whole = dict(found["placed"]), dict(found["all_placed"])  # type: ignore[call-overload]
    for way in WAYS:
        print(f"{way:<46} {placed[way]:>6} placed, everything in {whole[way]:>3} clusters")
    print(
        f"compact placed fewer than another way in {found['fewer_than_another']} clusters; "
        f"{found['violations']} limits exceeded; longest {found['longest_seconds']} s of CPU"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
