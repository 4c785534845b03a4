"""Every registered placer on 1,000, 10,000 and 100,000 threads: time, memory, and the exponent of the growth.

    python bench/placers_growth.py [--limit SECONDS] [--placer NAME ...]

Times are seconds of CPU, so that a busy machine shows the same. Each measurement is a process of its own with a time
limit; what takes longer is printed as cut off. Placers of plans
get the bundles of one generated pipeline (an allocation of `mba`) on as many slots as they need; placers of whole
clusters also get generated pipelines of some 500 threads on a cluster that they fill to about 60 %.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal
from penstock.cluster.topology import find_catalogue
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.modelling.library import reference_library
from penstock.planning.placement.contract import Repairs, Room
from penstock.planning.placement.group_placement import one_by_one
from penstock.planning.planner import Planner
from penstock.planning.registry import ALLOCATORS, PLACERS
from penstock.planning.whole_cluster import place_cheaply

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (1_000, 10_000, 100_000)
KINDS = ("plan", "plan of joint", "whole cluster")


def planner() -> Planner:
    """Three operators with the reference models whose bundles are small, middling and large."""
    operators = [Operator(name="source", kind=Kind.SOURCE)]
    operators += [Operator(name=name, model=name) for name in ("azure_table", "azure_blob", "pi")]
    operators += [Operator(name="sink", kind=Kind.SINK)]
    names = [operator.name for operator in operators]
    streams = [Stream(sender=a, receiver=b) for a, b in pairwise(names)]
    return Planner(Pipeline.of("generated", operators, streams), reference_library(), find_catalogue("azure-d"))


def plan(name: str, threads: int, allocator: str) -> tuple[float, str]:
    """CPU seconds of allocating, placing and predicting a plan of about so many threads."""
    made = planner()
    per_rate = sum(o.threads for o in made.allocate(3000.0, ALLOCATORS.create(allocator)).operators) / 3000.0
    start = time.process_time()
    answer = made.plan(threads / per_rate, ALLOCATORS.create(allocator), PLACERS.create(name))
    seconds = time.process_time() - start
    if isinstance(answer, Refusal):
        return seconds, "refused"
    return seconds, f"{answer.slots_asked:,} slots, {100 * (answer.gap or 0.0):.0f} % gap"


def whole_cluster(name: str, threads: int) -> tuple[float, str]:
    from place_whole_cluster import generated  # noqa: PLC0415 - the bench beside this one

    cluster, requests = generated(threads, max(threads // 10, 40))
    placer = PLACERS.create(name)
    start = time.process_time()
    room = Room(cluster, slot_memory_shared=False)
    if isinstance(placer, Repairs):
        placed = len(place_cheaply(placer, requests, room).placements)
    else:
        placed = len(one_by_one(placer, [request for request, _ in requests], room)[0])
    return time.process_time() - start, f"{placed} of {len(requests)} placed"


def measure(kind: str, name: str, threads: int) -> dict[str, object]:
    seconds, note = (
        whole_cluster(name, threads)
        if kind == KINDS[2]
        else plan(name, threads, "joint" if kind == KINDS[1] else "mba")
    )
    return {"seconds": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "note": note}


def in_a_process(kind: str, name: str, threads: int, limit: float) -> dict[str, object] | None:
    """None: cut off."""
    words = [sys.executable, __file__, "--measure", kind, name, str(threads)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return {"seconds": float("nan"), "mb": float("nan"), "note": done.stderr.strip().splitlines()[-1]}
    found: dict[str, object] = json.loads(done.stdout)
    return found


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Slope of log(time) over log(size), by least squares."""
    return float(np.polyfit([log(size) for size in sizes], [log(t) for t in times], 1)[0])


def table(names: Sequence[str], limit: float) -> None:
    head = " ".join(f"{f'{size:,}':>10} {'MB':>5}" for size in SIZES)
    print(f"{'placer':<12} {'kind':<14} {head} {'exponent':>9}  at the largest measured")
    for kind in KINDS:
        for name in names:
            if (kind == KINDS[1] and name != "joint") or (kind == KINDS[2] and not PLACERS.create(name).whole_cluster):
                continue
            cells, sizes, times, note = [], [], [], ""
            for size in SIZES:
                found = in_a_process(kind, name, size, limit)
                if found is None:
                    cells.append(f"{'> ' + format(limit, 'g') + ' s':>10} {'':>5}")
                    note += f"; cut off at {size:,}"
                    break
                seconds, note = float(str(found["seconds"])), str(found["note"])
                cells.append(f"{seconds:>9.3f}s {float(str(found['mb'])):>5.0f}")
                if note != "refused":
                    sizes.append(size)
                    times.append(seconds)
            row = " ".join(cells + [f"{'':>16}"] * (len(SIZES) - len(cells)))
            slope = f"{exponent(sizes, times):>9.2f}" if len(sizes) > 1 else f"{'-':>9}"
            print(f"{name:<12} {kind:<14} {row} {slope}  {note}", flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one measurement (default 120)")
    parser.add_argument("--placer", action="append", help="only this one; may be repeated")
    parser.add_argument("--measure", nargs=3, metavar=("KIND", "NAME", "THREADS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        kind, name, threads = options.measure
        print(json.dumps(measure(kind, name, int(threads))))
        return
    table(options.placer or PLACERS.names(), options.limit)


if __name__ == "__main__":
    main(sys.argv[1:])
