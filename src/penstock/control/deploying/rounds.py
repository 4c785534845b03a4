"""The loop of rounds. Plans and readings come from functions it is given: the same loop deploys on Spark and in
simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.deploying.analyse import analyse
from penstock.control.deploying.values import Deployment, DeployRound, ShortOf, StopReason
from penstock.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.deploying.planners.contract import RoundPlanner
    from penstock.control.deploying.values import DeployPlan, DeployTarget, RoundReading
    from penstock.report.listener import Listener

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
