"""What the controller must not forget, in one database: a SQLite file, or PostgreSQL by URL.

Every step is one transaction: the new state, what happened and what was decided, and the lease renewed. It is written
before anybody acts on it; a crash in between leaves the state before or the state after, and orders follow from either.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, delete, event, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from penstock.cluster.topology import Slot
from penstock.control.core.records import ControllerState
from penstock.control.elasticity.memory import Following
from penstock.control.store import lease as leasing
from penstock.control.store import rows, schema
from penstock.control.store.identity import store_id
from penstock.control.store.windows import unpacked
from penstock.errors import BadInputError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Engine, Select, Table

    from penstock.control.core.outcome import StepOutcome
    from penstock.control.core.records import PipelineRecord
    from penstock.control.store.windows import Readings

BUSY_SECONDS = 10.0
KEPT = MappingProxyType({"events": 20_000, "decisions": 20_000, "passes": 500})
"""The newest so many rows are kept."""


class StoreError(PenstockError):
    """The store is full, locked or gone. Nothing was written."""


class Store:
    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._engine = _engine(url)
            # metrics need not survive a power cut: no wait for the disk
            self._metrics = _engine(url, "NORMAL") if url.startswith("sqlite") else self._engine
            with self._engine.begin() as connection:
                schema.metadata.create_all(connection)
                _check_version(connection, url)
        except SQLAlchemyError as error:
            raise BadInputError(f"store '{_shown(url)}': {_reason(error)}") from error
        except (ImportError, ValueError) as error:
            raise BadInputError(f"store '{_shown(url)}': {error}") from error

    def close(self) -> None:
        self._engine.dispose()
        self._metrics.dispose()

    @contextlib.contextmanager
    def _transaction(self, engine: Engine | None = None) -> Iterator[Connection]:
        try:
            with (engine or self._engine).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"store '{_shown(self.url)}': {_reason(error)}") from error

    @property
    def id(self) -> str:
        with self._transaction() as connection:
            return store_id(connection)

    def take_lease(self, now: float) -> leasing.ControllerLease:
        with self._transaction() as connection:
            return leasing.take(connection, now)

    def give_back(self, held: leasing.ControllerLease) -> None:
        with self._transaction() as connection:
            leasing.give_back(connection, held)

    def renew(self, held: leasing.ControllerLease, now: float) -> None:
        with self._transaction() as connection:
            leasing.renew(connection, held, now)

    def commit(self, before: ControllerState, step: StepOutcome, held: leasing.ControllerLease, now: float) -> None:
        """All of a step or nothing of it; a step that changed nothing but readings is not written."""
        if not (step.events or step.decisions or step.measured or step.passes or differs(before, step.state)):
            return
        with self._transaction() as connection:
            leasing.renew(connection, held, now)
            _write_state(connection, before, step.state)
            _add(connection, schema.events, [rows.event_row(event) for event in step.events])
            _add(connection, schema.decisions, [rows.decision_row(decision) for decision in step.decisions])
            _add(connection, schema.passes, [rows.pass_row(kept_pass) for kept_pass in step.passes])
            for measured in step.measured:
                overhead = {**asdict(measured.overhead), "total_s": measured.overhead.total_s}
                connection.execute(
                    update(schema.decisions)
                    .where(schema.decisions.c.number == measured.decision)
                    .values(overhead=overhead)
                )

    def load(self) -> ControllerState | None:
        """The state of the last step that was written; None where there was none."""
        with self._transaction() as connection:
            own = connection.execute(select(schema.controller)).mappings().first()
            if own is None:
                return None
            held = _holdings(connection)
            triggers: dict[str, list[Any]] = {}
            for row in connection.execute(select(schema.triggers).order_by(schema.triggers.c.id)).mappings():
                triggers.setdefault(row["pipeline"], []).append(rows.trigger_of(dict(row)))
            submitted = {
                row["name"]: row["submission"] for row in connection.execute(select(schema.submissions)).mappings()
            }
            pipelines = {
                row["name"]: rows.pipeline_of(
                    dict(row), submitted[row["name"]], held.get(row["name"], {}), triggers.get(row["name"], ())
                )
                for row in connection.execute(select(schema.pipelines).order_by(schema.pipelines.c.number)).mappings()
            }
            nodes = {
                row["name"]: rows.node_of(dict(row))
                for row in connection.execute(select(schema.nodes).order_by(schema.nodes.c.position)).mappings()
            }
        return ControllerState(
            policy=rows.policy_of(own["policy"]),
            unit_slots=own["unit_slots"],
            pipelines=MappingProxyType(pipelines),
            nodes=MappingProxyType(nodes),
            submitted=own["submitted"],
            decided=own["decided"],
            triggers_made=own["triggers_made"],
            last_pass=own["last_pass"],
        )

    def read(self, question: Select[Any]) -> list[dict[str, Any]]:
        with self._transaction() as connection:
            return [dict(row) for row in connection.execute(question).mappings()]

    def add_windows(self, seconds: int, windows: Iterable[tuple[str, float, bytes]]) -> None:
        """(owner, at, readings), means over `seconds`; what is there already stays."""
        if values := _window_rows(seconds, windows):
            with self._transaction(self._metrics) as connection:
                _add_windows(connection, values)

    def windows(self, owner: str, since: float, until: float = math.inf) -> Iterator[tuple[float, int, Readings]]:
        """When, over how many seconds, and what was measured, the oldest first."""
        table = schema.metrics
        question = select(table).where(table.c.owner == owner, table.c.at >= since).order_by(table.c.at)
        if until < math.inf:
            question = question.where(table.c.at < until)
        for row in self.read(question):
            yield row["at"], row["seconds"], unpacked(row["readings"])

    def windows_before(self, seconds: int, edge: float) -> list[dict[str, Any]]:
        table = schema.metrics
        return self.read(select(table).where(table.c.seconds == seconds, table.c.at < edge).order_by(table.c.at))

    def replace_windows(
        self, seconds: int, edge: float, into: int, windows: Iterable[tuple[str, float, bytes]]
    ) -> None:
        """Those over `seconds` before `edge` go, these over `into` come."""
        table = schema.metrics
        with self._transaction(self._metrics) as connection:
            if values := _window_rows(into, windows):
                _add_windows(connection, values)
            connection.execute(delete(table).where(table.c.seconds == seconds, table.c.at < edge))

    def trim(self) -> None:
        """The newest rows of every log stay."""
        keys = {"events": schema.events.c.id, "decisions": schema.decisions.c.number, "passes": schema.passes.c.number}
        with self._transaction(self._metrics) as connection:
            for name, most in KEPT.items():
                key = keys[name]
                edge = connection.execute(select(key).order_by(key.desc()).offset(most).limit(1)).scalar()
                if edge is not None:
                    connection.execute(delete(schema.metadata.tables[name]).where(key <= edge))

    def count(self, table: str) -> int:
        with self._transaction() as connection:
            return int(
                connection.execute(select(func.count()).select_from(schema.metadata.tables[table])).scalar() or 0
            )


def _window_rows(seconds: int, windows: Iterable[tuple[str, float, bytes]]) -> list[dict[str, Any]]:
    return [{"owner": owner, "seconds": seconds, "at": at, "readings": readings} for owner, at, readings in windows]


def _add_windows(connection: Connection, values: list[dict[str, Any]]) -> None:
    if connection.dialect.name == "sqlite":
        connection.execute(insert(schema.metrics).prefix_with("OR IGNORE"), values)
    else:
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert  # noqa: PLC0415 - rarely needed

        connection.execute(postgresql_insert(schema.metrics).on_conflict_do_nothing(), values)


def _engine(url: str, synchronous: str = "FULL") -> Engine:
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's own BEGIN below, not the driver's late one
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.execute(text("BEGIN IMMEDIATE"))

    return engine


def _check_version(connection: Connection, url: str) -> None:
    version = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == "schema")).scalar()
    if version is None:
        connection.execute(insert(schema.meta).values(key="schema", value=str(schema.SCHEMA_VERSION)))
    elif version != str(schema.SCHEMA_VERSION):
        raise BadInputError(
            f"store '{_shown(url)}': its tables are of version {version}, this Penstock has {schema.SCHEMA_VERSION}"
        )


def _holdings(connection: Connection) -> dict[str, dict[str, tuple[Slot, ...]]]:
    holdings: dict[str, dict[str, list[Slot]]] = {}
    for row in connection.execute(select(schema.holdings).order_by(schema.holdings.c.position)).mappings():
        kinds = holdings.setdefault(row["pipeline"], {})
        kinds.setdefault(row["kind"], []).append(Slot(row["node"], row["slot"]))
    return {pipeline: {kind: tuple(slots) for kind, slots in kinds.items()} for pipeline, kinds in holdings.items()}


def _add(connection: Connection, table: Table, values: Sequence[Mapping[str, Any]]) -> None:
    if values:
        connection.execute(insert(table), list(values))


def _write_state(connection: Connection, before: ControllerState, after: ControllerState) -> None:
    """What differs from `before`. Rows go before rows come, so that a slot may change hands in one step."""
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
    for _, column, _, records in written:
        _remove(connection, column, [*(record.name for record in records), *gone])
    for table, _, made, records in written:
        _add(connection, table, [row for record in records for row in made(record)])
    if after.nodes != before.nodes:
        left = set(before.nodes) - set(after.nodes)
        position = {name: number for number, name in enumerate(after.nodes)}
        moved = [node for name, node in after.nodes.items() if left or before.nodes.get(name) != node]
        _remove(connection, schema.nodes.c.name, [*(node.name for node in moved), *left])
        _add(connection, schema.nodes, [rows.node_row(node, position[node.name]) for node in moved])
    own = {
        "policy": rows.policy_document(after.policy),
        "unit_slots": after.unit_slots,
        "submitted": after.submitted,
        "decided": after.decided,
        "triggers_made": after.triggers_made,
        "last_pass": after.last_pass,
    }
    if connection.execute(update(schema.controller).values(**own)).rowcount == 0:
        connection.execute(insert(schema.controller).values(id=1, **own))


def differs(before: ControllerState, after: ControllerState) -> bool:
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


def _shown(url: str) -> str:
    """Without a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://...@{tail}" if at else url


def _reason(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
