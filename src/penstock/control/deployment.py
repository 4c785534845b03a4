"""Deploy a pipeline in rounds until it reaches its target: plan, run, analyse, correct the models, plan again.

Plans and readings come from functions, so the same loop deploys on Spark and in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.errors import RefusedError
from penstock.modelling.library import ModelLibrary
from penstock.modelling.task_profile import TaskProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.contracts import RoundPlanner
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Model
    from penstock.report.listener import Listener
    from penstock.report.report import Report


@dataclass(frozen=True, slots=True)
class DeployTarget:
    rate: float
    """Tuples/s of the source."""
    latency_ms: float | None = None
    budget: int = 16
    """Nodes."""


@dataclass(frozen=True, slots=True)
class OperatorReading:
    received: float
    """Tuples/s."""
    busy: float
    """Part of the time its threads were at work."""
    threads: int

    @property
    def true_rate(self) -> float:
        """Tuples/s it would do if it were at work all the time: received / busy."""
        return self.received / self.busy if self.busy > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class RoundReading:
    """What was measured of a deployment once it had settled."""

    throughput: float
    latency_ms: float | None
    stable: bool
    operators: Mapping[str, OperatorReading]
    node_cpu: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Part of each node's CPU that was used."""
    profiles: Mapping[str, TaskProfile] = field(default_factory=lambda: MappingProxyType({}))
    """What a tuple cost, operator by operator."""


class ShortOf(StrEnum):
    NOTHING = "nothing"
    OPERATOR = "operator"
    NODE = "node"
    LATENCY = "latency"
    ENGINE = "engine"
    """Neither an operator nor a node is at its limit: more of them would not help."""


@dataclass(frozen=True, slots=True)
class Analysis:
    met: bool
    shortage: ShortOf
    short: tuple[str, ...] = ()
    """Operators whose costs are to be raised."""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class DeployPlan:
    """A plan as far as the loop is concerned; `made` is the plan itself."""

    nodes: int
    threads: Mapping[str, int]
    capacity: Mapping[str, float]
    """Tuples/s every operator does by the models it was planned with."""
    made: Any = None

    def same_as(self, other: DeployPlan) -> bool:
        return self.nodes == other.nodes and dict(self.threads) == dict(other.threads)


class StopReason(StrEnum):
    MET = "met"
    BUDGET = "over-budget"
    ROUNDS = "out-of-rounds"
    SAME_PLAN = "same-plan"
    ENGINE = "engine-bound"
    LATENCY = "latency-bound"
    """More nodes do not make a tuple's way shorter."""
    UNPLACEABLE = "unplaceable"


@dataclass(frozen=True, slots=True)
class DeployRound:
    number: int
    plan: DeployPlan
    reading: RoundReading
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class Deployment:
    """All rounds, why they ended, and the best of them."""

    target: DeployTarget
    planner: str
    rounds: tuple[DeployRound, ...]
    reason: StopReason
    why: str

    @property
    def met(self) -> bool:
        return self.reason is StopReason.MET

    @property
    def best(self) -> DeployRound | None:
        """The most of the rate that is asked for; of equals the shortest latency, in two digits, then the fewest
        nodes."""

        def rank(done: DeployRound) -> tuple[float, float, int]:
            latency = done.reading.latency_ms
            taken = inf if latency is None else float(f"{latency:.2g}")
            return min(done.reading.throughput, self.target.rate), -taken, -done.plan.nodes

        return max(self.rounds, key=rank, default=None)

    def document(self) -> dict[str, Any]:
        best = self.best
        return {
            "rate": self.target.rate,
            "latency_ms": self.target.latency_ms,
            "budget": self.target.budget,
            "planner": self.planner,
            "met": self.met,
            "reason": str(self.reason),
            "why": self.why,
            "best_round": None if best is None else best.number,
            "rounds": [
                {
                    "round": done.number,
                    "nodes": done.plan.nodes,
                    "threads": dict(done.plan.threads),
                    "throughput": done.reading.throughput,
                    "part_of_target": done.reading.throughput / self.target.rate,
                    "latency_ms": done.reading.latency_ms,
                    "met": done.analysis.met,
                    "shortage": str(done.analysis.shortage),
                    "short": list(done.analysis.short),
                    "evidence": done.analysis.evidence,
                    "profiles": {
                        name: {
                            "sojourn_seconds": profile.sojourn_seconds,
                            "processing_cpu": profile.processing_cpu,
                            "moving_cpu": profile.moving_cpu,
                            "memory_mb": profile.memory_mb,
                        }
                        for name, profile in done.reading.profiles.items()
                    },
                }
                for done in self.rounds
            ],
        }


