"""The fleet as the page shows it: one row for every pipeline, totals, and a short trail of rates for each."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from penstock.control.core.records import EngineName, NodePhase, PipelineState
from penstock.control.metrics import WINDOW_SECONDS, Metric
from penstock.control.sizing import ModelSizing, pipeline_of
from penstock.control.store import schema
from penstock.control.store.metric_history import Means
from penstock.modelling.library import demands_to_run
from penstock.modelling.model import Model
from penstock.planning.prediction.placement import peak
from penstock.planning.registry import ALLOCATORS, DEFAULT_ALLOCATOR
from penstock.service import documents
from penstock.service.pages import charts as graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.controller import Controller
    from penstock.control.core.messages import StepOutcome
    from penstock.control.core.records import ControllerState, NodeRecord, PipelineRecord
    from penstock.control.store.store import Store
    from penstock.planning.allocation.contract import OperatorAllocation


TRAIL_LENGTH = 60
TRAIL_SECONDS = 5.0
"""Seconds of the controller's clock between two points of a trail."""


class Trails:
    """The last rates of every pipeline, for the small charts of the list."""

    def __init__(self, controller: Controller) -> None:
        self._clock = controller.clock
        self._trails: dict[str, deque[float]] = {}
        self._sampled = float("-inf")
        controller.watch(self._sample)

    def _sample(self, step: StepOutcome) -> None:
        now = self._clock.now()
        if now - self._sampled < TRAIL_SECONDS:
            return
        self._sampled = now
        for name, record in step.state.pipelines.items():
            trail = self._trails.setdefault(name, deque(maxlen=TRAIL_LENGTH))
            trail.append(record.readings.get(Metric.RATE, 0.0))
        for name in set(self._trails) - set(step.state.pipelines):
            del self._trails[name]

    def of(self, name: str) -> list[float]:
        return list(self._trails.get(name, ()))


def cost_per_hour(slots: Iterable[Slot], nodes: Mapping[str, NodeRecord]) -> float | None:
    """Sum over slots held of price(node) / slots(node); None if a node has no price."""
    total = 0.0
    for slot in slots:
        node = nodes.get(slot.node)
        if node is None or node.price is None:
            return None
        total += node.price / node.slots
    return total


def lag_seconds(record: PipelineRecord) -> float | None:
    """backlog / rate: how long what waits will take at the present rate."""
    backlog, rate = record.readings.get(Metric.BACKLOG), record.readings.get(Metric.RATE)
    if backlog is None or rate is None:
        return None
    if backlog <= 0:
        return 0.0
    return backlog / rate if rate > 0 else None


def row(state: ControllerState, record: PipelineRecord, trails: Trails) -> dict[str, Any]:
    readings = record.readings
    return {
        "name": record.name,
        "state": str(record.state),
        "since": record.since,
        "paused": record.paused,
        "priority": record.priority,
        "target": asdict(record.target),
        "rate": readings.get(Metric.RATE),
        "offered_rate": readings.get(Metric.OFFERED_RATE),
        "backlog": readings.get(Metric.BACKLOG),
        "lag_s": lag_seconds(record),
        "latency_ms": readings.get(Metric.LATENCY_MS),
        "busy": readings.get(Metric.BUSY),
        "held": state.units(record.held),
        "needed": record.needed,
        "desired": record.desired,
        "cost_per_hour": cost_per_hour(record.held, state.nodes),
        "fairness": record.served.degree,
        "waiting": record.waiting,
        "meets": meets_target(record),
        "trail": trails.of(record.name),
    }


def meets_target(record: PipelineRecord) -> bool | None:
    """Keeps up with what arrives, up to its target's rate, within its target's latency; None if it has no target or
    no readings."""
    target, readings = record.target, record.readings
    if (target.rate is None and target.latency_ms is None) or Metric.RATE not in readings:
        return None
    if record.state is not PipelineState.ACTIVE:
        return False
    latency = readings.get(Metric.LATENCY_MS)
    if target.latency_ms is not None and latency is not None and latency > target.latency_ms:
        return False
    wanted = min(target.rate or float("inf"), readings.get(Metric.OFFERED_RATE, target.rate or 0.0))
    return readings[Metric.RATE] >= 0.95 * wanted


