"""Plan fleets of pipelines online for a day, for every placer; time single passes on large clusters.

    ./run bench online [--json] [--placer NAME] [--pipelines 200] [--seed 0]

A day is simulated in steps of ten minutes. Loads follow the time of day and jump at random, nodes die and come back,
shares of slots change with priorities. After each pass memory is checked node by node. Now and then the same fleet is
planned from scratch on the same nodes.

* memory_violations: nodes with more memory demanded than they have, over all passes
* moved_share: threads that moved / threads that had to (their node died)
* rate_kept: the sum of the rates kept / the sum of those kept when all is planned from scratch
* pass_s_AxB: seconds of one pass with A pipelines on B nodes in which one in twenty changed
* step_s_AxB: seconds of one step of the controller's core with such a pass: needs, shares, plans, decisions and orders
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import replace
from types import MappingProxyType

import numpy as np

import penstock
from penstock.cluster.topology import CPU, MEMORY, Node
from penstock.control.core.messages import Amend, NodeLost, Submit, TimePassed
from penstock.control.core.orders import orders
from penstock.control.core.records import (
    ControllerState,
    EngineName,
    NodePhase,
    NodeRecord,
    Policy,
    ServiceTarget,
    Submission,
)
from penstock.control.core.step import step
from penstock.control.pipeline_document import described
from penstock.control.sizing import ModelSizing
from penstock.inputs.finders import find_models, find_pipeline
from penstock.modelling.library import reference_library
from penstock.planning.registry import PLACERS
from penstock.planning.replanning.online import plan_pass
from penstock.planning.replanning.snapshot import FUSED, FleetSnapshot, OnlinePipeline, PassOutcome, PlanDecision

STEPS = 144
SCRATCH_EVERY = 36
LOST_NODES_A_DAY = 1.0
CHANGED = 0.1
ALLOCATOR_OF = {"joint": "joint", "packing": "profiled", "metis": "per-node"}
DAGS = ("linear", "diamond", "star")


def nodes(count: int, random: np.random.Generator) -> list[Node]:
    """Return nodes of three sizes in racks of twenty."""
    sizes = ((4, 16_384.0), (8, 28_672.0), (16, 32_768.0))
    chosen = random.integers(len(sizes), size=count).tolist()
    return [
        Node(f"n{n}", f"r{n // 20}", slots, {CPU: 100.0 * slots, MEMORY: memory})
        for n, (slots, memory) in enumerate(sizes[size] for size in chosen)
    ]


def declared(memory_mb: float) -> penstock.Pipeline:
    """Return a pipeline with declared demands, whose middle needs memory."""
    return (
        penstock.pipeline("declared")
        .source("s", threads=1, cpu=10, memory_mb=128)
        .then("wide", threads=3, cpu=60, memory_mb=memory_mb)
        .sink("k", threads=1, cpu=10, memory_mb=128)
        .build()
    )


def fleet(count: int, placer: str, random: np.random.Generator) -> list[OnlinePipeline]:
    """Return pipelines of several kinds; those a placer cannot place with its allocator are left out."""
    library = find_models(None)
    dags = [find_pipeline(name) for name in DAGS]
    memories = [declared(memory) for memory in (512.0, 2048.0, 6000.0)]
    made = []
    for n in range(count):
        fused = n % 10 == 9
        pipeline = memories[n // 5 % 3] if n % 5 == 4 and not fused else dags[n % 3]
        made.append(
            OnlinePipeline(
                f"p{n}",
                pipeline,
                library,
                float(random.integers(5, 30)),
                allocator=ALLOCATOR_OF.get(placer, "mba"),
                placer=placer,
                engine=FUSED if fused else "placed",
                slot_memory_mb=2048.0 if fused else 3584.0,
            )
        )
    return made


def violations(snapshot: FleetSnapshot, decisions: list[PlanDecision]) -> int:
    """Count nodes whose executors have more memory than they have, counted from the plans alone."""
    axis = next(i for i, dimension in enumerate(snapshot.dimensions) if dimension.name == MEMORY)
    used: dict[str, float] = {}
    for decision in decisions:
        plan = decision.after
        if plan is None:
            continue
        for slot in plan.rows:
            used[slot.node] = used.get(slot.node, 0.0) + float(plan.amount(slot)[axis])
    capacity = {node.name: node.capacity[MEMORY] for node in snapshot.nodes}
    return len([name for name, amount in used.items() if amount > capacity.get(name, 0.0) * (1 + 1e-9)])


def kept_rate(pipelines: list[OnlinePipeline], decisions: list[PlanDecision]) -> float:
    """Return the sum of the rates that are kept, each at most what was asked for."""
    return sum(
        min(pipeline.rate, decision.after.rate) / pipeline.rate
        for pipeline, decision in zip(pipelines, decisions, strict=True)
        if decision.after is not None
    )


def a_day(placer: str, count: int, seed: int) -> dict[str, float]:
    """Run one fleet through a day."""
    random = np.random.default_rng([seed, sorted(PLACERS.names()).index(placer)])
    every = nodes(4 * count, random)
    pipelines = fleet(count, placer, random)
    base = [pipeline.rate for pipeline in pipelines]
    back: dict[str, int] = {}
    figures = dict.fromkeys(("violations", "moved", "required", "kept", "scratch", "waits", "seconds", "slowest"), 0.0)
    for moment in range(STEPS):
        for node in random.choice(len(every), size=random.poisson(LOST_NODES_A_DAY * len(every) / STEPS)).tolist():
            back[every[node].name] = moment + int(random.integers(3, 30))
        alive = [node for node in every if back.get(node.name, -1) < moment]
        swing = 1 + 0.5 * math.sin(2 * math.pi * moment / STEPS)
        for n in random.choice(count, size=max(1, int(CHANGED * count)), replace=False).tolist():
            jump = float(random.choice([0.5, 1.0, 1.0, 1.5]))
            share = int(random.integers(4, 24)) if random.random() < 0.2 else None
            pipelines[n] = replace(pipelines[n], rate=round(base[n] * swing * jump, 1), max_slots=share)
        snapshot = FleetSnapshot(alive, pipelines)
        began = time.perf_counter()
        decisions = plan_pass(snapshot)
        took = time.perf_counter() - began
        figures["seconds"] += took
        figures["slowest"] = max(figures["slowest"], took)
        figures["violations"] += violations(snapshot, decisions)
        figures["moved"] += sum(decision.moves.moved for decision in decisions)
        figures["required"] += sum(decision.required for decision in decisions)
        figures["waits"] += sum(decision.outcome is PassOutcome.WAITS for decision in decisions)
        if moment % SCRATCH_EVERY == SCRATCH_EVERY - 1:
            anew = plan_pass(FleetSnapshot(alive, [replace(pipeline, current=None) for pipeline in pipelines]))
            figures["kept"] += kept_rate(pipelines, decisions)
            figures["scratch"] += kept_rate(pipelines, anew)
        pipelines = [replace(p, current=d.after) for p, d in zip(pipelines, decisions, strict=True)]
    return {
        "memory_violations": figures["violations"],
        "moved_share": figures["moved"] / max(figures["required"], 1.0),
        "rate_kept": figures["kept"] / figures["scratch"] if figures["scratch"] else 1.0,
        "waits_share": figures["waits"] / (STEPS * count),
        "slowest_pass_s": figures["slowest"],
        "day_s": figures["seconds"],
    }


def one_pass(count: int, size: int, seed: int) -> float:
    """Return the seconds of a pass in which one pipeline in twenty changed, placement included."""
    random = np.random.default_rng(seed)
    every = nodes(size, random)
    names = ("sam", "r-storm", "compact", "eft", "packing")
    pipelines = [replace(p, placer=names[n % 5]) for n, p in enumerate(fleet(count, "sam", random))]
    decisions = plan_pass(FleetSnapshot(every, pipelines))
    pipelines = [
        replace(p, current=d.after, rate=p.rate * (1.3 if n % 20 == 0 else 1.0))
        for n, (p, d) in enumerate(zip(pipelines, decisions, strict=True))
    ]
    began = time.perf_counter()
    plan_pass(FleetSnapshot(every[1:], pipelines))
    return time.perf_counter() - began


def one_step(count: int, size: int, seed: int) -> float:
    """Return the seconds of a controller's step after one pipeline in twenty got another target and a node died."""
    random = np.random.default_rng(seed)
    records = {
        node.name: NodeRecord(node.name, node.rack, node.slots, NodePhase.ALIVE, 0.0, node.capacity)
        for node in nodes(size, random)
    }
    state = ControllerState(policy=Policy(placer="r-storm"), unit_slots=1, nodes=MappingProxyType(records))
    sizing = ModelSizing(reference_library(), 1)
    documents = [described(name) for name in DAGS]
    submissions = []
    for number in range(count):
        kind = number % len(DAGS)
        target = ServiceTarget(float(random.integers(10, 60)))
        engine = EngineName.FUSED if number % 4 == 0 else EngineName.PLACED
        given = documents[kind]
        submissions.append(Submit(Submission(f"p{number}", given, given, DAGS[kind], target, engine=engine)))
    made = step(state, submissions, 100.0, sizing)
    changed = [Amend(f"p{number}", target=ServiceTarget(70.0)) for number in range(0, count, 20)]
    began = time.perf_counter()
    after = step(made.state, [NodeLost(next(iter(records))), *changed, TimePassed()], 111.0, sizing)
    list(orders(after.state))
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--placer", action="append", choices=PLACERS.names())
    parser.add_argument("--pipelines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    days = {name: a_day(name, given.pipelines, given.seed) for name in given.placer or PLACERS.names()}
    document = {
        "pass_s_200x2000": one_pass(200, 2_000, given.seed),
        "pass_s_2000x20000": one_pass(2_000, 20_000, given.seed),
        "step_s_200x2000": one_step(200, 2_000, given.seed),
        "step_s_2000x20000": one_step(2_000, 20_000, given.seed),
        "memory_violations": sum(day["memory_violations"] for day in days.values()),
        "moved_share": max(day["moved_share"] for day in days.values()),
        "rate_kept": min(day["rate_kept"] for day in days.values()),
        "placers": days,
    }
    if given.json:
        print(json.dumps(document, indent=1))
        return
    for name, day in days.items():
        print(f"{name:14}", "  ".join(f"{what} {value:.4g}" for what, value in day.items()))
    print("  ".join(f"{what} {value:.4g}" for what, value in document.items() if not isinstance(value, dict)))


if __name__ == "__main__":
    main()
