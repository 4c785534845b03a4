"""Answers to requests: records as plain values, with the names others rely on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Slot
from penstock.control.core.elastic_sizes import options_of
from penstock.control.core.records import NodePhase, PipelineState
from penstock.control.core.share_plans import choices_of, plan_document
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.elasticity.readings import BATCH_COST, SLOT_MEMORY
from penstock.control.metrics import Metric, Subject
from penstock.planning.registry import DEFAULT_ALLOCATOR, DEFAULT_PLACED_SEGMENTER, DEFAULT_PLACER
from penstock.planning.replanning.snapshot import SLOT
from penstock.planning.sharing.measures import fairness_degree, jain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.contract import Holder
    from penstock.cluster.contract import NodeState as ManagedNode
    from penstock.control.contracts import SeenNodes, Sizing
    from penstock.control.core.messages import Decision, Event
    from penstock.control.core.records import (
        ControllerState,
        NodeRecord,
        PipelinePlan,
        PipelineRecord,
        PlannedSlot,
        Policy,
        Trigger,
    )
    from penstock.control.elasticity.learned_factor import Learned
    from penstock.control.store.store import Store


def pipeline(state: ControllerState, record: PipelineRecord) -> dict[str, Any]:
    readings = record.readings
    return {
        "name": record.name,
        "state": str(record.state),
        "since": record.since,
        "priority": record.priority,
        "initial_priority": record.initial_priority,
        "target": asdict(record.target),
        "desired": record.desired,
        "minimum": record.minimum,
        "maximum": record.maximum,
        "engine": str(record.submission.engine),
        "load": record.load,
        "options": dict(record.submission.options or {}),
        "needed": record.needed,
        "allocator": (choices := choices_of(record.submission, state.policy)).allocator,
        "placer": choices.placer,
        "segmenter": choices.segmenter,
        "plan": plan_document(record.plan) if record.plan is not None and record.assigned else None,
        "refused": record.refused,
        "granted": record.granted,
        "assigned": state.units(record.assigned),
        "requested": state.units(record.requested),
        "held": state.units(record.held),
        "nodes": sorted({slot.node for slot in record.held}),
        "slots": [[slot.node, slot.number] for slot in record.held],
        "rate": readings.get(Metric.RATE),
        "offered_rate": readings.get(Metric.OFFERED_RATE),
        "backlog": readings.get(Metric.BACKLOG),
        "lag": readings.get(Metric.LAG),
        "latency_ms": readings.get(Metric.LATENCY_MS),
        "fairness": record.served.degree,
        "elastic": elastic(record),
        "waiting": record.waiting,
        "paused": record.paused,
        "deaths": record.deaths,
        "triggers": [trigger(record_of_trigger) for record_of_trigger in record.triggers],
    }


def _learned(figure: Learned | None) -> dict[str, Any] | None:
    """A figure that was learned, beside the profiled one: a thread's tuples/s, a slot's MB."""
    if figure is None:
        return None
    return {"value": figure.value, "spread": figure.spread, "readings": figure.readings, "since": figure.since}


def elastic(record: PipelineRecord) -> dict[str, Any] | None:
    """The elastic settings and state of a pipeline; None if it was submitted with a fixed size."""
    if record.submission.desired is not None:
        return None
    options = options_of(record)
    memory = record.following.memory
    known = {
        "enabled": options.enabled,
        "advise_only": options.advise_only,
        "forecast": options.forecast,
        "units": record.elastic_units,
    }
    if memory is None:
        return known
    smoothed, speed = memory.smoothed, memory.speed
    return {
        **known,
        "level": None if smoothed is None else smoothed.level,
        "spread": None if smoothed is None else smoothed.spread,
        "model": {
            "used": "learned" if speed.counts else "profiled",
            "factor": speed.factor,
            "spread": speed.spread,
            "readings": speed.readings,
            "since": speed.since or None,
            "drift": record.following.drifts.get("speed"),
            "drifts": dict(record.following.drifts),
            "operators": {
                name: _learned(figure)
                for name, figure in record.following.learned.items()
                if name not in {SLOT_MEMORY, BATCH_COST}
            },
            "slot_memory_mb": _learned(record.following.learned.get(SLOT_MEMORY)),
            "batch_cost_s": _learned(record.following.learned.get(BATCH_COST)),
        },
        "change_seconds": memory.change_seconds.value if memory.change_seconds.readings else None,
        "waste_unit_seconds": memory.waste,
        "doublings": memory.doublings,
    }


def trigger(record: Trigger) -> dict[str, Any]:
    kind = find_kind(record.kind)
    given = (*kind.needs, *kind.takes)
    return {
        "id": record.id,
        "kind": record.code if kind.runs_code else record.kind,
        **{name: getattr(record, name) if name in given else None for name in ("above", "below", "share", "field")},
        "for_seconds": record.for_seconds,
        "priority": record.priority,
        "enabled": record.enabled,
        "on": record.on,
        "on_since": record.on_since,
        "by_hand": record.by_hand,
    }


Demand = dict[str, float]
"""Amount of each resource that a pipeline needs on one slot."""


def node(
    record: NodeRecord,
    pipelines: Mapping[int, str],
    seen: ManagedNode | None = None,
    holders: Mapping[int, Holder] | None = None,
    demands: Mapping[Slot, Demand | None] | None = None,
) -> dict[str, Any]:
    """`pipelines`: who may be on each of its slots by the controller's books. `seen`, `holders`: the cluster manager's
    answer. `demands`: what is needed on each slot, by the plan or else the model of the pipeline there."""
    alive = record.state is NodePhase.ALIVE
    held = {*pipelines, *(holders or {})}
    free = [number for number in range(record.slots) if number not in held] if alive else []
    capacity = record.capacity if seen is None else seen.capacity
    return {
        "name": record.name,
        "rack": record.rack,
        "slots": record.slots,
        "free": len(free),
        "free_slots": free,
        "state": str(record.state),
        "since": record.since,
        "capacity": dict(capacity),
        "resources": _resources(record, pipelines, seen, demands or {}, free=len(free)),
        "labels": sorted(seen.labels) if seen is not None else [],
        "price": record.price,
        "pipelines": sorted(set(pipelines.values())),
        "holders": [_holder(number, pipelines, holders or {}) for number in sorted(held)],
    }


def _holder(number: int, pipelines: Mapping[int, str], holders: Mapping[int, Holder]) -> dict[str, Any]:
    """`pipeline`: the one that may hold the slot. `application` and the rest: who holds it, if the manager tells."""
    holder = holders.get(number)
    return {
        "slot": number,
        "pipeline": pipelines.get(number),
        "application": None if holder is None else holder.application,
        "name": None if holder is None else holder.name,
        "cores": None if holder is None else holder.cores,
        "memory_mb": None if holder is None else holder.memory_mb,
    }


def _resources(
    record: NodeRecord,
    pipelines: Mapping[int, str],
    seen: ManagedNode | None,
    demands: Mapping[Slot, Demand | None],
    *,
    free: int,
) -> dict[str, Any]:
    """Return capacity, demand and free amount of every resource.

    Demand is None if it is not known of a pipeline on the node. Free is the manager's figure; without a manager what
    is not demanded, or the part of the free slots if the demand is not known; None if nobody counts.
    """
    known = [demands.get(Slot(record.name, number)) for number in pipelines]
    capacity = record.capacity if seen is None else seen.capacity
    needed = {
        name: sum(each[name] for each in known if each is not None)
        for name in capacity
        if all(each is not None and name in each for each in known)
    }
    left: Mapping[str, float | None]
    if seen is not None:
        left = seen.free
    else:
        left = {
            name: max(0.0, amount - needed[name])
            if name in needed
            else amount * free / record.slots
            if name in {CPU, MEMORY}
            else None
            for name, amount in capacity.items()
        }
    return {
        name: {"capacity": amount, "demand": needed.get(name), "free": left.get(name)}
        for name, amount in capacity.items()
    }


def demands_of(state: ControllerState, sizing: Sizing) -> dict[Slot, Demand | None]:
    """Return what is needed on every slot: by the plan of its pipeline, or else by the models at the rate it reports
    or is meant for."""
    demands: dict[Slot, Demand | None] = {}
    for record in state.pipelines.values():
        slots = record.assigned or record.held
        if record.plan is not None and record.assigned:
            resources = {name for node in state.nodes.values() for name in node.capacity}
            nothing: Demand = dict.fromkeys(resources, 0.0)
            demands.update(dict.fromkeys(slots, nothing))
            demands.update({slot.place: nothing | _planned_demand(record.plan, slot) for slot in record.plan.slots})
        elif slots:
            rate = record.readings.get(Metric.RATE, record.target.rate)
            usage = None if rate is None else sizing.usage(record.submission, rate)
            part = usage and {CPU: CPU_POINTS_PER_SLOT * usage[0] / len(slots), MEMORY: usage[1] / len(slots)}
            demands.update(dict.fromkeys(slots, part))
    return demands


def _planned_demand(plan: PipelinePlan, slot: PlannedSlot) -> Demand:
    """Return what the executor of a slot takes: its threads' demands; of memory what the executor has."""
    threads = slot.threads or {SLOT: 1}
    total: Demand = {}
    for operator, count in threads.items():
        for resource, amount in plan.demands.get(operator, {}).items():
            total[resource] = total.get(resource, 0.0) + count * amount
    return total | {MEMORY: slot.memory_mb}


