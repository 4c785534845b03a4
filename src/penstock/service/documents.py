"""Answers to requests: records as plain values, with the names others rely on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.control.core.elastic_sizes import options_of
from penstock.control.core.records import NodePhase, PipelineState
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.elasticity.readings import BATCH_COST, SLOT_MEMORY
from penstock.control.metrics import Metric, Subject
from penstock.planning.sharing.measures import fairness_degree, jain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.control.core.messages import Decision, Event
    from penstock.control.core.records import ControllerState, NodeRecord, PipelineRecord, Policy, Trigger
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


def node(record: NodeRecord, holders: Mapping[int, str]) -> dict[str, Any]:
    """`holders`: who may be on each of its slots."""
    alive = record.state is NodePhase.ALIVE
    free = [number for number in range(record.slots) if number not in holders] if alive else []
    return {
        "name": record.name,
        "rack": record.rack,
        "slots": record.slots,
        "free": len(free),
        "free_slots": free,
        "state": str(record.state),
        "since": record.since,
        "capacity": dict(record.capacity),
        "price": record.price,
        "pipelines": sorted(set(holders.values())),
    }


def nodes(state: ControllerState) -> list[dict[str, Any]]:
    holders: dict[str, dict[int, str]] = {}
    for record in state.pipelines.values():
        for slot in (*record.assigned, *record.may_hold):
            holders.setdefault(slot.node, {})[slot.number] = record.name
    return [node(known, holders.get(known.name, {})) for known in state.nodes.values()]


def policy(record: Policy) -> dict[str, Any]:
    return {
        "sharing": record.sharing,
        "rescheduling": str(record.rescheduling),
        "default_priority": record.default_priority,
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
