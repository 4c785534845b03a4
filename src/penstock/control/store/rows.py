"""Records as rows, and back: what the core knows in the words of the tables."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from sqlalchemy import JSON, BigInteger, Boolean, Float, Integer, LargeBinary, String
from sqlalchemy.exc import SQLAlchemyError

from penstock.base.errors import BadInputError, PenstockError
from penstock.cluster.topology import Slot
from penstock.control.core.records import (
    NodePhase,
    NodeRecord,
    PipelineRecord,
    PipelineState,
    Policy,
    Rescheduling,
    Submission,
    Trigger,
)
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.errors import DamagedStoreError, StoreFault
from penstock.planning.registry import ALLOCATORS, PLACERS, SEGMENTERS, SHARERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Column, Connection, Table

    from penstock.control.core.messages import Decision, Event, PassRecord
    from penstock.control.core.records import ControllerState


# Rows as the database returns them, checked against their table column by column.
#
# SQLite stores any value whatever the column's type, and a damaged file returns anything: nothing is taken from a
# store before it was checked here.


INT64 = 2**63
LONGEST_SHOWN = 60

_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
"""Texts, and the two kinds of numbers that JSON does not know."""


def encode_json(value: Any) -> str:
    """JSON that both databases keep. Infinity is written as a number that is too large, which is read as infinity
    again; NaN is rejected."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return _INFINITY.sub(_number, json.dumps(value))


def _number(token: re.Match[str]) -> str:
    if token[0] == "NaN":
        raise ValueError("nan cannot be stored")
    return token[0] if token[0].startswith('"') else token[0].replace("Infinity", "1e999")


def decode_json(text: str) -> Any:
    def reject(token: str) -> float:
        if token == "NaN":  # noqa: S105 - a number
            raise ValueError("nan is not a number")
        return float(token)  # Infinity, in stores before version 4

    return json.loads(text, parse_constant=reject)


def key_of(table: Table, row: Mapping[str, Any]) -> str:
    return "/".join(repr(row.get(column.name)) for column in table.primary_key.columns)[:200]


def select_raw(connection: Connection, table: Table, more: str = "") -> Iterator[dict[str, Any]]:
    """Yield all rows as the driver returns them. Text that is no UTF-8 comes as bytes."""
    names = [column.name for column in table.columns]
    listed = ", ".join(f'"{name}"' for name in names)
    driver: Any = connection.connection.driver_connection
    is_sqlite = connection.dialect.name == "sqlite"
    if is_sqlite:
        driver.text_factory = text_or_bytes
    try:
        for row in connection.exec_driver_sql(f'SELECT {listed} FROM "{table.name}" {more}'):  # noqa: S608 - our own names
            yield dict(zip(names, row, strict=True))
    except SQLAlchemyError as error:
        raise DamagedStoreError(str(StoreFault(table.name, "", reason_of(error)))) from error
    finally:
        if is_sqlite:
            driver.text_factory = str


def text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def parse(table: Table, raw: Mapping[str, Any], *, is_sqlite: bool) -> tuple[dict[str, Any], str]:
    """Return the row with JSON and booleans read, and why it cannot be used (empty: it can)."""
    row = dict(raw)
    for column in table.columns:
        value = row[column.name]
        try:
            if isinstance(column.type, JSON) and is_sqlite and isinstance(value, str):
                row[column.name] = decode_json(value)
            elif isinstance(column.type, Boolean) and type(value) is int and value in {0, 1}:
                row[column.name] = bool(value)
        except (ValueError, RecursionError) as error:
            return row, f"{column.name}: not valid JSON: {str(error).splitlines()[0]}"
    return row, row_fault(table, row)


def row_fault(table: Table, row: Mapping[str, Any]) -> str:
    """The first column that cannot be used, and why; empty if all can."""
    for column in table.columns:
        if column.name in row and (reason := _fault(column, row[column.name])):
            return f"{column.name}: {reason}"
    return ""


def _fault(column: Column[Any], value: Any) -> str:  # noqa: PLR0911 - one return for every type
    kind = column.type
    if isinstance(kind, JSON):
        return "" if value is not None or column.nullable else "nothing is stored"
    if value is None:
        return "" if column.nullable else "nothing is stored"
    if isinstance(kind, Boolean):
        return "" if isinstance(value, bool) else f"expected yes or no, found {shown(value)}"
    if isinstance(kind, Integer | BigInteger):
        if type(value) is not int:
            return f"expected a whole number, found {shown(value)}"
        low = column.info.get("least", 0)
        return (
            "" if low <= value < INT64 else f"expected a number of at least {low} and below 2**63, found {shown(value)}"
        )
    if isinstance(kind, Float):
        is_number = isinstance(value, float | int) and not isinstance(value, bool)
        return "" if is_number and not _is_nan(value) else f"expected a number, found {shown(value)}"
    if isinstance(kind, String):
        return text_fault(value)
    if isinstance(kind, LargeBinary):
        return "" if isinstance(value, bytes) else f"expected bytes, found {shown(value)}"
    raise AssertionError(f"no check for columns of type {kind}")


