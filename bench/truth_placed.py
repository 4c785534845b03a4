"""Predicted against measured for placed plans, on a cluster of this machine.

    ./run bench truth_placed [--models FILE] [--budget SECONDS] [--seconds S] [--runs FILE] [--json]

Operators that wait, that compute, and that do a little are profiled first (alone, fused, as `penstock profile` does),
unless --models has them. Then pipelines made of them are planned by several pairs of policies for several rates, on two
nodes of two slots; plans that come to the same are run once. Every plan runs twice, placed, on executors all share:
offered more than it can do (sustained rate beside predicted) and at a part of it (median latency). CPU and memory of
every slot stand beside what was predicted of it in both.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from penstock.base.clock import pause
from penstock.base.errors import PenstockError
from penstock.cluster.cores import cores_here
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.engines.placed.engine import placed_session
from penstock.engines.placed.preparation import prepare_placed
from penstock.runs.config import RunConfig
from penstock.spark.clusters.local.lifecycle import running_cluster
from truth import print_figures, r_squared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.spark.clusters.local.state import RunningCluster

SCHEMA = "value bigint"
SHAPES = (("ask", "parse"), ("look", "spin"), ("spin",), ("parse", "ask", "look"), ("look", "parse"))
PAIRS = ("mba+sam", "lsa+round-robin", "mba+r-storm")
RATES = (60.0, 150.0, 400.0)
OVERLOAD, PART_LOAD = 1.4, 0.6
MOST_PLANS = 10
SLOTS = 4


def ask(row: dict[str, Any]) -> dict[str, Any]:
    pause(0.02)
    return row


def look(row: dict[str, Any]) -> dict[str, Any]:
    pause(0.005)
    return row


def spin(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": sum(row["value"] % number for number in range(1, 12_000))}


def parse(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": int(json.loads(json.dumps({"value": row["value"], "more": list(range(100))}))["value"])}


CODE = {"ask": ask, "look": look, "spin": spin, "parse": parse}


def chain(*names: str) -> Pipeline:
    """One name for all, so that a model of an operator is that of any of them."""
    operators = [
        Operator(name="source", kind=Kind.SOURCE),
        *(Operator(name=name, logic=Logic(CODE[name], schema=SCHEMA)) for name in names),
        Operator(name="sink", kind=Kind.SINK),
    ]
    every = ["source", *names, "sink"]
    return Pipeline.of("truth", operators, [Stream(sender=a, receiver=b) for a, b in pairwise(every)])


@dataclass(frozen=True)
class PlacedCase:
    shape: str
    pair: str
    planned_rate: float
    placement: dict[str, dict[str, int]]
    saturated: bool
    predicted_rate: float
    measured_rate: float
    predicted_cpu: dict[str, float]
    measured_cpu: dict[str, float]
    predicted_mb: dict[str, float]
    measured_mb: dict[str, float]
    predicted_p50_ms: float | None
    measured_p50_ms: float | None

    @property
    def error(self) -> float:
        return self.predicted_rate / self.measured_rate - 1 if self.measured_rate else float("inf")


def plans(cluster: RunningCluster, models: Path) -> Iterator[tuple[Pipeline, str, penstock.Plan]]:
    """Different ones, of every shape in turn."""
    waiting = []
    for shape in SHAPES:
        seen, own = set(), []
        for pair in PAIRS:
            allocator, placer = pair.split("+")
            for rate in RATES:
                try:
                    plan = penstock.plan(
                        chain(*shape),
                        rate,
                        models=models,
                        cluster=cluster.cluster_file,
                        allocator=allocator,
                        placer=placer,
                    )
                except PenstockError:
                    continue  # for more than two nodes
                key = json.dumps(plan.document()["placement"], sort_keys=True)
                if key not in seen and len(plan.document()["placement"]) <= SLOTS:
                    seen.add(key)
                    own.append((chain(*shape), pair, plan))
        waiting.append(own)
    for number in range(max(map(len, waiting))):
        yield from (own[number] for own in waiting if number < len(own))


def run(
    pipeline: Pipeline, pair: str, plan: penstock.Plan, models: Path, seconds: float, folder: Path, session: Any, *,
    saturated: bool,
) -> PlacedCase:  # fmt: skip
    job = prepare_placed(plan, RunConfig(models=models), pipeline)
    highest = job.forecast(cores_here()).max_rate
    able = highest.value if highest is not None else 1.0
    offered = (OVERLOAD if saturated else PART_LOAD) * able
    result = penstock.run(
        plan,
        offered,
        engine="placed",
        seconds=seconds,
        warm_up=seconds / 3,
        models=models,
        folder=folder,
        given=pipeline,
        session=session,
    )
    report = result.report
    if report.audit.lost or report.audit.duplicated:
        sys.exit(f"{folder.name}: lost {report.audit.lost}, duplicated {report.audit.duplicated}")
    both = [slot for slot in result.predicted_slots if slot in report.slots]
    return PlacedCase(
        "-".join(list(pipeline.operators)[1:-1]),
        pair,
        plan.rate,
        {f"{row['node']}/{row['slot']}": row["threads"] for row in plan.document()["placement"]},
        saturated,
        able if saturated else offered,
        report.sustained_rate,
        {str(slot): result.predicted_slots[slot][0] for slot in both},
        {str(slot): report.slots[slot][0] for slot in both},
        {str(slot): result.predicted_slots[slot][1] for slot in both},
        {str(slot): report.slots[slot][1] for slot in both},
        None if saturated else result.predicted_latency_ms["p50"],
        None if saturated else report.latency_ms["p50"],
    )


def shown(case: PlacedCase) -> str:
    cpu = " ".join(
        f"{slot} {case.predicted_cpu[slot]:.2f} {case.measured_cpu[slot]:.2f}" for slot in case.predicted_cpu
    )
    memory = f"{sum(case.predicted_mb.values()):,.0f} {sum(case.measured_mb.values()):,.0f} MB"
    latency = (
        "" if case.predicted_p50_ms is None else f"  p50 {case.predicted_p50_ms:.0f} {case.measured_p50_ms:.0f} ms"
    )
    return (
        f"{case.shape:16} {case.pair:16} {case.planned_rate:5.0f} {'full' if case.saturated else 'part':4} rate "
        f"{case.predicted_rate:8,.1f} {case.measured_rate:8,.1f} ({100 * case.error:+5.1f} %)  cpu {cpu}"
        f"  {memory}{latency}"
    )


def figures_of(cases: Sequence[PlacedCase]) -> dict[str, float]:
    full = [case for case in cases if case.saturated]
    cpu = [(case.predicted_cpu[slot], case.measured_cpu[slot]) for case in cases for slot in case.predicted_cpu]
    memory = [(case.predicted_mb[slot], case.measured_mb[slot]) for case in cases for slot in case.predicted_mb]
    errors = [abs(case.error) for case in full]
    return {
        "plans": len(full),
        "rate_within_10_percent": float(np.mean([error <= 0.1 for error in errors])),
        "rate_error_median": float(np.median(errors)),
        "rate_r2": r_squared([case.predicted_rate for case in full], [case.measured_rate for case in full]),
        "cpu_r2": r_squared(*zip(*cpu, strict=True)),
        "cpu_of_runs_r2": r_squared(
            [sum(case.predicted_cpu.values()) for case in cases], [sum(case.measured_cpu.values()) for case in cases]
        ),
        "memory_error_median": float(np.median([abs(p / m - 1) for p, m in memory])),
        "load_average": os.getloadavg()[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of profiling for each operator")
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--plans", type=int, default=MOST_PLANS, help="at most")
    parser.add_argument("--runs", type=Path, help="a file for every run, as JSON")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cases: list[PlacedCase] = []
    with tempfile.TemporaryDirectory(prefix="penstock-truth-") as home:
        models = given.models or Path(home) / "models.json"
        if not models.exists():
            penstock.profile(chain(*CODE), models, budget_seconds=given.budget, quick=True)
        with running_cluster(2, 2, folder=Path(home) / "cluster", memory_mb=768) as cluster:
            os.environ["PENSTOCK_STATE"] = str(cluster.folder)
            with placed_session("truth") as session:
                for number, (pipeline, pair, plan) in enumerate(plans(cluster, models)):
                    if number >= given.plans:
                        break
                    for saturated in (True, False):
                        folder = Path(home) / f"run-{number}-{int(saturated)}"
                        cases.append(
                            run(pipeline, pair, plan, models, given.seconds, folder, session, saturated=saturated)
                        )
                        print(shown(cases[-1]), file=sys.stderr if given.json else sys.stdout, flush=True)
                    if given.runs is not None:
                        given.runs.write_text(json.dumps([asdict(case) for case in cases], indent=1), encoding="utf-8")
    print_figures(figures_of(cases), as_json=given.json)


if __name__ == "__main__":
    main()
