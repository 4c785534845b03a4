"""`penstock.deploy(...)`: run rounds of measuring and planning until a target is met."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from penstock.api.runs import run
from penstock.api.simulation import simulate
from penstock.base.errors import BadInputError, RefusedError
from penstock.control.deployment import (
    MOST_ROUNDS,
    DeployPlan,
    DeployTarget,
    OperatorReading,
    RoundReading,
    costlier,
    deploy_in_rounds,
    task_profiles,
)
from penstock.control.registry import DEFAULT_ROUND_PLANNER, ROUND_PLANNERS
from penstock.dataflow.pipeline import Kind, checked_rate, gains
from penstock.inputs.finders import find_models, find_pipeline, plan_at, planner_of
from penstock.modelling.library import demands_of
from penstock.modelling.model import Model
from penstock.planning.prediction.placement import spread_of
from penstock.planning.registry import DEFAULT_ALLOCATOR, DEFAULT_PLACER
from penstock.planning.sharing.contract import equal_nodes
from penstock.report.listener import Listener, Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.cluster.topology import Cluster
    from penstock.control.deployment import Deployment
    from penstock.dataflow.pipeline import Gain, Pipeline
    from penstock.inputs.finders import ModelsLike, PipelineLike
    from penstock.modelling.library import ModelLibrary
    from penstock.planning.plan import Plan
    from penstock.report.report import Report

DEFAULT_SLOTS = 2
MOST_BUDGET = 10_000
ABOVE = 1.2
"""Times the target that is offered: the highest stable point shows."""
NEAR = 0.95
"""Of the target: from here on the target itself is tried, whose queues are not those of an overload."""
STABILISE_SECONDS, READ_SECONDS = 60.0, 30.0


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
    models: ModelsLike = None,
    simulated: bool = False,
    truth: Mapping[str, float] | None = None,
    master: str | None = None,
    most_rounds: int = MOST_ROUNDS,
    stabilise_seconds: float | None = None,
    read_seconds: float | None = None,
    nodes: Callable[[int], Cluster] | None = None,
    listener: Listener | None = None,
) -> Deployment:
    """Plan, execute, measure, and plan again until `rate` tuples/s are done within `latency_ms` on at most `budget`
    nodes.

    On Spark (`master`; embedded without) a node is `node_slots` slots of the run; with `simulated` plans are executed
    in simulated time. `truth` are factors by operator (or "*" for all) by which tuples really cost more than their
    models say, for trying what the rounds make of it.
    """
    target = DeployTarget(checked_rate(rate), _positive(latency_ms, "latency"), _count(budget, "budget", MOST_BUDGET))
    _count(node_slots, "node_slots", 1000)
    _count(most_rounds, "most_rounds", 1000)
    if truth and not simulated:
        raise BadInputError("truth=: what tuples really cost can be chosen only in simulated time; add simulated=True")
    runner = _RoundRunner(
        find_pipeline(pipeline),
        find_models(models),
        target,
        allocator,
        placer,
        nodes or (lambda count: equal_nodes(count, node_slots, "")),
        listener or Listener(),
        seconds=(
            STABILISE_SECONDS if stabilise_seconds is None else stabilise_seconds,
            READ_SECONDS if read_seconds is None else read_seconds,
        ),
        node_slots=node_slots,
        master=master,
    )
    runner.check()
    return deploy_in_rounds(
        target,
        {name: gain.factor for name, gain in runner.gains.items()},
        ROUND_PLANNERS.create(planner),
        runner.plan_for,
        runner.simulated(truth or {}) if simulated else runner.on_spark,
        most_rounds=most_rounds,
        listener=runner.listener,
    )


def _positive(value: float | None, what: str) -> float | None:
    if value is not None and not (isfinite(value) and value > 0):
        raise BadInputError(f"{what}: expected a number above 0, found {value:g}")
    return value


def _count(value: int, what: str, most: int) -> int:
    if not 1 <= value <= most:
        raise BadInputError(f"{what}: expected a whole number from 1 to {most:,}, found {value}")
    return value


@dataclass
class _RoundRunner:
    """What plans and executes the rounds of one deployment."""

    pipeline: Pipeline
    library: ModelLibrary
    target: DeployTarget
    allocator: str
    placer: str
    nodes: Callable[[int], Cluster]
    listener: Listener
    seconds: tuple[float, float]
    node_slots: int
    master: str | None = None
    gains: Mapping[str, Gain] = field(init=False)
    _rounds: int = 0

    def __post_init__(self) -> None:
        self.gains = gains(self.pipeline)

    def check(self) -> None:
        """Before anything runs: the budget must at least hold the smallest plan."""
        demands = demands_of(self.pipeline, self.library)
        lacking = [
            name
            for name, operator in self.pipeline.operators.items()
            if operator.kind is Kind.OPERATOR and demands[name] is None
        ]
        if lacking:
            raise BadInputError(f"operator '{lacking[0]}' has no model: profile the pipeline first")

    def plan_for(self, costs: Mapping[str, float]) -> DeployPlan:
        """The fewest nodes that hold the plan; one more than the budget where none of it does."""
        library = costlier(self.library, self.pipeline, costs)
        refused: RefusedError | None = None
        for count in self._counts(library):
            try:
                planner = planner_of(self.pipeline, models=library, cluster=self.nodes(count))
                plan = plan_at(planner, self.target.rate, allocator=self.allocator, placer=self.placer)
            except RefusedError as error:
                refused = error
                continue
            return DeployPlan(count, _threads(plan), self._capacity(plan, library), plan)
        if refused is None:
            raise RuntimeError("no number of nodes was tried")
        needed = self._needed(library)
        if needed > self.target.budget:
            return DeployPlan(needed, {}, {})
        raise refused

    def _needed(self, library: ModelLibrary) -> int:
        """Nodes the slots of the allocation fill, wherever they are."""
        planner = planner_of(self.pipeline, models=library, cluster=self.nodes(1))
        from penstock.planning.registry import ALLOCATORS  # noqa: PLC0415 - registries load their policies late

        slots = planner.allocate(self.target.rate, ALLOCATORS.create(self.allocator)).slots_with_sources_and_sinks
        return max(self.target.budget + 1, -(-slots // self.node_slots))

    def _counts(self, library: ModelLibrary) -> range:
        return range(1, self.target.budget + 1)

    def _capacity(self, plan: Plan, library: ModelLibrary) -> dict[str, float]:
        """sum over slots of I(t_k)"""
        by_slot = plan.placement.by_slot()
        capacity = {}
        for name, model in demands_of(self.pipeline, library).items():
            if isinstance(model, Model):
                capacity[name] = sum(model.rate(count) for count in spread_of(by_slot, name).values())
        return capacity

    def simulated(self, truth: Mapping[str, float]) -> Callable[[DeployPlan], RoundReading]:
        everywhere = truth.get("*", 1.0)
        unknown = set(truth) - set(self.pipeline.operators) - {"*"}
        if unknown:
            raise BadInputError(f"truth: pipeline '{self.pipeline.name}' has no operator '{min(unknown)}'")
        factors = {name: truth.get(name, everywhere) for name in self.pipeline.operators}
        real = costlier(self.library, self.pipeline, factors)
        stabilise, read = min(self.seconds[0], 5.0), min(self.seconds[1], 15.0)

        def execute(plan: DeployPlan) -> RoundReading:
            self._say()
            result = simulate(
                plan.made, ABOVE * self.target.rate, seconds=stabilise + read, warm_up=stabilise, models=real
            )
            report = result.report
            throughput = report.sustained_rate
            latency = report.latency_ms.get("p95")
            if throughput >= NEAR * self.target.rate:
                settled = simulate(
                    plan.made, self.target.rate, seconds=stabilise + read, warm_up=stabilise, models=real
                )
                latency = settled.report.latency_ms.get("p95")
                if settled.report.stable:
                    throughput = max(throughput, settled.report.sustained_rate)
            capacity = {node.name: node.slots for node in plan.made.cluster.nodes}
            return RoundReading(
                throughput,
                latency,
                report.stable,
                _operators(report, plan.threads, stabilise + read),
                {name: cpu / capacity[name] for name, (cpu, _) in result.nodes.items() if name in capacity},
                task_profiles(report, stabilise + read),
            )

        return execute

    def on_spark(self, plan: DeployPlan) -> RoundReading:
        self._say()
        stabilise, read = self.seconds
        result = run(
            self.pipeline,
            self.target.rate,
            slots=plan.nodes * self.node_slots,
            seconds=stabilise + read,
            warm_up=stabilise,
            models=self.library,
            master=self.master,
            listener=self.listener,
        )
        report = result.report
        return RoundReading(
            report.sustained_rate,
            report.latency_ms.get("p95"),
            report.stable,
            _operators(report, dict.fromkeys(self.pipeline.operators, plan.nodes * self.node_slots), report.seconds),
            profiles=task_profiles(report, report.seconds),
        )

    def _say(self) -> None:
        self._rounds += 1
        self.listener.on_progress(Progress("rounds", self._rounds, MOST_ROUNDS))


def _threads(plan: Plan) -> dict[str, int]:
    return {operator.name: operator.threads for operator in plan.allocation.operators}


def _operators(report: Report, threads: Mapping[str, int], seconds: float) -> dict[str, OperatorReading]:
    return {
        name: OperatorReading(
            seen.received / seconds,
            min(1.0, seen.busy_seconds / (report.seconds * max(1, threads.get(name, 1)))),
            threads.get(name, 1),
        )
        for name, seen in report.operators.items()
        if report.seconds > 0
    }
