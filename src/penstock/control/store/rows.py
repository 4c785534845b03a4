"""Records as rows, and back: what the core knows in the words of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.control.core.records import (
    Change,
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
from penstock.control.store.raw_rows import shown
from penstock.control.store.typed_values import WrongValueError, dataclass_arguments, to_dataclass, to_typed
from penstock.errors import PenstockError
from penstock.sharing.measures import Served
from penstock.sharing.registry import SHARERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cluster.topology import Slot
    from penstock.control.core.outcome import Decision, Event, PassRecord
    from penstock.control.core.records import ControllerState

HELD = ("assigned", "requested", "held", "may_hold")
"""Kinds of rows in `holdings`."""

NOT_REST = frozenset({"number", "state", "since", "priority", "submission", *HELD, "triggers", "readings", "following"})
REST = tuple(field.name for field in fields(PipelineRecord) if field.name not in NOT_REST)
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
    row: Mapping[str, Any], submission: Submission, slots: Mapping[str, tuple[Slot, ...]], mine: Iterable[Trigger]
) -> PipelineRecord:
    return PipelineRecord(
        submission=submission,
        assigned=slots.get("assigned", ()),
        requested=slots.get("requested", ()),
        held=slots.get("held", ()),
        may_hold=frozenset(slots.get("may_hold", ())),
        triggers=tuple(mine),
        **pipeline_fields(row),
    )


def pipeline_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a pipeline that its own row has."""
    return {
        "number": row["number"],
        "state": to_typed(PipelineState, row["state"], "state"),
        "since": row["since"],
        "priority": row["priority"],
        **dataclass_arguments(PipelineRecord, row["rest"], "rest", NOT_REST),
    }


def submission_of(row: Mapping[str, Any]) -> Submission:
    submission: Submission = to_dataclass(Submission, row["submission"], "submission")
    if submission.name != row["name"]:
        raise WrongValueError(f"submission.name: expected {shown(row['name'])}, found {shown(submission.name)}")
    return submission


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
    own = {name: row[name] for name in ("id", "enabled", "on")}
    kind = to_typed(TriggerKind, row["kind"], "kind")
    return Trigger(kind=kind, **own, **dataclass_arguments(Trigger, row["rest"], "rest", frozenset({*own, "kind"})))


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
        to_typed(NodeState, row["state"], "state"),
        row["since"],
        MappingProxyType(to_typed(Mapping[str, float], row["capacity"], "capacity")),
        row["price"],
    )


def controller_row(state: ControllerState) -> dict[str, Any]:
    """All but the id."""
    return {
        "policy": policy_document(state.policy),
        "unit_slots": state.unit_slots,
        "submitted": state.submitted,
        "decided": state.decided,
        "triggers_made": state.triggers_made,
        "last_pass": state.last_pass,
    }


def policy_document(policy: Policy) -> dict[str, Any]:
    return asdict(policy)


def policy_of(document: Any) -> Policy:
    """Raises if no sharing policy has that name: no pass could be made."""
    if isinstance(document, dict) and document.get("rescheduling", ...) is None:
        document = {**document, "rescheduling": Rescheduling.LIVE}  # as stores of earlier versions mean it
    policy: Policy = to_dataclass(Policy, document, "policy")
    try:
        SHARERS.create(policy.sharing)
    except PenstockError as error:
        raise WrongValueError(f"policy.sharing: {error}") from error
    return policy


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