def nodes(
    state: ControllerState, seen: SeenNodes | None = None, demands: Mapping[Slot, Demand | None] | None = None
) -> list[dict[str, Any]]:
    pipelines: dict[str, dict[int, str]] = {}
    for record in state.pipelines.values():
        for slot in (*record.assigned, *record.may_hold):
            pipelines.setdefault(slot.node, {})[slot.number] = record.name
    holders: dict[str, dict[int, Holder]] = {}
    for slot, holder in ((seen.holdings if seen is not None else None) or {}).items():
        holders.setdefault(slot.node, {})[slot.number] = holder
    managed = seen.nodes if seen is not None else {}
    return [
        node(known, pipelines.get(known.name, {}), managed.get(known.name), holders.get(known.name), demands)
        for known in state.nodes.values()
    ]


def policy(record: Policy) -> dict[str, Any]:
    return {
        "sharing": record.sharing,
        "rescheduling": str(record.rescheduling),
        "default_priority": record.default_priority,
        "placer": record.placer or DEFAULT_PLACER,
        "allocator": record.allocator or DEFAULT_ALLOCATOR,
        "segmenter": record.segmenter or DEFAULT_PLACED_SEGMENTER,
    }


def decision_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A decision as it is stored."""
    return {
        "number": row["number"],
        "at": row["at"],
        "pipeline": row["pipeline"] or None,
        "kind": row["kind"],
        "from": row["before"],
        "to": row["after"],
        "why": row["why"],
        "rejected": row["rejected"],
        "expected": row["expected"],
        "pass": row["pass_number"],
        "overhead": row["overhead"],
    }


def decision(record: Decision) -> dict[str, Any]:
    """A decision as it is made."""
    return decision_row(
        {
            **{name: getattr(record, name) for name in ("number", "at", "pipeline", "before", "after", "why")},
            "kind": str(record.kind),
            "rejected": [asdict(alternative) for alternative in record.rejected],
            "expected": dict(record.expected),
            "pass_number": record.pass_number,
            "overhead": None,
        }
    )


def event_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": row["at"],
        "subject": row["subject"],
        "kind": row["kind"],
        "from": row["before"],
        "to": row["after"],
        "why": row["why"],
    }


def event(record: Event) -> dict[str, Any]:
    return event_row(asdict(record))


def statistics_row(path: str, metric: str, at: float, seconds: int, value: float) -> dict[str, Any]:
    """The mean over `seconds` from `at` on."""
    subject = Subject.of(path)
    named = {key: value for key, value in asdict(subject).items() if value is not None}
    return {
        **named,
        "scope": str(subject.scope),
        "metric": metric,
        "unit": Metric(metric).unit if metric in list(Metric) else None,
        "at": at,
        "seconds": seconds,
        "value": value,
    }


# Fairness of the division: per pipeline and overall, now and over time.


OVER = {PipelineState.KILLED, PipelineState.ENDING, PipelineState.FAILED}


def of_all(degrees: Sequence[float]) -> dict[str, float | None]:
    """The mean of the degrees, the least, and Jain's index of them; None if there are none."""
    if not degrees:
        return {"degree": None, "least": None, "jain": None}
    return {"degree": fairness_degree(degrees), "least": min(degrees), "jain": jain(degrees)}


def fairness(state: ControllerState, store: Store, since: float) -> dict[str, Any]:
    """`over_time`: window by window, of those who had a degree then."""
    living = {record.name: record.served for record in state.pipelines.values() if record.state not in OVER}
    return {
        **of_all([served.degree for served in living.values()]),
        "pipelines": {
            name: {"degree": served.degree, "allocated": served.allocated, "needed": served.needed}
            for name, served in living.items()
        },
        "over_time": _over_time(store, tuple(living), since),
    }


def _over_time(store: Store, names: Sequence[str], since: float) -> list[dict[str, Any]]:
    by_window: dict[tuple[float, float], list[float]] = {}
    for name in names:
        for at, seconds, readings in store.windows(name, since):
            degree = _degree(readings)
            if degree is not None:
                by_window.setdefault((at, seconds), []).append(degree)
    return [{"at": at, "seconds": seconds, **of_all(by_window[at, seconds])} for at, seconds in sorted(by_window)]


def _degree(readings: Mapping[str, Mapping[str, float]]) -> float | None:
    return readings.get("", {}).get(Metric.FAIRNESS)