# Analysis of a round: the target met, or the shortage, with the evidence.


BUSY = 0.8
"""An operator at work for so much of the time while the queue grows is short."""
NODE_BUSY = 0.9
NEARLY = 0.99
"""Of the target: the rest is how counting ends."""


def analyse(reading: RoundReading, target: DeployTarget, gains: Mapping[str, float]) -> Analysis:
    """`gains`: tuples an operator gets for one of the source."""
    rate_met = reading.throughput >= NEARLY * target.rate
    taken = float("inf") if reading.latency_ms is None else reading.latency_ms
    if rate_met and (target.latency_ms is None or taken <= target.latency_ms):
        return Analysis(met=True, shortage=ShortOf.NOTHING, evidence=f"{reading.throughput:.4g} tuples/s")
    if rate_met:
        evidence = f"the rate is met, a tuple takes {taken:.0f} ms of {target.latency_ms:.0f}"
        return Analysis(met=False, shortage=ShortOf.LATENCY, evidence=evidence)
    busy = sorted(reading.operators.items(), key=lambda entry: entry[1].busy, reverse=True)
    short = tuple(
        name
        for name, operator in busy
        if operator.busy >= BUSY and operator.true_rate < target.rate * gains.get(name, 1.0) / NEARLY
    )
    if short:
        first = reading.operators[short[0]]
        wanted = target.rate * gains.get(short[0], 1.0)
        evidence = (
            f"operator '{short[0]}' is at work {first.busy:.0%} of the time on {first.threads} threads: it does "
            f"{first.true_rate:.4g} tuples/s and {wanted:.4g} are wanted"
        )
        return Analysis(met=False, shortage=ShortOf.OPERATOR, short=short, evidence=evidence)
    full = {node: used for node, used in reading.node_cpu.items() if used >= NODE_BUSY}
    if full:
        node = max(full, key=lambda name: full[name])
        evidence = f"node '{node}' uses {full[node]:.0%} of its CPU"
        return Analysis(met=False, shortage=ShortOf.NODE, short=tuple(reading.operators), evidence=evidence)
    seen = f"the busiest operator, '{busy[0][0]}', is at work {busy[0][1].busy:.0%}" if busy else "no operator was seen"
    return Analysis(met=False, shortage=ShortOf.ENGINE, evidence=f"nothing is at its limit ({seen}): the engine is")


MOST_ROUNDS = 8
MOST_RAISES = 20
"""Costs raised by a little may give the same plan: they are raised so often before that is the end."""
LESS = 0.95
"""Times the latency before: no less is no gain."""
ROOM_FOR_LATENCY = 1.25
"""Rate met and latency missed: the next plan has so much room, so that less waits."""


