"""Deploy a pipeline in rounds until it reaches its target: plan, acquire nodes, run, analyse, correct the costs, plan
again (P-Deployer's loop).

Plans, nodes and readings come from functions, so the same loop deploys on Spark and in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.errors import PenstockError, RefusedError
from penstock.control.contracts import ProviderError
from penstock.dataflow.pipeline import Kind
from penstock.modelling.library import ModelLibrary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.contracts import RoundPlanner
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile
    from penstock.report.listener import Listener


@dataclass(frozen=True, slots=True)
class DeployTarget:
    rate: float
    """Rows/s of every source."""
    latency_ms: float | None = None
    budget: int = 16
    """Nodes."""


@dataclass(frozen=True, slots=True)
class OperatorReading:
    received: float
    """Rows/s."""
    busy: float
    """Part of the time its threads were at work."""
    threads: int
    kind: Kind = Kind.OPERATOR
    process: float = 0.0
    """Cores that the fullest of its processes used. A process of Python works on one."""
    process_part: float = 0.0
    """Its own part of these, if others run in that process."""

    @property
    def used(self) -> float:
        """Utilisation: that of its threads, or its part of the core of its process."""
        return max(self.busy, min(1.0, self.process_part))

    @property
    def fullest(self) -> float:
        """Utilisation of its threads, or of the core of its process with all operators in it."""
        return max(self.busy, min(1.0, self.process))

    @property
    def true_rate(self) -> float:
        """Rows/s it would do if it were in use all the time: received / used."""
        return self.received / self.used if self.used > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class RoundReading:
    """Figures of a deployment once it had settled."""

    throughput: float
    """Rows/s, the mean of the readings."""
    latency_ms: float | None
    """95th percentile at the target's rate; None: not measured."""
    stable: bool
    operators: Mapping[str, OperatorReading]
    node_cpu: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Part of each node's CPU that was used."""
    profiles: Mapping[str, TaskProfile] = field(default_factory=lambda: MappingProxyType({}))
    """Costs of a row, by operator."""
    offered: float | None = None
    """Rows/s that were offered; of topics, that arrived."""
    machine_cpu: float | None = None
    """Part of this machine's CPU that the run used, if all nodes are processes of this machine."""
    profiling_cost: float | None = None
    """Part of the CPU of the pipeline's processes that measuring the profiles took."""
    readings: tuple[float, ...] = ()
    """Rows/s, reading by reading."""
    lost_nodes: tuple[str, ...] = ()
    """Nodes that died during the round: the plan was not executed as it was made."""


class ShortOf(StrEnum):
    NOTHING = "nothing"
    OPERATOR = "operator"
    NODE = "node"
    """The CPU of a node."""
    MACHINE = "machine"
    """The CPU of this machine, which all nodes share."""
    SOURCE = "source"
    SINK = "sink"
    LATENCY = "latency"
    ENGINE = "engine"
    """Neither an operator nor a node is at its limit: more of them would not help."""
    LOST_NODE = "lost-node"
    """A node died during the round: its figures are not those of the plan."""


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
    """Rows/s every operator does by the models it was planned with."""
    made: Any = None

    def same_as(self, other: DeployPlan) -> bool:
        return self.nodes == other.nodes and dict(self.threads) == dict(other.threads)

    def placement(self) -> list[dict[str, Any]]:
        """Return node, slot and threads of every slot; nothing if it was not placed."""
        return [] if self.made is None else list(self.made.document()["placement"])


