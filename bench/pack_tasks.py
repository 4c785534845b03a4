"""How long P-Deployer's packing takes, and how its time and memory grow with threads.

    python bench/pack_tasks.py [--repeat N] [--operators K ...]

Chains of K operators whose threads talk all to all; half the CPU of a thread is moving tuples. Machines of 16 cores, as
many as the threads fill when nothing is co-located. Times are CPU seconds of placing alone.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import tracemalloc
from math import log
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.topology import Cluster, Node
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Room
from penstock.planning.placement.placers.packing import Packing

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (1_000, 10_000, 100_000)
RATE = 1000.0
SLOTS = 16


def generated(threads: int, operators: int, seed: int = 0) -> tuple[PlacementRequest, Cluster]:
    """A chain of so many threads in all, as evenly as can be, and machines for it."""
    draw = random.Random(seed)  # noqa: S311 - a bench wants the same threads every time, not secrets
    counts = [threads // operators + (index < threads % operators) for index in range(operators)]
    streams = tuple((index, index + 1) for index in range(operators - 1))
    wanted = []
    for index, count in enumerate(counts):
        local, memory = draw.uniform(5, 40), draw.uniform(50, 800)
        moved = RATE / count * ((index > 0) + (index < operators - 1))
        moving = local / moved if moved else 0.0
        demand = (local + moving * moved, memory)
        wanted.append(OperatorRequest(f"o{index}", count, demand, local_cpu=local, moving_cpu=moving))
    request = PlacementRequest("chain", tuple(wanted), streams, (0,), rates=(RATE,) * len(streams))
    cpu = sum(operator.threads * operator.demand[0] for operator in wanted)
    nodes = int(cpu / (100 * SLOTS) * 1.1) + 1
    capacity = {"cpu": 100.0 * SLOTS, "memory_mb": 3584.0 * SLOTS}
    return request, Cluster(tuple(Node(f"n{index}", "r1", SLOTS, capacity) for index in range(nodes)))


def seconds(request: PlacementRequest, cluster: Cluster, repeat: int) -> tuple[float, Placement]:
    """The best of `repeat` runs, and the placement."""
    times = []
    placements = []
    for _ in range(repeat):
        room = Room(cluster, slot_memory_shared=True)
        start = time.process_time()
        answer = Packing().place(request, room)
        times.append(time.process_time() - start)
        assert isinstance(answer, Placement), answer
        placements.append(answer)
    return min(times), placements[0]


def exponent(times: Sequence[float]) -> float:
    """Slope of log(time) over log(threads), by least squares."""
    return float(np.polyfit([log(size) for size in SIZES], [log(t) for t in times], 1)[0])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--operators", type=int, nargs="+", default=[10, 100, 1000], help="operators in the chain")
    options = parser.parse_args(arguments)
    print(f"{'operators':>9} {'threads':>8} {'seconds':>8} {'us/thread':>10} {'MB':>6} {'nodes':>6}")
    for operators in options.operators:
        times = []
        for threads in SIZES:
            request, cluster = generated(threads, operators)
            took, answer = seconds(request, cluster, options.repeat)
            times.append(took)
            tracemalloc.start()
            Packing().place(request, Room(cluster, slot_memory_shared=True))
            held = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            used = len({bundle.slot.node for bundle in answer.bundles})
            print(
                f"{operators:>9} {threads:>8} {took:>8.3f} {1e6 * took / threads:>10.1f} {held:>6.1f} {used:>6}",
                flush=True,
            )
        print(f"{operators:>9} exponent {exponent(times):.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak of the whole process {peak:.0f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