def deploy_in_rounds(
    target: DeployTarget,
    gains: Mapping[str, float],
    planner: RoundPlanner,
    plan_for: Callable[[Mapping[str, float]], DeployPlan],
    execute: Callable[[DeployPlan], RoundReading],
    *,
    most_rounds: int = MOST_ROUNDS,
    listener: Listener | None = None,
) -> Deployment:
    """`plan_for` raises `RefusedError` where the costs cannot be placed on any number of nodes."""
    costs = dict.fromkeys(gains, 1.0)
    rounds: list[DeployRound] = []

    def stopped(reason: StopReason, why: str) -> Deployment:
        return Deployment(target, planner.name, tuple(rounds), reason, why)

    while True:
        try:
            costs, plan = _next_plan(costs, rounds, planner, plan_for)
        except RefusedError as refused:
            return stopped(StopReason.UNPLACEABLE, str(refused))
        if plan.nodes > target.budget:
            last = f"; {rounds[-1].analysis.evidence}" if rounds else ""
            why = f"the plan takes {plan.nodes} nodes, the budget is {target.budget}{last}"
            return stopped(StopReason.BUDGET, why)
        if rounds and plan.same_as(rounds[-1].plan):
            why = f"planning again gives the same plan; {rounds[-1].analysis.evidence}"
            return stopped(StopReason.SAME_PLAN, why)
        reading = execute(plan)
        analysis = analyse(reading, target, gains)
        rounds.append(DeployRound(len(rounds) + 1, plan, reading, analysis))
        if listener is not None:
            short = "" if analysis.met else f"; {analysis.evidence}"
            listener.on_message(
                f"round {len(rounds)}: {reading.throughput:,.4g} tuples/s on {_nodes(plan.nodes)}{short}"
            )
        if analysis.met:
            return stopped(StopReason.MET, f"in round {len(rounds)} on {_nodes(plan.nodes)}")
        if (end := _no_use(rounds, most_rounds)) is not None:
            return stopped(*end)
        if analysis.shortage is ShortOf.LATENCY:
            costs = {name: cost * ROOM_FOR_LATENCY for name, cost in costs.items()}
        else:
            costs = planner.next_costs(costs, plan, reading, analysis)


