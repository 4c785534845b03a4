"""Earliest finish time, as published and with its weaknesses mended, over random cases; and how its time grows.

    python bench/eft_quality.py [--cases N] [--seed S] [--skip-scaling]

A case is a random acyclic graph of 5 to 30 vertices on 2 to 8 machines of power 1 to 3, with moving as dear as a tenth
of computing, as dear, or three times as dear. `append` is the published rule, `insertion` the same with gaps filled,
`balanced` what the placer `balanced-eft` does. Makespan: when one second's work is done. Bottleneck: the highest load
of a machine, which decides the rate. Rescheduling: the work of every vertex
changes by up to half and a machine is lost.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import replace
from math import log
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.topology import Cluster, Node
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Room
from penstock.planning.placement.placers.balanced_eft import BalancedEft, best_schedule, least_bottleneck
from penstock.planning.placement.placers.eft import Eft
from penstock.planning.placement.placers.eft_schedule import (
    Gaps,
    Instances,
    Machines,
    Queue,
    Rules,
    Schedule,
    Tasks,
    Transfer,
    schedule,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import Placer

Held = dict[tuple[int, int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def case(draw: random.Random) -> tuple[Tasks, Machines]:
    count = draw.randint(5, 30)
    dear = draw.choice([0.1, 1.0, 3.0])
    vertices = tuple((Instances(1, draw.uniform(0.1, 2.0)),) for _ in range(count))
    transfers = [
        Transfer(sender, receiver, seconds=draw.uniform(0, 2) * dear)
        for receiver in range(1, count)
        for sender in draw.sample(range(receiver), min(receiver, draw.randint(1, 3)))
    ]
    nodes = draw.randint(2, 8)
    power = np.array([draw.choice([1.0, 1.0, 2.0, 3.0]) for _ in range(nodes)])
    return Tasks(vertices, tuple(transfers)), Machines(np.arange(nodes), power, np.ones(nodes), np.zeros(nodes))


class OpenFloor:
    """Room for everything; the power left does not change."""

    def __init__(self, left: NDArray[np.float64]) -> None:
        self.left = left

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        return np.ones(len(self.left), dtype=bool)

    def take(self, vertex: int, kind: int, machine: int) -> None:
        """Nothing is used up."""


def append(tasks: Tasks, machines: Machines, current: Held) -> Schedule:
    return _whole(schedule(tasks, machines, OpenFloor(machines.power), Queue(machines.idle), Rules(current=current)))


def insertion(tasks: Tasks, machines: Machines, current: Held) -> Schedule:
    return _whole(schedule(tasks, machines, OpenFloor(machines.power), Gaps(machines.idle), Rules(current=current)))


def balanced(options: BalancedEft) -> Callable[[Tasks, Machines, Held], Schedule]:
    def run(tasks: Tasks, machines: Machines, current: Held) -> Schedule:
        return _whole(best_schedule(tasks, machines, lambda: OpenFloor(machines.power), current, options)[0])

    return run


def _whole(found: object) -> Schedule:
    assert isinstance(found, Schedule)
    return found


SCHEDULERS: dict[str, Callable[[Tasks, Machines, Held], Schedule]] = {
    "append": append,
    "insertion": insertion,
    "balanced": balanced(BalancedEft()),
    "balanced:slack=100": balanced(BalancedEft(slack=100)),
    "balanced:migration=0.5": balanced(BalancedEft(migration=0.5)),
}


def held(found: Schedule, machines: Machines) -> Held:
    """Where everything runs now."""
    table: Held = {}
    for each in found.assigned:
        table[each.vertex, each.kind] = np.zeros(len(machines))
        table[each.vertex, each.kind][each.machine] = 1.0
    return table


def quality(cases: int, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a bench wants the same cases every time, not secrets
    drawn = [case(draw) for _ in range(cases)]
    found = {name: [run(*each, {}) for each in drawn] for name, run in SCHEDULERS.items()}
    print(f"{cases} random cases, against append-only (published)")
    print(f"{'':<22} {'makespan':>26} {'mean':>6} {'bottleneck':>26} {'mean':>6} {'above least possible':>21}")
    least = [least_bottleneck(*each) for each in drawn]
    for name, rows in found.items():
        if "migration" in name:
            continue
        spans = [(row.makespan, base.makespan) for row, base in zip(rows, found["append"], strict=True)]
        loads = [(row.bottleneck, base.bottleneck) for row, base in zip(rows, found["append"], strict=True)]
        above = mean(row.bottleneck / bound for row, bound in zip(rows, least, strict=True)) - 1
        print(
            f"{name:<22} {_counts(spans):>26} {_ratio(spans):>6.3f} {_counts(loads):>26} {_ratio(loads):>6.3f} "
            f"{above:>20.1%}"
        )
    rescheduled(drawn, random.Random(seed + 1))  # noqa: S311 - as above


def _counts(pairs: Sequence[tuple[float, float]]) -> str:
    better = sum(a < b * (1 - 1e-9) for a, b in pairs)
    worse = sum(a > b * (1 + 1e-9) for a, b in pairs)
    return f"{better} better, {worse} worse"


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return mean(a / b for a, b in pairs)


def rescheduled(drawn: Sequence[tuple[Tasks, Machines]], draw: random.Random) -> None:
    print(f"\nrescheduled after a change: {'moved':>10} {'of':>6} {'bottleneck':>11} {'makespan':>9}")
    changes = [([draw.uniform(0.5, 1.5) for _ in tasks.vertices], draw.randrange(len(m))) for tasks, m in drawn]
    base: list[Schedule] = []
    for name in ("append", "balanced", "balanced:migration=0.5"):
        run = SCHEDULERS[name]
        moved = vertices = 0
        after: list[Schedule] = []
        for (tasks, machines), (factors, lost) in zip(drawn, changes, strict=True):
            now = held(run(tasks, machines, {}), machines)
            kept = np.delete(np.arange(len(machines)), lost)
            fewer = Machines(np.arange(len(kept)), machines.power[kept], machines.bandwidth[kept], machines.idle[kept])
            grown = replace(
                tasks,
                vertices=tuple(
                    (Instances(1, kinds[0].work * factor),)
                    for kinds, factor in zip(tasks.vertices, factors, strict=True)
                ),
            )
            current = {key: row[kept] for key, row in now.items()}
            after.append(run(grown, fewer, current))
            moved += len(after[-1].moved(current))
            vertices += len(tasks.vertices)
        base = base or after
        load = mean(row.bottleneck / b.bottleneck for row, b in zip(after, base, strict=True))
        span = mean(row.makespan / b.makespan for row, b in zip(after, base, strict=True))
        print(f"{name:<27} {moved:>10} {vertices:>6} {load:>11.3f} {span:>9.3f}")


def generated(threads: int, nodes: int, *, planned: bool) -> tuple[list[PlacementRequest], Cluster]:
    """Ten operators in a chain with branches: one large pipeline on nodes of 8 slots, or many of 20 threads each."""
    capacity = {"cpu": 3200.0, "memory_mb": 128_000.0}
    slots = 8 if planned else 50
    cluster = Cluster(tuple(Node(f"n{i}", f"r{i // 40}", slots, capacity) for i in range(nodes)))
    size = threads // 10 if planned else 20
    operators = tuple(OperatorRequest(f"o{i}", size, (25.0, 500.0)) for i in range(10))
    streams = tuple((max(0, i - 1 - i % 2), i) for i in range(1, 10))
    traffic = tuple(1e4 * i for i in range(1, 10))
    count = 1 if planned else threads // 200
    return [PlacementRequest(f"p{i}", operators, streams, (0,), traffic=traffic) for i in range(count)], cluster


def seconds(placer: Placer, requests: Sequence[PlacementRequest], cluster: Cluster, *, planned: bool) -> float:
    start = time.process_time()
    room = Room(cluster, slot_memory_shared=planned)
    for request in requests:
        answer = placer.place(request, room)
        assert isinstance(answer, Placement), str(answer)
        room.take(answer, {operator.name: operator.demand for operator in request.operators})
    return time.process_time() - start


def scaling() -> None:
    sizes = (1_000, 10_000, 100_000)
    print(f"\n{'placer':<14} {'what':<42} " + " ".join(f"{size:>9,}" for size in sizes) + "  exponent")
    shapes: list[tuple[str, bool, Callable[[int], int]]] = [
        ("whole cluster of 2,000 nodes", False, lambda threads: 2_000),
        ("whole cluster of threads / 50 nodes", False, lambda threads: max(20, threads // 50)),
        ("one plan, a slot for every 2 threads", True, lambda threads: threads // 16),
    ]
    for placer in (Eft(), BalancedEft()):
        for what, planned, nodes in shapes:
            times = [seconds(placer, *generated(size, nodes(size), planned=planned), planned=planned) for size in sizes]
            slope = np.polyfit([log(size) for size in sizes], [log(took) for took in times], 1)[0]
            print(f"{placer.name:<14} {what:<42} " + " ".join(f"{took:>8.3f}s" for took in times) + f"  {slope:>8.2f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-scaling", action="store_true")
    options = parser.parse_args(arguments)
    quality(options.cases, options.seed)
    if not options.skip_scaling:
        scaling()


if __name__ == "__main__":
    main(sys.argv[1:])