def fleet(controller: Controller, trails: Trails) -> dict[str, Any]:
    state = controller.state
    records = [record for record in state.pipelines.values() if record.state is not PipelineState.KILLED]
    held = [slot for record in records for slot in record.held]
    return {
        "at": controller.clock.now(),
        "policy": documents.policy(state.policy),
        "units": {
            "all": state.capacity,
            "held": state.units(tuple(held)),
            "desired": sum(record.desired for record in records if not record.paused),
        },
        "nodes": dict(Counter(str(node.state) for node in state.nodes.values() if node.state is not NodePhase.GONE)),
        "states": dict(Counter(str(record.state) for record in records)),
        "rate": sum(record.readings.get(Metric.RATE, 0.0) for record in records),
        "cost_per_hour": cost_per_hour(held, state.nodes),
        "pipelines": [row(state, record, trails) for record in sorted(records, key=lambda record: record.number)],
    }


# The page of one pipeline: graph, figures of operators, slots of threads.


def one_pipeline(controller: Controller, record: PipelineRecord) -> dict[str, Any]:
    state = controller.state
    page: dict[str, Any] = {
        "at": controller.clock.now(),
        "pipeline": {
            **documents.pipeline(state, record),
            "cost_per_hour": cost_per_hour(record.held, state.nodes),
            "lag_s": lag_seconds(record),
            "meets": meets_target(record),
            "busy": record.readings.get(Metric.BUSY),
            "pending_priority": record.pending_priority,
        },
        "capacity": controller.sizing.rate_on(record.submission, state.units(record.held)) if record.held else None,
    }
    if record.submission.engine is EngineName.ATTACHED:
        # only Spark knows its graph
        return {**page, "graph": None, "operators": {}}
    pipeline = pipeline_of(record.submission)
    return {**page, "graph": graph.drawn(pipeline), "operators": operators(controller, record)}


def operators(controller: Controller, record: PipelineRecord) -> dict[str, dict[str, Any]]:
    """Activity of each operator: as its executors report it, else as the models predict for its rate.

    busy = rate of the operator / what its threads can do on the units held
    """
    backlog = record.readings.get(Metric.BACKLOG)
    rows: dict[str, dict[str, Any]] = {}
    pipeline = pipeline_of(record.submission)
    modelled, measured = _modelled(controller, record), controller.statistics.operators(record)
    for name, operator in pipeline.operators.items():
        values = dict(modelled.get(name, {}))
        reported = _reported(measured.get(name, {}))
        if operator.kind == "source" and "backlog" not in reported and backlog is not None:
            # rows that were not read yet wait before the source
            values["backlog"] = backlog
        rows[name] = {**values, **reported, "measured": bool(reported)}
    return rows


def _reported(values: Mapping[str, float]) -> dict[str, float]:
    """Convert reported values. The rate is the input rate; that of a source, which has no input, its output rate."""
    reported = {str(what): values[what] for what in (Metric.BUSY, Metric.BACKLOG, Metric.THREADS) if what in values}
    rate = values.get(Metric.RATE_IN) or values.get(Metric.RATE_OUT)
    return reported if rate is None else {**reported, "rate": rate}


def _modelled(controller: Controller, record: PipelineRecord) -> dict[str, dict[str, Any]]:
    sizing, units = controller.sizing, controller.state.units(record.held)
    if not isinstance(sizing, ModelSizing) or (planner := sizing.planner(record.submission)) is None:
        return {}
    rate, capacity = record.readings.get(Metric.RATE, 0.0), sizing.rate_on(record.submission, units) if units else None
    if not capacity:
        return {}
    demands = demands_to_run(planner.pipeline, sizing.library)
    allocation = planner.allocate(capacity, ALLOCATORS.create(DEFAULT_ALLOCATOR))
    modelled = {}
    for operator in allocation.operators:
        demand, part = demands[operator.name], rate / capacity
        through = operator.rate * part
        most = _most(operator, demand) if isinstance(demand, Model) else 0.0
        modelled[operator.name] = {
            "rate": through,
            "threads": operator.threads,
            "busy": min(1.0, through / most) if most > 0 else None,
            "cpu": operator.cpu * part,
        }
    return modelled


def _most(operator: OperatorAllocation, model: Model) -> float:
    return sum(count * peak(model, bundle.threads) for count, bundle in operator.bundles)


