"""`penstock.deploy(...)`: run rounds of planning, running and measuring until a target is met."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.simulation import simulate
from penstock.base.errors import BadInputError
from penstock.base.files import check_writable, write_output
from penstock.control.deployment import (
    MOST_ROUNDS,
    DeployPlan,
    DeployTarget,
    RoundReading,
    costlier,
    deploy_in_rounds,
)
from penstock.control.executors.spark_rounds import (
    ABOVE,
    NEAR,
    SAMPLE_EVERY,
    DeploymentSite,
    RoundPlanning,
    SparkRounds,
    operator_readings,
)
from penstock.control.registry import DEFAULT_ROUND_PLANNER, ROUND_PLANNERS
from penstock.dataflow.code import fused_only
from penstock.dataflow.pipeline import checked_rate
from penstock.inputs.finders import find_code_beside, find_models, find_pipeline
from penstock.modelling.library import models_document
from penstock.modelling.machine import this_machine
from penstock.planning.registry import DEFAULT_ALLOCATOR, DEFAULT_PLACER
from penstock.planning.sharing.contract import equal_nodes
from penstock.report.listener import Listener, Progress
from penstock.report.task_profiles import named_profiles, task_profiles
from penstock.runs.config import AUTO, FUSED, PLACED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.cluster.topology import Cluster
    from penstock.control.deployment import Deployment
    from penstock.dataflow.pipeline import Pipeline
    from penstock.inputs.finders import ModelsLike, PipelineLike
    from penstock.modelling.task_profile import TaskProfile

DEFAULT_SLOTS = 2
MOST_BUDGET = 10_000
STABILISE_SECONDS, READ_SECONDS = 60.0, 30.0
PACKING = "packing"


def deploy(
    pipeline: PipelineLike,
    rate: float,
    *,
    latency_ms: float | None = None,
    budget: int = 16,
    node_slots: int = DEFAULT_SLOTS,
    planner: str = DEFAULT_ROUND_PLANNER,
    allocator: str = DEFAULT_ALLOCATOR,
    placer: str = DEFAULT_PLACER,
    segmenter: str | None = None,
    engine: str = AUTO,
    models: ModelsLike = None,
    profiles: str | Path | None = None,
    simulated: bool = False,
    truth: Mapping[str, float] | None = None,
    master: str | None = None,
    secret_file: str | Path | None = None,
    provider: str | None = None,
    node_size: str | None = None,
    most_rounds: int = MOST_ROUNDS,
    stabilise_seconds: float | None = None,
    read_seconds: float | None = None,
    sample_every: int | None = SAMPLE_EVERY,
    nodes: Callable[[int], Cluster] | None = None,
    listener: Listener | None = None,
) -> Deployment:
    """Plan, acquire nodes, run, measure, and plan again until `rate` rows/s are done within `latency_ms` on at most
    `budget` nodes.

    On Spark each plan is executed as it was made: its threads on its nodes. Without `master` the nodes are Workers of a
    cluster of this machine that ends with the deployment. With a `master` (`cluster`, spark://...) its free nodes are
    used, and a `provider` (`local`, `command:FILE`) adds more, which are released at the end. `engine` is "placed",
    "fused", or "auto": placed, unless the pipeline has operators that only Spark executes.

    With `simulated` plans are executed in simulated time; `truth` are factors by operator (or "*" for all) by which
    rows really cost more than their models say. Task profiles are measured in every round, one row in `sample_every`
    (None: none); `profiles` names a file for them.
    """
    target = DeployTarget(checked_rate(rate), _positive(latency_ms, "latency"), _count(budget, "budget", MOST_BUDGET))
    _count(node_slots, "node_slots", 1000)
    _count(most_rounds, "most_rounds", 1000)
    if sample_every is not None:
        _count(sample_every, "sample_every", 1_000_000)
    seconds = (
        _seconds(stabilise_seconds, STABILISE_SECONDS, "stabilise_seconds", 0.0),
        _seconds(read_seconds, READ_SECONDS, "read_seconds", 1.0),
    )
    if truth and not simulated:
        raise BadInputError("truth=: what rows really cost can be chosen only in simulated time; add simulated=True")
    if simulated and (master, provider, node_size) != (None, None, None):
        raise BadInputError("simulated=True: leave out master=, provider= and node_size=; no node is acquired")
    if profiles is not None:
        check_writable(Path(profiles))
    listener = listener or Listener()
    planning = RoundPlanning(
        find_pipeline(pipeline),
        find_models(models),
        target,
        allocator,
        placer,
        nodes or (lambda count: equal_nodes(count, node_slots, "")),
        str(pipeline) if isinstance(pipeline, str | Path) else "PIPELINE",
    )
    planning.check()
    round_planner = ROUND_PLANNERS.create(planner)
    rates = {name: gain.factor for name, gain in planning.gains.items()}
    if simulated:
        rounds = _SimulatedRounds(planning, truth or {}, seconds, listener)
        made = deploy_in_rounds(
            target, rates, round_planner, planning.plan_for, rounds.execute, most_rounds=most_rounds, listener=listener
        )
    else:
        find_code_beside(pipeline)
        site = DeploymentSite(
            master, None if secret_file is None else Path(secret_file), provider, node_size, node_slots
        )
        with SparkRounds(planning, site, seconds, _engine_of(engine, planning.pipeline), listener) as running:
            running.segmenter = segmenter or ("whole" if placer.partition(":")[0] == PACKING else None)
            running.sample_every = sample_every
            made = deploy_in_rounds(
                target,
                rates,
                round_planner,
                planning.plan_for,
                running.execute,
                provide=running.provide,
                most_rounds=most_rounds,
                listener=listener,
            )
    if profiles is not None and made.profiles:
        write_profiles(Path(profiles), planning.pipeline, made.profiles)
    return made


def _positive(value: float | None, what: str) -> float | None:
    if value is not None and not (isfinite(value) and value > 0):
        raise BadInputError(f"{what}: expected a number above 0, found {value:g}")
    return value


def _seconds(value: float | None, usual: float, what: str, least: float) -> float:
    if value is None:
        return usual
    if not (isfinite(value) and value >= least):
        raise BadInputError(f"{what}: expected at least {least:g} seconds, found {value:g}")
    return value


def _count(value: int, what: str, most: int) -> int:
    if not 1 <= value <= most:
        raise BadInputError(f"{what}: expected a whole number from 1 to {most:,}, found {value}")
    return value


def _engine_of(engine: str, pipeline: Pipeline) -> str:
    if engine not in {AUTO, PLACED, FUSED}:
        raise BadInputError(f"engine: expected auto, placed or fused, found '{engine}'")
    sparks = fused_only(pipeline)
    if engine == PLACED and sparks:
        raise BadInputError(f"engine 'placed': only Spark executes operator '{sparks[0]}'; use engine 'fused'")
    if engine == AUTO:
        return FUSED if sparks else PLACED
    return engine


def write_profiles(path: Path, pipeline: Pipeline, profiles: Mapping[str, TaskProfile]) -> None:
    """Write task profiles of a pipeline's operators as a model file, which `plan --models` reads."""

    def name_of(operator: str) -> str:
        return pipeline.operators[operator].model or f"{pipeline.name}/{operator}"

    named = named_profiles(profiles, name_of, this_machine())
    about = f"Task profiles of {pipeline.name}, measured while it ran"
    document = models_document((), about, named)
    write_output(path, json.dumps(document, indent=1) + "\n")


# Rounds in simulated time.


@dataclass
class _SimulatedRounds:
    planning: RoundPlanning
    truth: Mapping[str, float]
    seconds: tuple[float, float]
    listener: Listener
    _rounds: int = 0

    def __post_init__(self) -> None:
        pipeline = self.planning.pipeline
        unknown = set(self.truth) - set(pipeline.operators) - {"*"}
        if unknown:
            raise BadInputError(f"truth: pipeline '{pipeline.name}' has no operator '{min(unknown)}'")
        everywhere = self.truth.get("*", 1.0)
        factors = {name: self.truth.get(name, everywhere) for name in pipeline.operators}
        self._real = costlier(self.planning.library, pipeline, factors)

    def execute(self, plan: DeployPlan) -> RoundReading:
        self._rounds += 1
        self.listener.on_progress(Progress("rounds", self._rounds, MOST_ROUNDS))
        rate = self.planning.target.rate
        stabilise, read = min(self.seconds[0], 5.0), min(self.seconds[1], 15.0)
        whole = stabilise + read
        result = simulate(plan.made, ABOVE * rate, seconds=whole, warm_up=stabilise, models=self._real)
        report = result.report
        throughput, latency = report.sustained_rate, report.latency_ms.get("p95")
        if throughput >= NEAR * rate:
            settled = simulate(plan.made, rate, seconds=whole, warm_up=stabilise, models=self._real)
            latency = settled.report.latency_ms.get("p95")
            if settled.report.stable:
                throughput = max(throughput, settled.report.sustained_rate)
        capacity = {node.name: node.slots for node in plan.made.cluster.nodes}
        profiles = task_profiles(report, whole)
        self.planning.learn(profiles)
        return RoundReading(
            throughput,
            latency,
            report.stable,
            operator_readings(self.planning.pipeline, report, plan.threads, whole),
            {name: cpu / capacity[name] for name, (cpu, _) in result.nodes.items() if name in capacity},
            profiles,
            ABOVE * rate,
        )