class StopReason(StrEnum):
    MET = "met"
    BUDGET = "over-budget"
    ROUNDS = "out-of-rounds"
    SAME_PLAN = "same-plan"
    ENGINE = "engine-bound"
    MACHINE = "machine-full"
    SOURCE = "source-bound"
    SINK = "sink-bound"
    LATENCY = "latency-bound"
    """More nodes do not make a row's way shorter."""
    UNPLACEABLE = "unplaceable"
    PROVIDER = "no-nodes"
    """The provider gave no nodes, or too few."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"


END_OF_SHORTAGE = {
    ShortOf.ENGINE: StopReason.ENGINE,
    ShortOf.MACHINE: StopReason.MACHINE,
    ShortOf.SOURCE: StopReason.SOURCE,
    ShortOf.SINK: StopReason.SINK,
}
"""Shortages that no other plan ends."""


class InterruptedRoundError(PenstockError):
    """A signal asked for the end while a round ran."""


@dataclass(frozen=True, slots=True)
class DeployRound:
    number: int
    plan: DeployPlan
    reading: RoundReading
    analysis: Analysis

    def document(self, target: DeployTarget) -> dict[str, Any]:
        plan, reading, analysis = self.plan, self.reading, self.analysis
        return {
            "round": self.number,
            "nodes": plan.nodes,
            "threads": dict(plan.threads),
            "placement": plan.placement(),
            "offered": reading.offered,
            "throughput": reading.throughput,
            "readings": list(reading.readings),
            "part_of_target": reading.throughput / target.rate,
            "latency_ms": reading.latency_ms,
            "operators": {
                name: {"received": seen.received, "busy": seen.busy, "process": seen.process, "threads": seen.threads}
                for name, seen in reading.operators.items()
            },
            "node_cpu": dict(reading.node_cpu),
            "machine_cpu": reading.machine_cpu,
            "met": analysis.met,
            "shortage": str(analysis.shortage),
            "short": list(analysis.short),
            "evidence": analysis.evidence,
            "lost_nodes": list(reading.lost_nodes),
            "profiling_cost": reading.profiling_cost,
            "profiles": {
                name: profile.model_dump(
                    mode="json", include={"sojourn_seconds", "processing_cpu", "moving_cpu", "memory_mb"}
                )
                for name, profile in reading.profiles.items()
            },
        }


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
        """The round with the largest part of the rate; ties go to the shortest latency in two digits, then to the
        smallest number of nodes."""

        def rank(done: DeployRound) -> tuple[float, float, int]:
            latency = done.reading.latency_ms
            taken = inf if latency is None else float(f"{latency:.2g}")
            return min(done.reading.throughput, self.target.rate), -taken, -done.plan.nodes

        return max(self.rounds, key=rank, default=None)

    @property
    def profiles(self) -> Mapping[str, TaskProfile]:
        """The profile of every operator, as the last round that measured it has it."""
        return {name: profile for done in self.rounds for name, profile in done.reading.profiles.items()}

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
            "rounds": [done.document(self.target) for done in self.rounds],
        }


# Analysis of a round: the target met, or the shortage, with the evidence.


BUSY = 0.8
"""Part of the time from which on an operator in use is short, if the queue grows."""
NODE_BUSY = 0.9
NEARLY = 0.99
"""Part of the target that counts as all of it: the rest is how counting ends."""
ARRIVED = 0.97
"""Part of what arrives that a pipeline takes in if it keeps up."""


def analyse(reading: RoundReading, target: DeployTarget, gains: Mapping[str, float]) -> Analysis:
    """Return whether the target is met, and the shortage if it is not. `gains`: rows an operator receives for one of
    the source."""
    if reading.lost_nodes:
        lost = ", ".join(f"'{node}'" for node in reading.lost_nodes)
        return Analysis(met=False, shortage=ShortOf.LOST_NODE, evidence=f"node {lost} died during the round")
    rate_met = reading.throughput >= NEARLY * target.rate
    taken = float("inf") if reading.latency_ms is None else reading.latency_ms
    if rate_met and (target.latency_ms is None or taken <= target.latency_ms):
        return Analysis(met=True, shortage=ShortOf.NOTHING, evidence=f"{reading.throughput:.4g} rows/s")
    if rate_met:
        evidence = f"the rate is met, a row takes {taken:.0f} ms of {target.latency_ms:.0f}"
        return Analysis(met=False, shortage=ShortOf.LATENCY, evidence=evidence)
    return _lacking(reading, target, gains)


def _lacking(reading: RoundReading, target: DeployTarget, gains: Mapping[str, float]) -> Analysis:
    """Return what keeps a round below the rate of its target."""
    offered = reading.offered
    if offered is not None and offered < NEARLY * target.rate and reading.throughput >= ARRIVED * offered:
        evidence = f"the source gives {offered:.4g} rows/s, {target.rate:.4g} are wanted, and nothing waits"
        return Analysis(met=False, shortage=ShortOf.SOURCE, evidence=evidence)
    if reading.machine_cpu is not None and reading.machine_cpu >= NODE_BUSY:
        most = max(reading.operators, key=lambda name: reading.operators[name].process, default=None)
        where = "" if most is None else f"; the fullest process is that of operator '{most}'"
        evidence = f"the pipeline uses {reading.machine_cpu:.0%} of this machine, which all its nodes share{where}"
        return Analysis(met=False, shortage=ShortOf.MACHINE, evidence=evidence)
    busiest = sorted(reading.operators.items(), key=lambda entry: entry[1].fullest, reverse=True)
    short = tuple(name for name, operator in busiest if _is_short(operator, target.rate * gains.get(name, 1.0)))
    if short:
        return _short_operator(short, reading.operators[short[0]], target.rate * gains.get(short[0], 1.0))
    full = {node: used for node, used in reading.node_cpu.items() if used >= NODE_BUSY}
    if full:
        node = max(full, key=lambda name: full[name])
        evidence = f"node '{node}' uses {full[node]:.0%} of its CPU"
        return Analysis(met=False, shortage=ShortOf.NODE, short=tuple(reading.operators), evidence=evidence)
    seen = f"'{busiest[0][0]}', is in use {busiest[0][1].fullest:.0%}" if busiest else "none, was seen"
    return Analysis(
        met=False,
        shortage=ShortOf.ENGINE,
        evidence=f"nothing is at its limit (the busiest operator, {seen}): the engine is",
    )


def _is_short(operator: OperatorReading, wanted: float) -> bool:
    """Return whether an operator is in use nearly all the time and would do less than is wanted. In a process that is
    full with several operators, all of them are short."""
    if operator.process >= NODE_BUSY and operator.process > operator.busy:
        return operator.received / min(1.0, operator.process) < wanted / NEARLY
    return operator.busy >= BUSY and operator.true_rate < wanted / NEARLY


def _short_operator(short: tuple[str, ...], first: OperatorReading, wanted: float) -> Analysis:
    """Return the shortage of the busiest operator, source or sink; `short[0]` is its name."""
    kind = {Kind.SOURCE: ShortOf.SOURCE, Kind.SINK: ShortOf.SINK}.get(first.kind, ShortOf.OPERATOR)
    at_work = f"is at work {first.busy:.0%} of the time on {first.threads} threads"
    rate = first.true_rate
    if first.process > first.busy:
        at_work, rate = f"fills {first.process:.0%} of the core of its process", first.received / first.fullest
    evidence = f"{kind} '{short[0]}' {at_work}: it does {rate:.4g} rows/s and {wanted:.4g} are wanted"
    return Analysis(met=False, shortage=kind, short=short, evidence=evidence)


MOST_ROUNDS = 8
MOST_RAISES = 20
"""Costs raised by a little may give the same plan: they are raised so often before that is the end."""
LESS = 0.95
"""Times the latency before: no less is no gain."""
ROOM_FOR_LATENCY = 1.25
"""Times the costs if the rate is met and the latency missed: the next plan has room, so that less waits."""


def deploy_in_rounds(
    target: DeployTarget,
    gains: Mapping[str, float],
    planner: RoundPlanner,
    plan_for: Callable[[Mapping[str, float]], DeployPlan],
    execute: Callable[[DeployPlan], RoundReading],
    *,
    provide: Callable[[Mapping[str, float], DeployPlan], DeployPlan] | None = None,
    most_rounds: int = MOST_ROUNDS,
    listener: Listener | None = None,
) -> Deployment:
    """Run rounds until the target is met, or no other plan would help.

    `plan_for` raises `RefusedError` if the costs cannot be placed on any number of nodes. `provide` acquires the nodes
    of a plan and returns it on those that came, which may be smaller than asked for, and so more. An error of the
    provider or of a round, and Ctrl-C, end the rounds and keep the best.
    """
    costs = dict.fromkeys(gains, 1.0)
    rounds: list[DeployRound] = []
    try:
        while True:
            costs, plan = _next_plan(costs, rounds, planner, plan_for)
            _check_budget(plan, target, rounds)
            if rounds and plan.same_as(rounds[-1].plan) and not rounds[-1].reading.lost_nodes:
                why = f"planning again gives the same plan; {rounds[-1].analysis.evidence}"
                raise _Stopped(StopReason.SAME_PLAN, why)
            if provide is not None:
                plan = provide(costs, plan)
                _check_budget(plan, target, rounds)
            reading = execute(plan)
            rounds.append(DeployRound(len(rounds) + 1, plan, reading, analyse(reading, target, gains)))
            _report(rounds[-1], listener)
            _check_use(rounds, most_rounds)
            costs = _next_costs(costs, planner, rounds[-1])
    except _Stopped as end:
        reason, why = end.reason, end.why
    except RefusedError as refused:
        reason, why = StopReason.UNPLACEABLE, str(refused)
    except ProviderError as error:
        reason, why = StopReason.PROVIDER, str(error)
    except (InterruptedRoundError, KeyboardInterrupt):
        reason, why = StopReason.INTERRUPTED, f"interrupted in round {len(rounds) + 1}"
    except PenstockError as error:
        reason, why = StopReason.FAILED, f"round {len(rounds) + 1} failed: {error}"
    return Deployment(target, planner.name, tuple(rounds), reason, why)


class _Stopped(Exception):  # noqa: N818 - no error: how rounds end
    def __init__(self, reason: StopReason, why: str) -> None:
        super().__init__(why)
        self.reason, self.why = reason, why


def _check_budget(plan: DeployPlan, target: DeployTarget, rounds: Sequence[DeployRound]) -> None:
    if plan.nodes > target.budget:
        last = f"; {rounds[-1].analysis.evidence}" if rounds else ""
        why = f"the plan takes {_nodes(plan.nodes)}, the budget is {target.budget}{last}"
        raise _Stopped(StopReason.BUDGET, why)


def _report(done: DeployRound, listener: Listener | None) -> None:
    if listener is not None:
        short = "" if done.analysis.met else f"; {done.analysis.evidence}"
        rate, where = f"{done.reading.throughput:,.4g} rows/s", _nodes(done.plan.nodes)
        listener.on_message(f"round {done.number}: {rate} on {where}{short}")


def _next_costs(costs: dict[str, float], planner: RoundPlanner, last: DeployRound) -> dict[str, float]:
    """Return the costs after a round that missed its target. A round that lost a node changes none."""
    if last.analysis.shortage is ShortOf.LOST_NODE:
        return costs
    if last.analysis.shortage is ShortOf.LATENCY:
        return {name: cost * ROOM_FOR_LATENCY for name, cost in costs.items()}
    return planner.next_costs(costs, last.plan, last.reading, last.analysis)


def _nodes(count: int) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}"


def _check_use(rounds: Sequence[DeployRound], most_rounds: int) -> None:
    """End the rounds if the target is met, or if another would not help or is not to be made."""
    last = rounds[-1]
    evidence, shortage = last.analysis.evidence, last.analysis.shortage
    if last.analysis.met:
        raise _Stopped(StopReason.MET, f"in round {last.number} on {_nodes(last.plan.nodes)}")
    if shortage in END_OF_SHORTAGE:
        raise _Stopped(END_OF_SHORTAGE[shortage], evidence)
    if shortage is ShortOf.LATENCY and len(rounds) > 1 and not _shorter(rounds[-2], last):
        more = _nodes(last.plan.nodes - rounds[-2].plan.nodes)
        raise _Stopped(StopReason.LATENCY, f"{more} more did not make a row's way shorter; {evidence}")
    if len(rounds) >= most_rounds:
        raise _Stopped(StopReason.ROUNDS, f"not met in {most_rounds} rounds; {evidence}")


def _shorter(before: DeployRound, after: DeployRound) -> bool:
    """Return whether more nodes made a row's way shorter by more than noise. True if the round before was short of
    something else."""
    was, now = before.reading.latency_ms, after.reading.latency_ms
    alike = before.analysis.shortage is ShortOf.LATENCY and after.plan.nodes > before.plan.nodes
    return not alike or was is None or now is None or now < LESS * was


def _next_plan(
    costs: dict[str, float],
    rounds: Sequence[DeployRound],
    planner: RoundPlanner,
    plan_for: Callable[[Mapping[str, float]], DeployPlan],
) -> tuple[dict[str, float], DeployPlan]:
    """Return a plan with these costs; if it is the one before, with costs raised until it is another or they stay."""
    plan = plan_for(costs)
    for _ in range(MOST_RAISES if rounds and not rounds[-1].reading.lost_nodes else 0):
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
    keyed = model.measured_on.keyed_us
    measured_on = model.measured_on.model_copy(update={"keyed_us": None if keyed is None else keyed * factor})
    return replace(model, points=points, measured_on=measured_on)


def _dearer(profile: TaskProfile, factor: float) -> TaskProfile:
    return profile.model_copy(
        update={
            "sojourn_seconds": profile.sojourn_seconds * factor,
            "processing_cpu": profile.processing_cpu * factor,
            "moving_cpu": profile.moving_cpu * factor,
        }
    )


# Measured costs: the planned rate of an operator over its true rate.
#
# cost_n = cost * planned rate / true rate        true rate = rows received / part of the time in use
#
# Computed for every operator in use enough to measure. One round covers them all, so the next plan is right unless the
# bottleneck changes with the plan.


@dataclass(frozen=True)
class MeasuredCosts:
    name: ClassVar[str] = "measured"

    least_busy: float = 0.05
    """Utilisation below which a reading is mostly overhead."""
    most: float = 20.0
    """A round raises a cost by no more: a reading beyond that is not believed."""

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]:
        return {name: self._cost(name, cost, plan, reading) for name, cost in costs.items()}

    def _cost(self, name: str, cost: float, plan: DeployPlan, reading: RoundReading) -> float:
        seen, planned = reading.operators.get(name), plan.capacity.get(name)
        if seen is None or planned is None or seen.used < self.least_busy or seen.received <= 0:
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
