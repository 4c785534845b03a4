"""Steps of the controller as writes to the tables: the rows that differ from those of the step before."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, update

from penstock.control.elasticity.memory import Following
from penstock.control.store import rows, schema
from penstock.control.store.errors import StoreFault, UnstorableError
from penstock.control.store.raw_rows import encode_json, key_of, parse
from penstock.control.store.typed_values import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Table

    from penstock.control.core.outcome import StepOutcome
    from penstock.control.core.records import ControllerState, PipelineRecord


def write_step(connection: Connection, before: ControllerState, step: StepOutcome, step_id: str) -> None:
    _write_state(connection, before, step.state, step_id)
    _insert(connection, schema.events, _readable(schema.events, [rows.event_row(event) for event in step.events]))
    _insert(
        connection,
        schema.decisions,
        _readable(schema.decisions, [rows.decision_row(decision) for decision in step.decisions]),
    )
    _insert(
        connection, schema.passes, _readable(schema.passes, [rows.pass_row(kept_pass) for kept_pass in step.passes])
    )
    for measured in step.measured:
        overhead = {**asdict(measured.overhead), "total_s": measured.overhead.total_s}
        decision = schema.decisions.c.number == measured.decision
        connection.execute(update(schema.decisions).where(decision).values(overhead=overhead))


def changes_nothing(before: ControllerState, step: StepOutcome) -> bool:
    """Whether the step changed nothing but readings."""
    return not (step.events or step.decisions or step.measured or step.passes or _differs(before, step.state))


def _insert(connection: Connection, table: Table, values: Sequence[Mapping[str, Any]]) -> None:
    if values:
        connection.execute(insert(table), list(values))


def _readable(table: Table, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows. Raises if one could not be read again."""
    for row in values:
        _check_row(table, row)
    return values


def _check_row(table: Table, row: Mapping[str, Any]) -> None:
    if reason := _unreadable(table, row):
        raise UnstorableError(f"cannot be stored: {StoreFault(table.name, key_of(table, row), reason)}")


def _check_policy(document: dict[str, Any]) -> None:
    try:
        rows.policy_of(document)
    except WrongValueError as error:
        raise UnstorableError(f"cannot be stored: {StoreFault('controller', '1', str(error))}") from error


def _unreadable(table: Table, row: Mapping[str, Any]) -> str:
    stored = {**dict.fromkeys(column.name for column in table.columns), **row}
    if table is schema.events:
        stored["id"] = 0  # given by the database
    try:
        for name, value in row.items():
            if isinstance(value, dict | list):
                stored[name] = encode_json(value)
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)
    read, reason = parse(table, stored, is_sqlite=True)
    try:
        if not reason and table.name in _MADE:
            _MADE[table.name](read)
    except WrongValueError as error:
        return str(error)
    return reason


_MADE: Mapping[str, Callable[[dict[str, Any]], object]] = MappingProxyType(
    {
        "submissions": rows.submission_of,
        "pipelines": rows.pipeline_fields,
        "triggers": rows.trigger_of,
        "nodes": rows.node_of,
    }
)
"""Types that the reader builds from a row, by table."""


def _write_state(connection: Connection, before: ControllerState, after: ControllerState, step_id: str) -> None:
    """Write what differs from `before`. Rows go before rows come, so that a slot may change hands in one step."""
    changed = [
        record
        for name, record in after.pipelines.items()
        if before.pipelines.get(name) is not record and _kept(before.pipelines.get(name)) != _kept(record)
    ]
    gone = [name for name in before.pipelines if name not in after.pipelines]
    parts = (
        (schema.submissions, schema.submissions.c.name, _submission, _submission_rows),
        (schema.pipelines, schema.pipelines.c.name, _own, _own_rows),
        (schema.holdings, schema.holdings.c.pipeline, _slots, rows.holding_rows),
        (schema.triggers, schema.triggers.c.pipeline, _triggers, _trigger_rows),
    )
    written = [
        (table, column, made, [record for record in changed if part(before.pipelines.get(record.name)) != part(record)])
        for table, column, part, made in parts
    ]
    added = [
        _readable(table, [row for record in records for row in made(record)]) for table, _, made, records in written
    ]
    for _, column, _, records in written:
        _remove(connection, column, [*(record.name for record in records), *gone])
    for (table, _, _, _), values in zip(written, added, strict=True):
        _insert(connection, table, values)
    if after.nodes != before.nodes:
        left = set(before.nodes) - set(after.nodes)
        position = {name: number for number, name in enumerate(after.nodes)}
        moved = [node for name, node in after.nodes.items() if left or before.nodes.get(name) != node]
        node_rows = _readable(schema.nodes, [rows.node_row(node, position[node.name]) for node in moved])
        _remove(connection, schema.nodes.c.name, [*(node.name for node in moved), *left])
        _insert(connection, schema.nodes, node_rows)
    own = {**rows.controller_row(after), "step": step_id}
    _check_row(schema.controller, {"id": 1, **own})
    if after.policy != before.policy:
        _check_policy(own["policy"])
    if connection.execute(update(schema.controller).values(**own)).rowcount == 0:
        connection.execute(insert(schema.controller).values(id=1, **own))


def _differs(before: ControllerState, after: ControllerState) -> bool:
    """Whether anything but readings changed."""
    same = replace(before, pipelines={}) == replace(after, pipelines={})
    return not same or any(
        _kept(before.pipelines.get(name)) != _kept(after.pipelines.get(name))
        for name in before.pipelines.keys() | after.pipelines.keys()
        if before.pipelines.get(name) is not after.pipelines.get(name)
    )


def _submission(record: PipelineRecord | None) -> object:
    return record and record.submission


def _submission_rows(record: PipelineRecord) -> list[dict[str, Any]]:
    return [rows.submission_row(record)]


def _own(record: PipelineRecord | None) -> object:
    return record and [getattr(record, name) for name in ("number", "state", "since", "priority", *rows.REST)]


def _own_rows(record: PipelineRecord) -> list[dict[str, Any]]:
    return [rows.pipeline_row(record)]


def _slots(record: PipelineRecord | None) -> object:
    return record and [getattr(record, kind) for kind in rows.HELD]


def _triggers(record: PipelineRecord | None) -> object:
    return record and record.triggers


def _trigger_rows(record: PipelineRecord) -> list[dict[str, Any]]:
    return [rows.trigger_row(record.name, trigger) for trigger in record.triggers]


def _kept(record: PipelineRecord | None) -> PipelineRecord | None:
    """Readings are not part of the state that is written: they are metrics."""
    return record and replace(record, readings=MappingProxyType({}), following=Following())


def _remove(connection: Connection, column: Any, names: Sequence[str]) -> None:
    for start in range(0, len(names), 500):
        connection.execute(delete(column.table).where(column.in_(names[start : start + 500])))
