"""Simulated against measured: linear and diamond, planned for two cores, run on Spark and simulated.

    python bench/simulation_truth.py [--models FILE] [--budget SECONDS] [--seconds S] [--json FILE]

Without --models the operators are profiled first. Every plan is run fused on embedded Spark twice, offered more than it
can do and a part of it, and simulated under the same load: once with the engine's time for a batch as the models say,
once with that of the run itself, which is what is left of the error when the machine is not to blame. Rates, latencies
and their errors are printed. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from penstock.cluster.cores import cores_here
from penstock.engines.fused.preparation import prepare
from penstock.report.simulated_result import measured_of
from penstock.runs.config import RunConfig

if TYPE_CHECKING:
    from penstock.report.report import BatchObservation

PIPELINES = ("linear", "diamond")
SLOTS = (1, 2)
OVERLOAD, PART_LOAD = 1.5, 0.6
WITHIN = 0.1


class BatchKeeper(penstock.Listener):
    def __init__(self) -> None:
        self.batches: list[BatchObservation] = []

    def on_batch(self, batch: BatchObservation) -> None:
        self.batches.append(batch)


def engine_ms(batches: list[BatchObservation]) -> float:
    """Of the time from one batch to the next what is not work, in the middle of all batches."""
    gaps = [
        after.finished - before.finished - max(slot.wall_seconds for slot in after.slots)
        for before, after in pairwise(batches[1:])
    ]
    return 1000 * float(np.median(gaps))


def row(name: str, plan: penstock.Plan, offered: float, models: Path, seconds: float, part: str) -> dict[str, Any]:
    keeper = BatchKeeper()
    run = penstock.run(plan, offered, seconds=seconds, warm_up=seconds / 3, models=models, listener=keeper)
    seen = measured_of(run.document(), "run")
    own_ms = engine_ms(keeper.batches)
    found: dict[str, Any] = {"pipeline": name, "slots": run.slots, "load": part, "offered": offered}
    for how, overhead in (("by models", None), ("by the run", own_ms)):
        result = penstock.simulate(
            plan,
            offered,
            mode="fused",
            models=models,
            cores=cores_here(),
            batch_overhead_ms=overhead,
            seconds=10 * seconds if part == "part" else seconds + 2,
            warm_up=seconds / 3,
            measured=seen,
        )
        found[how] = result.first.comparison
    found["engine_ms"] = own_ms
    return found


def show(one: dict[str, Any], how: str) -> None:
    texts = []
    for what, label in (("rate", "rate"), ("latency_p50_ms", "p50"), ("latency_p95_ms", "p95")):
        figures = one[how][what]
        error = figures["simulated_error"]
        texts.append(f"{label} {figures['simulated']:8.1f} {figures['measured']:8.1f} ({100 * error:+6.1f} %)")
    print(f"{one['pipeline']:8} {one['slots']} slots {one['load']:4} engine {how:10} {'  '.join(texts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of profiling for each operator")
    parser.add_argument("--seconds", type=float, default=18.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    models = given.models
    if models is None:
        models = Path(tempfile.mkdtemp()) / "models.json"
        penstock.profile("linear", models, budget_seconds=given.budget)
    rows: list[dict[str, Any]] = []
    others = max(model.measured_on.others_cpu or 0.0 for model in penstock.models(models))
    print(f"while the models were measured, other processes used up to {100 * others:.0f} % of the machine")
    print("each figure: simulated, measured (error)")
    for name in PIPELINES:
        for slots in SLOTS:
            peak = prepare(name, RunConfig(rate=1.0, slots=slots, models=models, find_max=True)).predicted_rate or 1.0
            plan = penstock.plan(name, rate=round(0.9 * peak, 1), models=models)
            predicted = prepare(plan, RunConfig(models=models)).predicted_rate or peak
            for part, factor in (("full", OVERLOAD), ("part", PART_LOAD)):
                rows.append(row(name, plan, factor * predicted, models, given.seconds, part))
                for how in ("by models", "by the run"):
                    show(rows[-1], how)
    full = [one for one in rows if one["load"] == "full"]
    for how in ("by models", "by the run"):
        within = sum(abs(one[how]["rate"]["simulated_error"]) <= WITHIN for one in full)
        print(f"engine {how}: rate within 10 % in {within} of {len(full)} saturated runs")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
