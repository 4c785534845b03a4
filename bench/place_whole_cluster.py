"""Every whole-cluster placer on one cluster file, and how its time and memory grow.

    python bench/place_whole_cluster.py [CLUSTER.json] [--skip-scaling] [--repeat N]

Without a file, the real cluster that ships with Penstock. Times are of placing alone, on one core: choosing slots and
committing them, without reading the file and without the figures of the table.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from importlib.resources import files
from math import log
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.topology import Cluster, Node
from penstock.placement.compact import Compact
from penstock.placement.contract import OperatorRequest, Placement, Request, Room
from penstock.placement.r_storm import RStorm
from penstock.placement.random_feasible import RandomFeasible
from penstock.placement.round_robin import RoundRobin
from penstock.planning.cluster_file import read_whole_cluster
from penstock.planning.whole_cluster import place_all
from plain_r_storm import PlainRStorm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.placement.contract import Placer

Work = tuple[Cluster, list[tuple[Request, int]]]

PLACERS: dict[str, Placer] = {
    "r-storm, plain loop": PlainRStorm(),
    "r-storm": RStorm(),
    "compact": Compact(),
    "round-robin": RoundRobin(),
    "random": RandomFeasible(),
}
SCALED = ("r-storm", "compact")


def seconds(work: Work, placer: Placer, repeat: int) -> float:
    """The best of `repeat` runs."""
    cluster, requests = work
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        room = Room(cluster, slot_memory_shared=False)
        for request, _ in sorted(requests, key=lambda entry: entry[1]):
            answer = placer.place(request, room)
            if isinstance(answer, Placement):
                room.take(answer, {operator.name: operator.demand for operator in request.operators})
        times.append(time.perf_counter() - start)
    return min(times)


def compare(work: Work, repeat: int) -> None:
    cluster, requests = work
    threads = sum(request.threads for request, _ in requests)
    print(f"{len(requests)} pipelines, {threads} threads, {len(cluster.nodes)} nodes")
    print(
        f"{'placer':<20} {'seconds':>8} {'placed':>7} {'nodes':>6} {'hard violations':>16} "
        f"{'cores above capacity':>21} {'network cost':>13}"
    )
    for name, placer in PLACERS.items():
        best = seconds(work, placer, repeat)
        result = place_all(cluster, requests, placer)
        used = result.usage
        print(
            f"{name:<20} {best:>8.3f} {len(result.placements):>7} {used.nodes_used:>6} {used.hard_violations:>16} "
            f"{used.soft_overload.get('cpu', 0.0) / 100:>21.1f} {result.network_cost:>13.4f}"
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
    requests: list[tuple[Request, int]] = []
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
        requests.append((Request(f"p{len(requests)}", tuple(operators), streams, (0,), 16384.0), 1))
    return Cluster(tuple(made)), requests


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Slope of log(time) over log(size), by least squares."""
    return float(np.polyfit([log(size) for size in sizes], [log(t) for t in times], 1)[0])


def scaling(repeat: int) -> None:
    sizes = (12_500, 25_000, 50_000, 100_000)
    print(f"\n{'placer':<12} {'grows with':<12} " + " ".join(f"{'x' + str(2**i):>9}" for i in range(4)) + "  exponent")
    for name in SCALED:
        for what, works in (
            ("threads", [generated(size, 10_000) for size in sizes]),
            ("nodes", [generated(10_000, size // 10) for size in sizes]),
        ):
            times = [seconds(work, PLACERS[name], repeat) for work in works]
            row = " ".join(f"{t:>8.3f}s" for t in times)
            print(f"{name:<12} {what:<12} {row}  {exponent(sizes, times):>8.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"threads: 12,500 to 100,000 on 10,000 nodes; nodes: 1,250 to 10,000 for 10,000 threads. Peak {peak:.0f} MB.")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    shipped = str(files("penstock.workloads") / "clusters" / "yahoo-1312-nodes.json")
    parser.add_argument(
        "cluster", nargs="?", default=shipped, help="a cluster file with pipelines (default: the shipped one)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--skip-scaling", action="store_true", help="only the table")
    options = parser.parse_args(arguments)
    whole = read_whole_cluster(Path(options.cluster))
    compare((whole.cluster, list(whole.requests)), options.repeat)
    if not options.skip_scaling:
        scaling(options.repeat)


if __name__ == "__main__":
    main(sys.argv[1:])
