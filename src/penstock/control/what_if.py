"""What would happen if: the core goes on from now in simulated time, once as it is and once with a change.

The same code decides, on a copy; nothing of the controller, its store or its executors is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.control.core.messages import Amend, NodeJoined, NodeLost, SetPolicy, TimePassed
from penstock.control.core.orders import orders
from penstock.control.core.records import NodePhase, NodeRecord, PipelineState, ServiceTarget
from penstock.control.core.step import guarded_step
from penstock.control.executors.simulated import SimulatedExecutors, Times
from penstock.control.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.contracts import Sizing
    from penstock.control.core.messages import Decision, Incoming
    from penstock.control.core.records import ControllerState, PipelineRecord

MOST_SECONDS = 1800.0
STEP_SECONDS = 1.0
SHOWN = (Metric.RATE, Metric.OFFERED_RATE, Metric.BACKLOG, Metric.LATENCY_MS)
MOST_DECISIONS = 50
MAX_WORK = 20_000_000
"""Nodes times seconds times pipelines: about ten seconds of one core."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is changed; None leaves a thing as it is."""

    pipeline: str
    rate: float | None = None
    """Its load and its target from now on."""
    priority: int | None = None
    nodes: int | None = None
    """Of the whole cluster."""
    sharing: str | None = None
    seconds: float = 300.0


@dataclass
class WhatIfOutcome:
    """What happened to everybody, and over time to the pipeline that was asked about."""

    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    series: dict[str, list[float | None]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    state: ControllerState | None = None


def check_work(state: ControllerState, question: Question) -> None:
    """Raise if the answer would take too long."""
    nodes = max(node_count(state.nodes), question.nodes or 0)
    pipelines = sum(_lives(record) for record in state.pipelines.values())
    if nodes * question.seconds * pipelines > MAX_WORK:
        raise BadInputError(
            f"seconds: {nodes} nodes for {question.seconds:g} s with {pipelines} pipelines are too much to simulate; "
            f"ask for at most {MAX_WORK // (nodes * pipelines)} s, or for fewer nodes"
        )


def as_it_is(state: ControllerState, sizing: Sizing, question: Question, now: float) -> WhatIfOutcome:
    return _outcome(state, sizing, [], question, now)


def with_change(state: ControllerState, sizing: Sizing, question: Question, now: float) -> WhatIfOutcome:
    """Raises what the controller itself would refuse with."""
    return _outcome(state, sizing, requests(state, question, now), question, now)


def requests(state: ControllerState, question: Question, now: float) -> list[Incoming]:
    """The question as what people and nodes would say."""
    if not 0 < question.seconds <= MOST_SECONDS:
        raise BadInputError(
            f"seconds: expected a number above 0 and at most {MOST_SECONDS:g}, found {question.seconds:g}"
        )
    asked: list[Incoming] = []
    if question.sharing is not None:
        asked.append(SetPolicy(replace(state.policy, sharing=question.sharing)))
    if question.nodes is not None:
        asked += _nodes(state, question.nodes, now)
    record = state.pipelines[question.pipeline]
    if question.rate is not None:
        target = ServiceTarget(question.rate, record.target.latency_ms)
        asked.append(Amend(question.pipeline, target, load=f"{question.rate:g}"))
    if question.priority is not None:
        asked.append(Amend(question.pipeline, priority=question.priority))
    return asked


def _nodes(state: ControllerState, count: int, now: float) -> list[Incoming]:
    """More nodes like the last one, or fewer from the end."""
    alive = list(state.alive())
    if not 1 <= count <= 10_000:
        raise BadInputError(f"nodes: expected a whole number from 1 to 10000, found {count}")
    if not alive:
        raise BadInputError("nodes: no node is alive, so there is none to take as an example")
    if count <= len(alive):
        return [NodeLost(node.name) for node in alive[count:]]
    names = (f"what-if-{number}" for number in range(1, count - len(alive) + 1))
    return [NodeJoined(replace(alive[-1], name=name, state=NodePhase.JOINING, since=now)) for name in names]


def _outcome(
    state: ControllerState, sizing: Sizing, happens: list[Incoming], question: Question, now: float
) -> WhatIfOutcome:
    """1. everybody as it stands  2. the change  3. second by second, as the controller would live it."""
    present = _following_load(state)
    backlogs = {name: record.readings.get(Metric.BACKLOG, 0.0) for name, record in present.pipelines.items()}
    executors = SimulatedExecutors(sizing, state.unit_slots, Times(0.0, 0.0, 0.0, 0.0), backlogs)
    executors.observe(now)
    executors.want(orders(present), 1)
    executors.settle_in(Times())
    outcome = WhatIfOutcome(series={"at": [], "held": [], **{str(metric): [] for metric in SHOWN}})
    began = now
    while True:
        made = guarded_step(present, [*happens, *executors.observe(now), TimePassed()], now, sizing).outcome
        happens, present = [], made.state
        outcome.decisions += made.decisions[: MOST_DECISIONS - len(outcome.decisions)]
        executors.want(orders(present), 1)
        _note(outcome, present, question.pipeline, now - began)
        if now - began >= question.seconds:
            break
        now += STEP_SECONDS
    outcome.ends = {name: _end(present, record) for name, record in present.pipelines.items() if _lives(record)}
    outcome.state = present
    return outcome


def _following_load(state: ControllerState) -> ControllerState:
    """What arrives now goes on arriving where nobody said what is to come."""
    pipelines: dict[str, PipelineRecord] = {}
    for name, record in state.pipelines.items():
        offered = record.readings.get(Metric.OFFERED_RATE)
        follows = record.load is None and offered is not None and offered > 0
        pipelines[name] = replace(record, load=f"{offered:g}") if follows else record
    return replace(state, pipelines=MappingProxyType(pipelines))


def _lives(record: PipelineRecord) -> bool:
    return record.state not in {PipelineState.KILLED, PipelineState.ENDING}


def _note(outcome: WhatIfOutcome, state: ControllerState, name: str, at: float) -> None:
    record = state.pipelines[name]
    values: Mapping[str, float | None] = {
        "at": at,
        "held": float(state.units(record.held)),
        **{str(metric): record.readings.get(metric) for metric in SHOWN},
    }
    for what, value in values.items():
        outcome.series[what].append(value)


def _end(state: ControllerState, record: PipelineRecord) -> dict[str, Any]:
    return {
        "state": str(record.state),
        "held": state.units(record.held),
        "needed": record.needed,
        "desired": record.desired,
        "priority": record.priority,
        "waiting": record.waiting,
        **{str(metric): record.readings.get(metric) for metric in SHOWN},
    }


def node_count(nodes: Mapping[str, NodeRecord]) -> int:
    return sum(1 for node in nodes.values() if node.state is NodePhase.ALIVE)