def seats(controller: Controller, record: PipelineRecord) -> dict[str, Any]:
    """Slots of its threads. Fused: every slot runs the whole pipeline on its share of the stream."""
    operators = list(pipeline_of(record.submission).operators)
    placed = record.submission.engine is EngineName.PLACED
    planned = _planned_seats(controller, record) if placed else None
    slots = []
    for number, slot in enumerate(record.held):
        threads = None if planned is None or number >= len(planned) else planned[number]
        slots.append({"node": slot.node, "slot": slot.number, "threads": threads})
    return {"engine": str(record.submission.engine), "every_slot_runs": None if planned else operators, "slots": slots}


def _planned_seats(controller: Controller, record: PipelineRecord) -> list[dict[str, int]] | None:
    """The plan's bundles in the order of the slots that are held."""
    from penstock.base.errors import Refusal  # noqa: PLC0415 - next to its one use
    from penstock.planning.registry import DEFAULT_PLACER, PLACERS  # noqa: PLC0415 - heavy, and rarely needed

    sizing = controller.sizing
    if not isinstance(sizing, ModelSizing) or (planner := sizing.planner(record.submission)) is None:
        return None
    rate = sizing.rate_on(record.submission, controller.state.units(record.held))
    plan = planner.plan(rate or 1.0, ALLOCATORS.create(DEFAULT_ALLOCATOR), PLACERS.create(DEFAULT_PLACER))
    return None if isinstance(plan, Refusal) else [entry["threads"] for entry in plan.document()["placement"]]


# The page of the cluster: racks, nodes, slots and their holders.


def cluster_map(state: ControllerState, nodes_now: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A slot has one holder, or one it is promised to, or none. `nodes_now`: documents of the nodes, for resources."""
    resources = {document["name"]: document["resources"] for document in nodes_now}
    holders: dict[Slot, str] = {}
    promised: dict[Slot, str] = {}
    for record in state.pipelines.values():
        holders.update(dict.fromkeys(record.held, record.name))
        promised.update(dict.fromkeys(record.may_hold, record.name))
    racks: dict[str, list[dict[str, Any]]] = {}
    for node in state.nodes.values():
        if node.state is NodePhase.GONE:
            continue
        slots: list[dict[str, Any] | None] = [None] * node.slots
        for held, table in ((False, promised), (True, holders)):
            for number in range(node.slots):
                holder = table.get((node.name, number))  # type: ignore[call-overload] # a Slot is such a pair
                if holder is not None:
                    slots[number] = {"pipeline": holder, "held": held}
        racks.setdefault(node.rack, []).append(
            {
                "name": node.name,
                "state": str(node.state),
                "since": node.since,
                "price": node.price,
                "capacity": dict(node.capacity),
                "resources": resources.get(node.name, {}),
                "slots": slots,
            }
        )
    return {"unit_slots": state.unit_slots, "racks": [{"name": name, "nodes": nodes} for name, nodes in racks.items()]}


# The page of decisions: newest first, with reason, rejected alternatives, expected and measured result.


OUTCOME_SECONDS = 60.0
"""The measured result of a decision is the mean over this long, from when its first row was through."""
AFTERWARDS = (Metric.RATE, Metric.HELD, Metric.LATENCY_MS, Metric.BACKLOG, Metric.OFFERED_RATE)


def decision_log(
    store: Store, pipeline: str = "", kind: str = "", before: int | None = None, most: int = 50
) -> list[dict[str, Any]]:
    """`before` is the number of a decision: only older ones."""
    table = schema.decisions
    question = select(table).order_by(table.c.number.desc()).limit(most)
    if pipeline:
        question = question.where(table.c.pipeline == pipeline)
    if kind:
        question = question.where(table.c.kind == kind)
    if before is not None:
        question = question.where(table.c.number < before)
    rows = store.read(question)
    return [{**documents.decision_row(row), "did": _did(store, row)} for row in rows]


def _did(store: Store, row: dict[str, Any]) -> dict[str, float] | None:
    """Measured result of a decision; None if it changed no share, or nothing was measured after it yet."""
    if not row["pipeline"] or row["kind"] in {"priority", "scale", "nothing"}:
        return None
    start = row["at"] + sum((row["overhead"] or {}).values()) + WINDOW_SECONDS
    means = Means()
    for _, _, readings in store.windows(row["pipeline"], start, start + OUTCOME_SECONDS):
        own = readings.get("", {})
        means.add("", ((str(metric), own[metric]) for metric in AFTERWARDS if metric in own))
    return means.readings().get("") or None
