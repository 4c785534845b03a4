"""Every whole-cluster placer on one cluster file, and how its time and memory grow.

    python bench/place_whole_cluster.py [CLUSTER.json] [--part SHARE] [--skip-scaling] [--repeat N] [--json]

Without a file, the real cluster that ships with Penstock; `--part 0.67` takes the first 67 % of its nodes. Times are of
placing alone, in seconds of CPU, so that a busy machine shows the same: choosing slots and committing them, without
reading the file and without the figures of the table. `compact` places pipelines together and goes on where one does
not fit; the others place one by one.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from importlib.resources import files
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cluster.topology import Cluster, Node
from penstock.planning.files import read_whole_cluster
from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Repairs, Room
from penstock.planning.placement.group_placement import one_by_one
from penstock.planning.placement.placers.baselines import RandomFeasible, RoundRobin
from penstock.planning.placement.placers.compact import Compact
from penstock.planning.placement.placers.r_storm import RStorm
from penstock.planning.whole_cluster import place_all, place_cheaply
from plain_r_storm import PlainRStorm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planning.placement.contract import Placer

Work = tuple[Cluster, list[tuple[PlacementRequest, int]]]

PLACERS: dict[str, Placer] = {
    "r-storm, plain loop": PlainRStorm(),
    "r-storm": RStorm(),
    "compact": Compact(),
    "round-robin": RoundRobin(),
    "random": RandomFeasible(),
}
SCALED = ("r-storm", "compact")
SIZES = (12_500, 25_000, 50_000, 100_000)


def seconds(work: Work, placer: Placer, repeat: int) -> float:
    """The best of `repeat` runs."""
    cluster, requests = work
    times = []
    queue = sorted(requests, key=lambda entry: entry[1])
    for _ in range(repeat):
        start = time.process_time()
        room = Room(cluster, slot_memory_shared=False)
        if isinstance(placer, Repairs):
            place_cheaply(placer, queue, room)
        else:
            one_by_one(placer, [request for request, _ in queue], room)
        times.append(time.process_time() - start)
    return min(times)


def compare(work: Work, repeat: int) -> list[dict[str, Any]]:
    cluster, requests = work
    rows = []
    for name, placer in PLACERS.items():
        best = seconds(work, placer, repeat)
        result = place_all(cluster, requests, placer)
        used = result.usage
        rows.append(
            {
                "placer": name,
                "seconds": best,
                "placed": len(result.placements),
                "of": len(requests),
                "nodes": used.nodes_used,
                "hard_violations": used.hard_violations,
                "cores_above_capacity": used.soft_overload.get("cpu", 0.0) / 100,
                "network_cost": result.network_cost,
                "network_cost_by_pairs": result.network_cost_by_pairs,
            }
        )
    return rows


def show(work: Work, rows: Sequence[dict[str, Any]]) -> None:
    cluster, requests = work
    threads = sum(request.threads for request, _ in requests)
    print(f"{len(requests)} pipelines, {threads} threads, {len(cluster.nodes)} nodes")
    print(
        f"{'placer':<20} {'seconds':>8} {'placed':>7} {'nodes':>6} {'hard violations':>16} "
        f"{'cores above capacity':>21} {'network cost':>13} {'by pairs':>9}"
    )
    for row in rows:
        print(
            f"{row['placer']:<20} {row['seconds']:>8.3f} {row['placed']:>7} {row['nodes']:>6} "
            f"{row['hard_violations']:>16} {row['cores_above_capacity']:>21.1f} {row['network_cost']:>13.4f} "
            f"{row['network_cost_by_pairs']:>9.4f}"
        )


def generated(threads: int, nodes: int, seed: int = 0) -> Work:
    """A cluster of three kinds of nodes in racks of 40, and pipelines of about 500 threads that fill some 60 % of it
    when there are ten threads per node."""
    draw = random.Random(seed)  # noqa: S311 - a bench wants the same clusters every time, not secrets
    kinds = [(3600.0, 178000.0), (2400.0, 118000.0), (1200.0, 42500.0)]
    made = []
    for index in range(nodes):
        cpu, memory = kinds[(index // 40) % 3]
        made.append(Node(f"n{index}", f"r{index // 40}", 50, {"cpu": cpu, "memory_mb": memory}))
    requests: list[tuple[PlacementRequest, int]] = []
    left = threads
    while left > 0:
        count = draw.randint(2, 20)
        operators = []
        for index in range(count):
            share = min(left, draw.choice([1, 5, 20, 100]))
            if share:
                demand = (draw.choice([50.0, 100.0, 200.0]), draw.choice([512.0, 2048.0, 4096.0]))
                operators.append(OperatorRequest(f"o{index}", share, demand))
                left -= share
        streams = tuple((draw.randrange(index), index) for index in range(1, len(operators)))
        requests.append((PlacementRequest(f"p{len(requests)}", tuple(operators), streams, (0,), 16384.0), 1))
    return Cluster(tuple(made)), requests


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Slope of log(time) over log(size), by least squares."""
    return float(np.polyfit([log(size) for size in sizes], [log(t) for t in times], 1)[0])


def scaling(repeat: int) -> list[dict[str, Any]]:
    """Threads: 12,500 to 100,000 on 10,000 nodes; nodes: 1,250 to 10,000 for 10,000 threads."""
    rows = []
    for name in SCALED:
        for what, works in (
            ("threads", [generated(size, 10_000) for size in SIZES]),
            ("nodes", [generated(10_000, size // 10) for size in SIZES]),
        ):
            times = [seconds(work, PLACERS[name], repeat) for work in works]
            rows.append({"placer": name, "grows_with": what, "seconds": times, "exponent": exponent(SIZES, times)})
    return rows


def show_scaling(rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{'placer':<12} {'grows with':<12} " + " ".join(f"{'x' + str(2**i):>9}" for i in range(4)) + "  exponent")
    for row in rows:
        times = " ".join(f"{t:>8.3f}s" for t in row["seconds"])
        print(f"{row['placer']:<12} {row['grows_with']:<12} {times}  {row['exponent']:>8.2f}")
    print("threads: 12,500 to 100,000 on 10,000 nodes; nodes: 1,250 to 10,000 for 10,000 threads.")
    print(f"Peak {peak_mb():.0f} MB.")


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    shipped = str(files("penstock.workloads") / "clusters" / "yahoo-1312-nodes.json")
    parser.add_argument(
        "cluster", nargs="?", default=shipped, help="a cluster file with pipelines (default: the shipped one)"
    )
    parser.add_argument("--part", type=float, default=1.0, help="take only the first nodes, this share (default 1)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--skip-scaling", action="store_true", help="only the table")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    options = parser.parse_args(arguments)
    whole = read_whole_cluster(Path(options.cluster))
    nodes = whole.cluster.nodes[: round(options.part * len(whole.cluster.nodes))]
    work = Cluster(nodes, whole.cluster.dimensions), list(whole.requests)
    rows = compare(work, options.repeat)
    growth = [] if options.skip_scaling else scaling(options.repeat)
    if options.json:
        print(json.dumps({"nodes": len(nodes), "placers": rows, "scaling": growth, "peak_mb": peak_mb()}, indent=1))
        return
    show(work, rows)
    if growth:
        show_scaling(growth)


if __name__ == "__main__":
    main(sys.argv[1:])
