"""The controller's state from the rows of a store, and every row that cannot be used, with the reason.

The same reader serves a start, which stops at the first fault, and a repair, which continues without the row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.cluster.topology import Slot
from penstock.control.core.records import ControllerState
from penstock.control.store import rows, schema
from penstock.control.store.errors import StoreFault
from penstock.control.store.raw_rows import key_of, parse, shown
from penstock.control.store.typed_values import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sqlalchemy import Table

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