def _is_nan(value: float) -> bool:
    return isinstance(value, float) and math.isnan(value)


def text_fault(value: Any) -> str:
    if not isinstance(value, str):
        return f"expected text, found {shown(value)}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{shown(value)} is not text: half a character (surrogate)"
    return ""


def shown(value: Any) -> str:
    try:
        text = ascii(value)
    except ValueError:  # Python writes no whole number of more than some thousand digits
        text = "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def reason_of(error: SQLAlchemyError) -> str:
    return next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)


# Values of the core from stored documents, checked against their annotations.


class WrongValueError(ValueError):
    """A value that is not of its type: the field, and why."""


@cache
def field_types(kind: type) -> dict[str, Any]:
    """Annotations of a dataclass, resolved. Modules of the core import some names for type checking only."""
    return get_type_hints(kind, localns={"Mapping": Mapping, "Slot": Slot})


def to_typed(kind: Any, value: Any, path: str = "") -> Any:  # noqa: PLR0911 - one return for every kind of type
    """Return `value` as a `kind`, or raise an error that names the field. Whole numbers are never negative."""
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in {Union, types.UnionType}:
        kinds = get_args(kind)
        if value is None and type(None) in kinds:
            return None
        (kind,) = (member for member in kinds if member is not type(None))
        return to_typed(kind, value, path)
    if origin is Mapping:
        of = get_args(kind)[1]
        return {key: to_typed(of, item, f"{path}.{key}") for key, item in _is(dict, value, path, "a mapping").items()}
    if origin is tuple:
        of = get_args(kind)[0]
        items = _is(list, value, path, "a list")
        return tuple(to_typed(of, item, f"{path}[{position}]") for position, item in enumerate(items))
    if is_dataclass(kind):
        return to_dataclass(kind, value, path)  # type: ignore[arg-type] # never an instance
    return _plain(kind, value, path)


def to_dataclass(kind: type, document: Any, path: str = "") -> Any:
    return kind(**dataclass_arguments(kind, document, path))


def dataclass_arguments(
    kind: type, document: Any, path: str = "", leave_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Arguments that make a `kind`; a field that has a default may be missing, as in stores of earlier versions."""
    given = dict(_is(dict, document, path, "a mapping"))
    prefix = f"{path}." if path else ""
    arguments = {}
    for field in fields(kind):
        if field.name in leave_out:
            continue
        if field.name in given:
            arguments[field.name] = to_typed(field_types(kind)[field.name], given.pop(field.name), prefix + field.name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise WrongValueError(f"{prefix}{field.name}: missing")
    if given:
        raise WrongValueError(f"{prefix}{next(iter(given))}: unknown field")
    return arguments


def _plain(kind: Any, value: Any, path: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(value)
        except ValueError:
            raise WrongValueError(f"{path}: expected one of {', '.join(kind)}, found {shown(value)}") from None
    if kind is bool:
        return _is(bool, value, path, "yes or no")
    if kind is str:
        return _is(str, value, path, "text")
    if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        raise WrongValueError(f"{path}: expected a {'whole ' if kind is int else ''}number, found {shown(value)}")
    if kind is int and value < 0:
        raise WrongValueError(f"{path}: expected at least 0, found {shown(value)}")
    if isinstance(value, float) and math.isnan(value):
        raise WrongValueError(f"{path}: nan is not a number")
    return value


def _is(kind: type, value: Any, path: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise WrongValueError(f"{path + ': ' if path else ''}expected {expected}, found {shown(value)}")
    return value


HELD = ("assigned", "requested", "held", "may_hold")
"""Kinds of rows in `holdings`."""

NOT_REST = frozenset({"number", "state", "since", "priority", "submission", *HELD, "triggers", "readings", "following"})
REST = tuple(field.name for field in fields(PipelineRecord) if field.name not in NOT_REST)
"""Fields of a pipeline that have no column of their own."""


def pipeline_row(record: PipelineRecord) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name in REST:
        value = getattr(record, name)
        rest[name] = _plain_document(value)
    return {
        "name": record.name,
        "number": record.number,
        "state": str(record.state),
        "since": record.since,
        "priority": record.priority,
        "rest": rest,
    }


def _plain_document(value: Any) -> Any:
    """Return a dataclass and all in it as dictionaries and lists; other values as they are."""
    if is_dataclass(value):
        return {field.name: _plain_document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain_document(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain_document(item) for item in value]
    return value


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
    kind = _is(str, row["kind"], "kind", "text")
    try:
        find_kind(kind)
    except BadInputError as error:
        raise WrongValueError(f"kind: {error}") from error
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
        to_typed(NodePhase, row["state"], "state"),
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
    named: dict[str, tuple[Any, str | None]] = {
        "sharing": (SHARERS, policy.sharing),
        "placer": (PLACERS, policy.placer),
        "allocator": (ALLOCATORS, policy.allocator),
        "segmenter": (SEGMENTERS, policy.segmenter),
    }
    for field, (registry, name) in named.items():
        try:
            if name is not None:
                registry.create(name)
        except PenstockError as error:
            raise WrongValueError(f"policy.{field}: {error}") from error
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
