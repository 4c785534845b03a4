"""Predicted against measured: pipelines run on Spark beside what was said of them.

    python bench/truth.py [--mix micro|unseen] [--models FILE] [--budget SECONDS] [--seconds S] [--quick]
                          [--attempts N] [--only NAME] [--runs FILE] [--json]

`micro`: the micro pipelines, planned by several policy pairs for several rates. `unseen`: code of a user's own, of
many shapes (`unseen.py`), on two slots. Without --models the operators are profiled first. Every plan that fits two
cores is run fused on embedded Spark twice: offered more than it can do (the rate that is sustained stands beside the
predicted one), and at a part of the predicted rate (its median latency stands beside the predicted one; CPU and memory
of its slots do in both runs). Plans that come to the same threads and slots are run once.

Nothing else should run on the machine meanwhile, and its cores should be as fast as when the models were measured: a
run during which others (the host of a virtual machine, too) used more than 8 % of it, or whose pace alone changes the
prediction by more than that, is done again, up to --attempts times in all. The one with the least of both counts,
whatever it measured. A run that still works off at its end what gathered at its start is done again, twice as long.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import penstock
from penstock.base.errors import PenstockError
from penstock.dataflow.load import Load
from penstock.engines.fused.preparation import prepare
from penstock.report.report import WORKING_OFF
from penstock.runs.config import RunConfig
from unseen import unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MICRO = ("linear", "diamond", "star")


def chain(name: str, *models: str) -> penstock.Pipeline:
    built = penstock.pipeline(name).source("source")
    for model in models:
        built = built.then(model, model=model)
    return built.sink("sink").build()


PIPELINES: dict[str, str | penstock.Pipeline] = {
    **{name: name for name in MICRO},
    "local": chain("local", "parse_xml", "pi", "batch_file_write", "azure_table"),
    "compute": chain("compute", "pi", "parse_xml"),
    "lookup": chain("lookup", "azure_table", "pi"),
}
"""The micro pipelines all wait for the same blobs; the others do not, and keep a core busy."""
PAIRS = ("mba+sam", "lsa+rsm", "mba+r-storm", "lsa+round-robin")
PARTS_OF_PEAK = (0.3, 0.6, 1.0)
"""Rates to plan for, as parts of what one slot can do."""
MOST_SLOTS = 2
OVERLOAD = 1.5
PART_LOAD = 0.6
CALM = 0.08
MORE_THAN_ANY = 1e9
"""Tuples/s: threads are chosen as for more than can be done."""


@dataclass(frozen=True)
class Run:
    pipeline: str
    pair: str
    planned_rate: float
    slots: int
    threads: dict[str, int]
    offered: float
    saturated: bool
    predicted_rate: float
    measured_rate: float
    predicted_cpu: float
    measured_cpu: float
    predicted_memory_mb: float
    measured_memory_mb: float
    others_cpu: float
    pace: float | None
    """Of the cores, where that of the models is 1."""
    predicted_rate_at_pace: float
    predicted_p50_ms: float | None = None
    """Of runs that kept up."""
    measured_p50_ms: float | None = None
    predicted_p50_ms_at_pace: float | None = None
    attempts: int = 1

    @property
    def p50_error(self) -> float | None:
        return self._p50_error(self.predicted_p50_ms)

    @property
    def p50_error_at_pace(self) -> float | None:
        return self._p50_error(self.predicted_p50_ms_at_pace or self.predicted_p50_ms)

    def _p50_error(self, predicted_ms: float | None) -> float | None:
        return None if predicted_ms is None or not self.measured_p50_ms else predicted_ms / self.measured_p50_ms - 1

    @property
    def error(self) -> float:
        return self.predicted_rate / self.measured_rate - 1 if self.measured_rate else float("inf")

    @property
    def error_at_pace(self) -> float:
        return self.predicted_rate_at_pace / self.measured_rate - 1 if self.measured_rate else float("inf")

    @property
    def disturbance(self) -> float:
        """How far the machine was from what it was in the trials, or from being ours."""
        return max(self.others_cpu, abs(self.predicted_rate_at_pace / self.predicted_rate - 1))

    @property
    def unsettled(self) -> bool:
        """It took in more than came: what had gathered while Spark got ready."""
        return not self.saturated and self.measured_rate > WORKING_OFF * self.offered


def plans(models: Path, quick: bool) -> Iterator[tuple[str, str, penstock.Plan]]:
    seen = set()
    for name, pipeline in PIPELINES.items():
        peak = prepare(pipeline, RunConfig(rate=1.0, slots=1, models=models, find_max=True)).predicted_rate or 1.0
        for pair in PAIRS[:2] if quick else PAIRS:
            allocator, placer = pair.split("+")
            for part in PARTS_OF_PEAK[1:] if quick else PARTS_OF_PEAK:
                try:
                    plan = penstock.plan(
                        pipeline, rate=round(part * peak, 1), models=models, allocator=allocator, placer=placer
                    )
                except PenstockError as error:
                    print(f"{name} {pair} at {part * peak:.1f}: not planned: {error}")
                    continue
                job = prepare(plan, RunConfig(models=models))
                key = (name, job.slots, tuple(sorted(job.threads.items())))
                if job.slots <= MOST_SLOTS and key not in seen:
                    seen.add(key)
                    yield name, pair, plan


def run(
    pipeline: str,
    pair: str,
    plan: penstock.Plan | penstock.Pipeline,
    models: Path,
    seconds: float,
    *,
    saturated: bool,
) -> Run:
    """A pipeline without a plan runs on every slot there may be, with the threads that its models say."""
    slots = None if isinstance(plan, penstock.Plan) else MOST_SLOTS
    at_most = prepare(plan, RunConfig(rate=None if slots is None else MORE_THAN_ANY, slots=slots, models=models))
    predicted = at_most.predicted_rate or 0.0
    offered = (OVERLOAD if saturated else PART_LOAD) * predicted
    if slots is not None and not saturated:
        # fewer threads do for less
        predicted = prepare(plan, RunConfig(rate=offered, slots=slots, models=models)).predicted_rate or 0.0
    result = penstock.run(
        plan, Load.constant(offered), slots=slots, seconds=seconds, warm_up=seconds / 3, models=models
    )
    report = result.report
    latency, latency_at_pace = result.predicted_latency_ms, result.predicted_latency_ms_at_pace
    if report.audit.lost or report.audit.duplicated:
        sys.exit(f"{pipeline} {pair}: lost {report.audit.lost}, duplicated {report.audit.duplicated}")
    slot = result.predicted_slot or (0.0, 0.0)
    at_pace = result.predicted_rate_at_pace or predicted
    cpus, memories = zip(*report.slots.values(), strict=True)
    return Run(
        pipeline,
        pair,
        plan.rate if isinstance(plan, penstock.Plan) else offered,
        result.slots,
        dict(result.threads),
        offered,
        saturated,
        predicted if saturated else min(offered, predicted),
        report.sustained_rate,
        slot[0],
        float(np.mean(cpus)),
        slot[1],
        float(np.mean(memories)),
        report.others_cpu or 0.0,
        result.pace,
        (at_pace if saturated else min(offered, at_pace)),
        None if latency is None else latency["p50"],
        report.latency_ms["p50"] if report.stable and report.latency_ms else None,
        None if latency_at_pace is None else latency_at_pace["p50"],
    )


def calmest(attempt: Callable[[], Run], most_attempts: int) -> Run:
    attempts: list[Run] = []
    while len(attempts) < most_attempts and all(case.disturbance > CALM for case in attempts):
        attempts.append(attempt())
    return replace(min(attempts, key=lambda case: case.disturbance), attempts=len(attempts))


def r_squared(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """`1 - sum (m - p)^2 / sum (m - mean m)^2`: of the predictions themselves, not of a line fitted to them."""
    p, m = np.array(predicted), np.array(measured)
    spread = float(((m - m.mean()) ** 2).sum())
    return 1 - float(((m - p) ** 2).sum()) / spread if spread else float("nan")


def unseen_pipelines(models: Path, budget: float, only: str | None) -> Iterator[tuple[str, str, penstock.Pipeline]]:
    """Each is profiled just before it runs, so that the machine is the same."""
    for name, pipeline in unseen().items():
        if only in {None, name}:
            penstock.profile(pipeline, models, budget_seconds=budget, quick=True)
            yield name, "own code", pipeline


def shown(case: Run) -> str:
    latency = ""
    if case.p50_error is not None and case.p50_error_at_pace is not None:
        latency = (
            f"  p50 {case.predicted_p50_ms:.0f} {case.measured_p50_ms:.0f} ms ({100 * case.p50_error:+.0f} %, at its "
            f"pace {100 * case.p50_error_at_pace:+.0f} %)"
        )
    return (
        f"{case.pipeline:10} {case.pair:16} {case.slots} slots {'full' if case.saturated else 'part':4} rate predicted "
        f"{case.predicted_rate:9,.1f} measured {case.measured_rate:9,.1f} ({100 * case.error:+5.1f} %, at its pace "
        f"{100 * case.error_at_pace:+5.1f} %){latency}  cpu "
        f"{case.predicted_cpu:.2f} {case.measured_cpu:.2f}  memory {case.predicted_memory_mb:4.0f} "
        f"{case.measured_memory_mb:4.0f} MB  others {100 * case.others_cpu:2.0f} % ({case.attempts})  "
        f"pace {case.pace or float('nan'):.2f}"
    )


def figures_of(cases: Sequence[Run]) -> dict[str, float]:
    """Shares of cases that were within what is wanted, and how well predictions explain what was measured."""
    full = [case for case in cases if case.saturated]
    measured = [case.measured_rate for case in full]
    p50 = [case.p50_error for case in cases if case.p50_error is not None]
    at_pace = [case.p50_error_at_pace for case in cases if case.p50_error_at_pace is not None]
    return {
        "cases": len(full),
        "rate_within_10_percent": float(np.mean([abs(case.error) <= 0.1 for case in full])),
        "rate_at_pace_within_10_percent": float(np.mean([abs(case.error_at_pace) <= 0.1 for case in full])),
        "rate_r2": r_squared([case.predicted_rate for case in full], measured),
        "rate_at_pace_r2": r_squared([case.predicted_rate_at_pace for case in full], measured),
        "p50_cases": len(p50),
        "p50_within_25_percent": float(np.mean([abs(error) <= 0.25 for error in p50])) if p50 else float("nan"),
        "p50_at_pace_within_25_percent": float(np.mean([abs(e) <= 0.25 for e in at_pace])) if at_pace else float("nan"),
        "cpu_r2": r_squared([case.predicted_cpu for case in cases], [case.measured_cpu for case in cases]),
        "memory_r2": r_squared(
            [case.predicted_memory_mb for case in cases], [case.measured_memory_mb for case in cases]
        ),
        "calm_runs": sum(case.disturbance <= CALM for case in cases),
        "runs": len(cases),
    }


def print_figures(figures: Mapping[str, float], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:32} {value:,.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mix", choices=("micro", "unseen"), default="micro")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--budget", type=float, default=90.0, help="seconds of profiling for each operator")
    parser.add_argument("--seconds", type=float, default=18.0)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="one pipeline of the unseen mix")
    parser.add_argument("--runs", type=Path, help="a file for every run, as JSON")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    models = given.models or Path(tempfile.mkdtemp()) / "models.json"
    if given.mix == "micro" and given.models is None:
        penstock.profile("linear", models, budget_seconds=given.budget)
    subjects: Iterator[tuple[str, str, penstock.Plan | penstock.Pipeline]] = (
        plans(models, given.quick) if given.mix == "micro" else unseen_pipelines(models, given.budget, given.only)
    )
    cases: list[Run] = []
    for pipeline, pair, plan in subjects:
        for saturated in (True, False):
            attempt = partial(run, pipeline, pair, plan, models, saturated=saturated)
            case = calmest(partial(attempt, given.seconds), given.attempts)
            if case.unsettled:
                case = calmest(partial(attempt, 2 * given.seconds), given.attempts)
            cases.append(case)
            print(shown(cases[-1]), file=sys.stderr if given.json else sys.stdout, flush=True)
            if given.runs is not None:
                given.runs.write_text(json.dumps([asdict(case) for case in cases], indent=1), encoding="utf-8")
    print_figures(figures_of(cases), as_json=given.json)


if __name__ == "__main__":
    main()
