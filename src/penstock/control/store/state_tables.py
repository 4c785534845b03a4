"""The controller's state from the rows of a store, and every row that cannot be used, with the reason.

The same reader serves a start, which stops at the first fault, and a repair, which continues without the row.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, update

from penstock.cluster.topology import Slot
from penstock.control.core.records import ControllerState
from penstock.control.elasticity.memory import Following
from penstock.control.errors import StoreFault, UnstorableError
from penstock.control.store import rows, schema
from penstock.control.store.rows import WrongValueError, encode_json, key_of, parse, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Table

    from penstock.control.core.messages import StepOutcome
    from penstock.control.core.records import NodeRecord, PipelineRecord, Submission, Trigger


Row = dict[str, Any]

STATE_TABLES = (
    schema.controller,
    schema.submissions,
    schema.pipelines,
    schema.holdings,
    schema.triggers,
    schema.nodes,
)
"""Tables that make the state; the others are logs and measurements."""


@dataclass
class StateReader:
    is_sqlite: bool
    faults: list[StoreFault] = field(default_factory=list)
    kept: dict[str, list[Row]] = field(default_factory=dict)
    """Rows that can be used, by table."""

    def read(self, raw: Mapping[str, Iterable[Row]], newest: int = 0) -> ControllerState | None:
        """Return the state; None if nothing was ever written. `newest` is the highest number of a decision or pass."""
        for table in STATE_TABLES:
            self.take(table, raw[table.name])
        submissions: dict[str, Submission] = {}
        for row, submission in self._made(schema.submissions, rows.submission_of):
            submissions[row["name"]] = submission
        named = {row["name"] for row in self.kept["pipelines"]}
        self.drop(schema.submissions, lambda row: "" if row["name"] in named else "no pipeline has this name")
        self.drop(schema.pipelines, lambda row: "" if row["name"] in submissions else "its submission is missing")
        # what a pipeline holds is checked with the pipeline, so that neither is kept without the other
        self.drop(
            schema.pipelines, lambda row: _reason(lambda: rows.pipeline_of(row, submissions[row["name"]], {}, ()))
        )
        held, triggers = self._holdings(), self._triggers()
        pipelines: dict[str, PipelineRecord] = {}
        for row in sorted(self.kept["pipelines"], key=lambda row: int(row["number"])):
            name = row["name"]
            pipelines[name] = rows.pipeline_of(row, submissions[name], held.get(name, {}), triggers.get(name, ()))
        self.drop(schema.submissions, lambda row: "" if row["name"] in pipelines else "its pipeline cannot be read")
        ordered = sorted(self._made(schema.nodes, rows.node_of), key=lambda made: int(made[0]["position"]))
        nodes: dict[str, NodeRecord] = {row["name"]: node for row, node in ordered}
        return self._controller(list(raw["controller"]), pipelines, nodes, newest)

    def take(self, table: Table, raw: Iterable[Row]) -> None:
        """Keep the rows whose columns can be used."""
        kept = self.kept.setdefault(table.name, [])
        for given in raw:
            row, reason = parse(table, given, is_sqlite=self.is_sqlite)
            if reason:
                self._fault(table, given, reason)
            else:
                kept.append(row)

    def _fault(self, table: Table, row: Row, reason: str) -> None:
        self.faults.append(StoreFault(table.name, key_of(table, row), reason))

    def drop(self, table: Table, reason_for: Callable[[Row], str]) -> None:
        kept = []
        for row in self.kept[table.name]:
            if reason := reason_for(row):
                self._fault(table, row, reason)
            else:
                kept.append(row)
        self.kept[table.name] = kept

    def _made(self, table: Table, make: Callable[[Row], Any]) -> list[tuple[Row, Any]]:
        self.drop(table, lambda row: _reason(lambda: make(row)))
        return [(row, make(row)) for row in self.kept[table.name]]

    def _of_a_pipeline(self, row: Row) -> str:
        known = {record["name"] for record in self.kept["pipelines"]}
        return "" if row["pipeline"] in known else f"there is no pipeline {shown(row['pipeline'])}"

    def _holdings(self) -> dict[str, dict[str, tuple[Slot, ...]]]:
        known = {record["name"] for record in self.kept["pipelines"]}

        def reason(row: Row) -> str:
            if row["kind"] not in rows.HELD:
                return f"kind: expected one of {', '.join(rows.HELD)}, found {shown(row['kind'])}"
            return "" if row["pipeline"] in known else f"there is no pipeline {shown(row['pipeline'])}"

        self.drop(schema.holdings, reason)
        holdings: dict[str, dict[str, list[Slot]]] = {}
        for row in sorted(self.kept["holdings"], key=lambda row: int(row["position"])):
            kinds = holdings.setdefault(row["pipeline"], {})
            kinds.setdefault(row["kind"], []).append(Slot(row["node"], row["slot"]))
        return {name: {kind: tuple(slots) for kind, slots in kinds.items()} for name, kinds in holdings.items()}

    def _triggers(self) -> dict[str, list[Trigger]]:
        self.drop(schema.triggers, self._of_a_pipeline)
        triggers: dict[str, list[Trigger]] = {}
        for row, trigger in sorted(self._made(schema.triggers, rows.trigger_of), key=lambda made: int(made[0]["id"])):
            triggers.setdefault(row["pipeline"], []).append(trigger)
        return triggers

    def _controller(
        self, raw: list[Row], pipelines: dict[str, PipelineRecord], nodes: dict[str, NodeRecord], newest: int
    ) -> ControllerState | None:
        least = {
            "submitted": max((record.number for record in pipelines.values()), default=0),
            "decided": newest,
            "triggers_made": max((it.id for record in pipelines.values() for it in record.triggers), default=0),
        }

        def reason(row: Row) -> str:
            if row["id"] != 1:
                return "expected one row only, with id 1"
            for name, low in least.items():
                if row[name] < low:
                    return f"{name}: {row[name]} is below {low}, which was given out already"
            return _reason(lambda: rows.policy_of(row["policy"]))

        self.drop(schema.controller, reason)
        if not self.kept["controller"]:
            if any(self.kept.values()) and not any(fault.table == "controller" for fault in self.faults):
                self.faults.append(StoreFault("controller", "1", "missing"))
            if not any(self.kept.values()) and not self.faults:
                return None
            first = ControllerState(pipelines=MappingProxyType(pipelines), nodes=MappingProxyType(nodes))
            self.kept["controller"] = [_pieced(raw, {"id": 1, **rows.controller_row(first), **least, "step": None})]
        row = self.kept["controller"][0]
        return ControllerState(
            policy=rows.policy_of(row["policy"]),
            unit_slots=row["unit_slots"],
            pipelines=MappingProxyType(pipelines),
            nodes=MappingProxyType(nodes),
            submitted=row["submitted"],
            decided=row["decided"],
            triggers_made=row["triggers_made"],
            last_pass=row["last_pass"],
        )


def _pieced(raw: list[Row], default: Row) -> Row:
    """The columns of the controller's own row that can be read; the others as for a new controller."""
    row = dict(default)
    for name in ("policy", "unit_slots", "last_pass"):
        for given in raw[:1]:
            column, reason = parse(schema.controller, {**default, name: given[name]}, is_sqlite=True)
            if not reason and not (name == "policy" and _reason(partial(rows.policy_of, column["policy"]))):
                row[name] = column[name]
    return row


def _reason(make: Callable[[], object]) -> str:
    try:
        make()
    except WrongValueError as error:
        return str(error)
    return ""


# Steps of the controller as writes to the tables: the rows that differ from those of the step before.


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
