"""Every sharing policy: how often it misses what it should keep, and how its time and memory grow.

    python bench/share_cluster.py [--cases N] [--skip-scaling] [--repeat N]

First random clusters whose nodes suffice for all minima but not for all that is desired, then clusters that are too
small for the minima, decided again and again. Then CPU seconds and memory of one decision, hand-over of the nodes
included.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tracemalloc
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

import numpy as np

from penstock.planning.registry import SHARERS
from penstock.planning.sharing.contract import Divides, Tenant, Tenants
from penstock.planning.sharing.share import Moves, hand_over, share_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 30
SECONDS_PER_ROUND = 300.0
SIZES = (1_250, 2_500, 5_000, 10_000)


def random_pipelines(draw: random.Random) -> list[Tenant]:
    """Two to eight, desiring 1 to 16 nodes, the minimum anywhere below that, in three levels."""
    made = []
    for number in range(draw.randint(2, 8)):
        desired = draw.randint(1, 16)
        made.append(Tenant(f"p{number}", desired, draw.randint(1, desired), draw.randint(1, 3)))
    return made


def random_case(draw: random.Random, *, scarce: bool) -> Tenants:
    """Nodes between all minima and all that is desired; `scarce`: between the largest minimum and all minima."""
    while True:
        everyone = random_pipelines(draw)
        needed, wanted = sum(t.minimum for t in everyone), sum(t.desired for t in everyone)
        low, high = (max(t.minimum for t in everyone), needed - 1) if scarce else (needed, wanted - 1)
        if low <= high:
            return Tenants.of(draw.randint(low, high), everyone, 2)


def quality(cases: int) -> None:
    print(f"{cases} random clusters with nodes for all minima, not for all that is desired")
    print(
        f"{'policy':<18} {'a minimum missed':>17} {'starved':>8} {'nodes wasted':>13} {'Jain':>6} {'fairness':>9} "
        f"{'level 1 : 3':>12}"
    )
    for name in SHARERS.names():
        draw, sharer = random.Random(1), SHARERS.create(name)  # noqa: S311 - the same cases for everybody
        missed = starved = wasted = 0
        jains: list[float] = []
        degrees: list[float] = []
        high: list[float] = []
        low: list[float] = []
        for _ in range(cases):
            found = share_cluster(random_case(draw, scarce=False), sharer)
            missed += found.measures.minima_missed > 0
            starved += found.measures.starved > 0
            wasted += found.measures.unused > 0
            jains.append(found.measures.jain)
            degrees.append(found.measures.fairness)
            for tenant in found.tenants.pipelines:
                part = found.nodes[tenant.name] / tenant.desired
                if tenant.priority in (1, 3):
                    (high if tenant.priority == 1 else low).append(part)
        ratio = f"{np.mean(high):.2f} : {np.mean(low):.2f}"
        print(
            f"{name:<18} {missed:>17} {starved:>8} {wasted:>13} {np.mean(jains):>6.3f} {np.mean(degrees):>9.3f} "
            f"{ratio:>12}"
        )


def waiting(cases: int) -> None:
    """Those who wait age, those who get their minimum do not; waits are counted in rounds."""
    print(f"\n{cases} random clusters too small for all minima, decided {ROUNDS} times, every {SECONDS_PER_ROUND:g} s")
    print(f"{'policy':<18} {'never ran':>10} {'of':>6} {'longest wait':>13} {'nodes given in vain':>20}")
    for name in SHARERS.names():
        draw, sharer = random.Random(2), SHARERS.create(name)  # noqa: S311 - the same cases for everybody
        never = total = longest = 0
        vain, handed = 0.0, 0.0
        for _ in range(cases):
            asked = random_case(draw, scarce=True)
            ran: set[str] = set()
            for _ in range(ROUNDS):
                found = sharer.share(asked)
                aged = []
                for tenant in asked.pipelines:
                    share = found.nodes[tenant.name]
                    handed += share
                    if tenant.name in found.waiting:
                        vain += share
                        aged.append(replace(tenant, waited=tenant.waited + SECONDS_PER_ROUND))
                        longest = max(longest, int(aged[-1].waited // SECONDS_PER_ROUND))
                    else:
                        ran.add(tenant.name)
                        aged.append(replace(tenant, waited=0.0))
                asked = replace(asked, pipelines=tuple(aged))
            never += len(asked.pipelines) - len(ran)
            total += len(asked.pipelines)
        print(f"{name:<18} {never:>10} {total:>6} {longest:>13} {vain / handed:>19.1%}")


def moves(cases: int) -> None:
    """A running cluster, and one pipeline that desires something else: threads moved by either way to move."""
    print(f"\n{cases} running clusters in which one pipeline changes what it desires: threads moved")
    print(f"{'policy':<18} {'running':>9} {'published':>10} {'fewest':>8}")
    for name in SHARERS.names():
        sharer = SHARERS.create(name)
        if sharer.divides is not Divides.NODES:
            continue
        draw = random.Random(3)  # noqa: S311 - the same cases for everybody
        running, moved = 0, dict.fromkeys(Moves, 0)
        for _ in range(cases):
            asked = random_case(draw, scarce=False)
            before = share_cluster(asked, sharer)
            assert before.handed is not None
            asked = before.handed.after(asked)
            running += sum(len(row) for held in before.handed.holdings.values() for row in held.layout.values())
            changed = draw.randrange(len(asked.pipelines))
            everyone = list(asked.pipelines)
            one = everyone[changed]
            everyone[changed] = replace(
                one, desired=draw.randint(one.minimum, 16), workers=asked.workers(one), threads=asked.threads(one)
            )
            asked = replace(asked, pipelines=tuple(everyone))
            shares = sharer.share(asked)
            for way in Moves:
                moved[way] += hand_over(asked, shares.nodes, sharer, way, shares.takers).moved_threads
        print(f"{name:<18} {running:>9} {moved[Moves.PUBLISHED]:>10} {moved[Moves.FEWEST]:>8}")


def large(size: int, seed: int = 0) -> Tenants:
    """`size` pipelines on `size` nodes, in ten levels, half of them with declared demands, all of them running."""
    draw = random.Random(seed)  # noqa: S311 - a bench wants the same clusters every time, not secrets
    everyone = []
    for number in range(size):
        desired = draw.randint(1, 5)
        resources = {"cpu": draw.choice([50.0, 100.0, 200.0]), "memory_mb": draw.choice([1024.0, 7168.0])}
        everyone.append(
            Tenant(
                f"p{number}",
                desired,
                1 if draw.random() < 0.95 else min(2, desired),
                draw.randint(1, 10),
                waited=draw.choice([0.0, 0.0, 700.0]),
                resources=resources if number % 2 else None,
                current=(f"n{number + 1}",),
            )
        )
    return Tenants.of(size, everyone, 2)


def exponent(times: Sequence[float]) -> float:
    """Slope of log(time) over log(size), by least squares."""
    return float(np.polyfit([log(size) for size in SIZES], [log(t) for t in times], 1)[0])


def scaling(repeat: int) -> None:
    print("\nas many pipelines as nodes, CPU seconds (best of runs) and peak memory of the largest")
    print(f"{'policy':<18} " + " ".join(f"{size:>9,}" for size in SIZES) + f" {'exponent':>9} {'MB':>6}")
    works = [large(size) for size in SIZES]
    for name in SHARERS.names():
        sharer = SHARERS.create(name)
        times = []
        for work in works:
            runs = []
            for _ in range(repeat):
                start = time.process_time()
                share_cluster(work, sharer)
                runs.append(time.process_time() - start)
            times.append(min(runs))
        tracemalloc.start()
        share_cluster(works[-1], sharer)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        row = " ".join(f"{seconds:>8.3f}s" for seconds in times)
        print(f"{name:<18} {row} {exponent(times):>9.2f} {peak:>6.1f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000, help="random clusters per table (default 2000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--skip-scaling", action="store_true", help="only the tables of quality")
    parser.add_argument("--only-scaling", action="store_true", help="only time and memory")
    options = parser.parse_args(arguments)
    if not options.only_scaling:
        quality(options.cases)
        waiting(options.cases // 4)
        moves(options.cases // 4)
    if not options.skip_scaling:
        scaling(options.repeat)


if __name__ == "__main__":
    main(sys.argv[1:])