def _nodes(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"


def _no_use(rounds: Sequence[DeployRound], most_rounds: int) -> tuple[StopReason, str] | None:
    """Why another round would not help, or is not to be made."""
    last = rounds[-1]
    evidence = last.analysis.evidence
    if last.analysis.shortage is ShortOf.ENGINE:
        return StopReason.ENGINE, evidence
    if last.analysis.shortage is ShortOf.LATENCY and len(rounds) > 1 and not _shorter(rounds[-2], last):
        more = _nodes(last.plan.nodes - rounds[-2].plan.nodes)
        return StopReason.LATENCY, f"{more} more did not make a tuple's way shorter; {evidence}"
    if len(rounds) >= most_rounds:
        return StopReason.ROUNDS, f"not met in {most_rounds} rounds; {evidence}"
    return None


def _shorter(before: DeployRound, after: DeployRound) -> bool:
    """Whether more nodes made a tuple's way shorter by as much as can be told from noise. A round that was short of
    something else says nothing of that."""
    was, now = before.reading.latency_ms, after.reading.latency_ms
    alike = before.analysis.shortage is ShortOf.LATENCY and after.plan.nodes > before.plan.nodes
    return not alike or was is None or now is None or now < LESS * was


def _next_plan(
    costs: dict[str, float],
    rounds: Sequence[DeployRound],
    planner: RoundPlanner,
    plan_for: Callable[[Mapping[str, float]], DeployPlan],
) -> tuple[dict[str, float], DeployPlan]:
    """A plan with these costs; where it is the one before, with costs raised until it is another or they stay."""
    plan = plan_for(costs)
    for _ in range(MOST_RAISES if rounds else 0):
        last = rounds[-1]
        raised = planner.next_costs(costs, last.plan, last.reading, last.analysis)
        if not plan.same_as(last.plan) or raised == costs:
            break
        costs, plan = raised, plan_for(raised)
    return costs, plan


# Models whose tuples cost more than was profiled. An operator that shares its model with others of the pipeline
# raises it for all of them: the highest factor counts.


def costlier(library: ModelLibrary, pipeline: Pipeline, factors: Mapping[str, float]) -> ModelLibrary:
    by_model: dict[str, float] = {}
    for name, operator in pipeline.operators.items():
        model = library.name_for(pipeline.name, name, operator.model)
        by_model[model] = max(by_model.get(model, 0.0), factors.get(name, 1.0))
    return ModelLibrary.of(
        [_slower(model, by_model.get(model.name, 1.0)) for model in library.models.values()],
        [_dearer(profile, by_model.get(profile.name, 1.0)) for profile in library.profiles.values()],
    )


def _slower(model: Model, factor: float) -> Model:
    """I(t) / factor; CPU and memory at the peak are the same, so a tuple takes factor times as much of both."""
    points = tuple(
        point.model_copy(
            update={
                "rate": point.rate / factor,
                "rate_spread": None if point.rate_spread is None else point.rate_spread / factor,
            }
        )
        for point in model.points
    )
    return replace(model, points=points)


def _dearer(profile: TaskProfile, factor: float) -> TaskProfile:
    return profile.model_copy(
        update={
            "sojourn_seconds": profile.sojourn_seconds * factor,
            "processing_cpu": profile.processing_cpu * factor,
            "moving_cpu": profile.moving_cpu * factor,
        }
    )


# Task profiles of operators from one report of a run; P-Deployer measures them every tenth of a minute.
#
# t_soj = seconds at work / tuples                                  thread time of a tuple
# c_p  <= 100 * min(seconds at work, CPU of all slots) / tuples     equal if an operator computes all the time
# c_t   = 100 * CPU of the engine / tuples of all operators         moving and handing over are not separated
# m_pt  = memory of the slots * (own tuples / all) / (tuples/s received and sent)
#
# Only the duration of an operator's calls is measured, not their CPU: c_p is an upper bound, too high for an operator
# that waits.


def task_profiles(report: Report, counted_seconds: float) -> Mapping[str, TaskProfile]:
    """Of every operator that got tuples; none of a run that did nothing. Tuples were counted for `counted_seconds`,
    everything else for the seconds of the report."""
    seen = {name: work for name, work in report.operators.items() if work.received > 0}
    handled = sum(work.received + work.sent for work in seen.values())
    received = sum(work.received for work in seen.values())
    if not seen or report.seconds <= 0:
        return {}
    longer = counted_seconds / report.seconds
    slots_cpu = sum(cpu for cpu, _ in report.slots.values()) * report.seconds
    memory = sum(held for _, held in report.slots.values())
    return {
        name: TaskProfile(
            name=name,
            sojourn_seconds=longer * work.busy_seconds / work.received,
            processing_cpu=100 * longer * min(work.busy_seconds, slots_cpu) / work.received,
            moving_cpu=100 * (report.engine_cpu or 0.0) * counted_seconds / received,
            memory_mb=memory / handled * counted_seconds,
        )
        for name, work in seen.items()
    }


# Measured costs: the planned rate of an operator over its true rate.
#
# cost_n = cost * planned rate / true rate        true rate = tuples received / part of the time at work
#
# Computed for every operator busy enough to measure. One round covers them all, so the next plan is right unless the
# bottleneck changes with the plan.


@dataclass(frozen=True)
class MeasuredCosts:
    name: ClassVar[str] = "measured"

    least_busy: float = 0.05
    """Below, what is measured is mostly overhead."""
    most: float = 20.0
    """A round raises a cost by no more: a reading beyond that is not believed."""

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]:
        return {name: self._cost(name, cost, plan, reading) for name, cost in costs.items()}

    def _cost(self, name: str, cost: float, plan: DeployPlan, reading: RoundReading) -> float:
        seen, planned = reading.operators.get(name), plan.capacity.get(name)
        if seen is None or planned is None or seen.busy < self.least_busy or seen.received <= 0:
            return cost
        return cost * min(self.most, max(1.0, planned / seen.true_rate))


@dataclass(frozen=True)
class PublishedCosts:
    """P-Deployer as published: raise the unit costs of an operator that falls short, by a tenth per round."""

    name: ClassVar[str] = "published"

    factor: float = 1.1

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]:
        return {name: cost * (self.factor if name in analysis.short else 1.0) for name, cost in costs.items()}
