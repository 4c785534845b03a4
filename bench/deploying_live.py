"""The deployment loop on Spark, and what packing saves with measured profiles.

    ./run bench deploying_live [--case NAME]... [--models FILE] [--stabilise S] [--read S] [--json]

`micro` and `twitter` are deployed with models that say twice the rate of those that ship; they are to be met in at most
three rounds. `impossible` asks of one node for what only models ten times too fast promise, and is to name what is
short. `packing` runs a chatty pipeline placed on three nodes, by `packing` and by `round-robin` with the task profiles
measured in the run before: nodes used, and cores of the pipeline's processes, predicted and measured. The figures of
this machine's nodes are those of processes that share its cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock
from penstock.api.deployment import deploy, write_profiles
from penstock.base.files import temporary_folder
from penstock.cluster.contract import OWN, open_cluster
from penstock.control.deployment import Deployment, costlier
from penstock.inputs.finders import find_models, find_pipeline
from penstock.report.task_profiles import task_profiles
from penstock.spark.clusters.local.lifecycle import running_cluster

OPTIMISM = 2.0
"""Times the rate that wrong models say an operator does."""


@dataclass(frozen=True)
class LiveCase:
    pipeline: str
    rate: float
    budget: int
    node_slots: int
    optimism: float = OPTIMISM


CASES = {
    "micro": LiveCase("micro-linear:bound=sojourn", 250.0, 6, 2),
    "twitter": LiveCase("twitter-sentiment", 800.0, 4, 2),
    "impossible": LiveCase("micro-linear:bound=sojourn", 2000.0, 1, 2, 10.0),
}
CHATTY, CHATTY_RATE, CHATTY_NODES = "linear-network", 3000.0, 3
PACKERS = ("packing", "round-robin")


def deployed(case: LiveCase, seconds: tuple[float, float], models: Path | None) -> Deployment:
    pipeline = find_pipeline(case.pipeline)
    wrong = costlier(find_models(models), pipeline, dict.fromkeys(pipeline.operators, 1 / case.optimism))
    return deploy(
        case.pipeline,
        case.rate,
        budget=case.budget,
        node_slots=case.node_slots,
        models=wrong,
        stabilise_seconds=seconds[0],
        read_seconds=seconds[1],
    )


def packed(seconds: tuple[float, float]) -> dict[str, dict[str, float]]:
    """Return nodes and cores by placer, predicted and measured. Both run by the profiles of one run before."""
    pipeline, figures = find_pipeline(CHATTY), dict[str, dict[str, float]]()
    with temporary_folder("packing") as folder, running_cluster(CHATTY_NODES, 1, folder=folder / "cluster"):
        master = f"{OWN}:{folder / 'cluster'}"
        cluster = open_cluster(master).topology()
        if cluster is None:
            raise penstock.RunError("the cluster does not say which nodes it has")
        given: dict[str, Any] = {"engine": "placed", "master": master, "seconds": sum(seconds), "warm_up": seconds[0]}
        # spread over the nodes, so that what moving a row costs is seen
        first = penstock.plan(pipeline, CHATTY_RATE, placer="round-robin", cluster=cluster)
        seen = penstock.run(first, CHATTY_RATE, sample_every=20, segmenter="single", **given)
        file = Path(folder) / "profiles.json"
        write_profiles(file, pipeline, task_profiles(seen.report))
        for placer in PACKERS:
            plan = penstock.plan(
                pipeline, CHATTY_RATE, allocator="profiled", placer=placer, models=file, cluster=cluster
            )
            result = penstock.run(plan, CHATTY_RATE, segmenter="whole", models=file, **given)
            used = {slot.node for slot in plan.placement.by_slot()}
            figures[placer] = {
                "nodes": len(used),
                "predicted_cores": sum(slot.cpu for slot in plan.prediction.slots.values()),
                "measured_cores": sum(result.report.processes.values()),
                "rate": result.report.sustained_rate,
            }
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=[*CASES, "packing"])
    parser.add_argument("--models", type=Path, help="before those that ship")
    parser.add_argument("--stabilise", type=float, default=15.0)
    parser.add_argument("--read", type=float, default=15.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    seconds, figures = (given.stabilise, given.read), dict[str, float]()
    for name in given.case or [*CASES, "packing"]:
        if name == "packing":
            for placer, seen in packed(seconds).items():
                figures |= {f"{placer}_{figure}": value for figure, value in seen.items()}
                if not given.json:
                    print(f"{placer:<12}", ", ".join(f"{figure} {value:.4g}" for figure, value in seen.items()))
            continue
        answer = deployed(CASES[name], seconds, given.models)
        if not given.json:
            print(f"{name}: {answer.reason}: {answer.why}")
            for done in answer.rounds:
                row = done.document(answer.target)
                threads = ", ".join(f"{operator} {count}" for operator, count in row["threads"].items())
                part = f"{done.reading.throughput:.4g} rows/s, {row['part_of_target']:.0%} on {row['nodes']} nodes"
                print(f"  round {done.number}: {part} ({threads}) {row['evidence']}")
        figures |= {
            f"{name}_met": float(answer.met),
            f"{name}_rounds": len(answer.rounds),
            f"{name}_part": answer.best.reading.throughput / answer.target.rate if answer.best else 0.0,
        }
    if given.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
