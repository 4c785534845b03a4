"""Records as rows, and back: what the core knows in the words of the tables."""

from __future__ import annotations

from dataclasses import asdict, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.control.core.records import (
    Change,
    Engine,
    NodeRecord,
    PipelineRecord,
    Policy,
    Rescheduling,
    ServiceTarget,
    Submission,
    Trigger,
    TriggerKind,
)
from penstock.control.core.states import NodeState, PipelineState
from penstock.sharing.measures import Served

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.core.outcome import Decision, Event, PassRecord

HELD = ("assigned", "requested", "held", "may_hold")
"""What `holdings` keeps, by kind."""

_OWN_COLUMNS = {"number", "state", "since", "priority", "submission"}
_ELSEWHERE = {*HELD, "triggers", "readings", "following"}
REST = tuple(field.name for field in fields(PipelineRecord) if field.name not in _OWN_COLUMNS | _ELSEWHERE)
"""Fields of a pipeline that have no column of their own."""


def pipeline_row(record: PipelineRecord) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name in REST:
        value = getattr(record, name)
        rest[name] = asdict(value) if isinstance(value, ServiceTarget | Change | Served) else value
    return {
        "name": record.name,
        "number": record.number,
        "state": str(record.state),
        "since": record.since,
        "priority": record.priority,
        "rest": rest,
    }


def submission_row(record: PipelineRecord) -> dict[str, Any]:
    return {"name": record.name, "submission": asdict(record.submission)}


def pipeline_of(
    row: Mapping[str, Any], submitted: Mapping[str, Any], slots: Mapping[str, tuple[Slot, ...]], mine: Iterable[Trigger]
) -> PipelineRecord:
    rest = dict(row["rest"])
    change = rest["change"]
    rest["target"] = ServiceTarget(**rest["target"])
    rest["served"] = Served(**rest["served"])
    rest["change"] = None if change is None else Change(**{**change, "decisions": tuple(change["decisions"])})
    given = dict(submitted)
    submission = Submission(**{**given, "target": ServiceTarget(**given["target"]), "engine": Engine(given["engine"])})
    return PipelineRecord(
        submission=submission,
        number=row["number"],
        state=PipelineState(row["state"]),
        since=row["since"],
        priority=row["priority"],
        assigned=slots.get("assigned", ()),
        requested=slots.get("requested", ()),
        held=slots.get("held", ()),
        may_hold=frozenset(slots.get("may_hold", ())),
        triggers=tuple(mine),
        **rest,
    )


def holding_rows(record: PipelineRecord) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "node": slot.node, "slot": slot.number, "pipeline": record.name, "position": position}
        for kind in HELD
        for position, slot in enumerate(sorted(record.may_hold) if kind == "may_hold" else getattr(record, kind))
    ]


def trigger_row(pipeline: str, trigger: Trigger) -> dict[str, Any]:
    rest = asdict(trigger)
    own = {name: rest.pop(name) for name in ("id", "enabled", "on")}
    return {"pipeline": pipeline, "kind": str(rest.pop("kind")), "rest": rest, **own}


def trigger_of(row: Mapping[str, Any]) -> Trigger:
    return Trigger(id=row["id"], kind=TriggerKind(row["kind"]), enabled=row["enabled"], on=row["on"], **row["rest"])


def node_row(node: NodeRecord, position: int) -> dict[str, Any]:
    return {
        "name": node.name,
        "position": position,
        "rack": node.rack,
        "slots": node.slots,
        "state": str(node.state),
        "since": node.since,
        "capacity": dict(node.capacity),
        "price": node.price,
    }


def node_of(row: Mapping[str, Any]) -> NodeRecord:
    return NodeRecord(
        row["name"],
        row["rack"],
        row["slots"],
        NodeState(row["state"]),
        row["since"],
        MappingProxyType(dict(row["capacity"])),
        row["price"],
    )


def policy_document(policy: Policy) -> dict[str, Any]:
    return asdict(policy)


def policy_of(document: Mapping[str, Any]) -> Policy:
    # stores of earlier versions have none where nobody said
    return Policy(**{**document, "rescheduling": Rescheduling(document["rescheduling"] or Rescheduling.LIVE)})


def event_row(event: Event) -> dict[str, Any]:
    return asdict(event)


def decision_row(decision: Decision) -> dict[str, Any]:
    return {
        "number": decision.number,
        "at": decision.at,
        "pipeline": decision.pipeline,
        "kind": str(decision.kind),
        "before": decision.before,
        "after": decision.after,
        "why": decision.why,
        "rejected": [asdict(rejected) for rejected in decision.rejected],
        "expected": dict(decision.expected),
        "pass_number": decision.pass_number,
        "overhead": None,
    }


def pass_row(kept: PassRecord) -> dict[str, Any]:
    return {
        "number": kept.number,
        "at": kept.at,
        "cause": kept.cause,
        "inputs": dict(kept.inputs),
        "shares": dict(kept.shares),
    }
