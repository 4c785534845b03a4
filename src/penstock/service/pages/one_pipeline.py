"""One pipeline as the page shows it: its graph, what every operator does, and the slots of its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.allocation.pipeline import demands_to_run
from penstock.allocation.registry import ALLOCATORS, DEFAULT_ALLOCATOR
from penstock.control.core.records import Engine
from penstock.control.metrics import Metric
from penstock.control.sizing import ModelSizing, pipeline_of
from penstock.modelling.model import Model
from penstock.prediction.rate import peak
from penstock.service import documents
from penstock.service.pages import graph
from penstock.service.pages.fleet import cost_per_hour, lag_seconds, meets_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.allocation.contract import OperatorAllocation
    from penstock.control.controller import Controller
    from penstock.control.core.records import PipelineRecord


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
    if record.submission.engine is Engine.ATTACHED:
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
    placed = record.submission.engine is Engine.PLACED
    planned = _planned_seats(controller, record) if placed else None
    slots = []
    for number, slot in enumerate(record.held):
        threads = None if planned is None or number >= len(planned) else planned[number]
        slots.append({"node": slot.node, "slot": slot.number, "threads": threads})
    return {"engine": str(record.submission.engine), "every_slot_runs": None if planned else operators, "slots": slots}


def _planned_seats(controller: Controller, record: PipelineRecord) -> list[dict[str, int]] | None:
    """The plan's bundles in the order of the slots that are held."""
    from penstock.errors import Refusal  # noqa: PLC0415 - next to its one use
    from penstock.placement.registry import DEFAULT_PLACER, PLACERS  # noqa: PLC0415 - heavy, and rarely needed

    sizing = controller.sizing
    if not isinstance(sizing, ModelSizing) or (planner := sizing.planner(record.submission)) is None:
        return None
    rate = sizing.rate_on(record.submission, controller.state.units(record.held))
    plan = planner.plan(rate or 1.0, ALLOCATORS.create(DEFAULT_ALLOCATOR), PLACERS.create(DEFAULT_PLACER))
    return None if isinstance(plan, Refusal) else [entry["threads"] for entry in plan.document()["placement"]]
