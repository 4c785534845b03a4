"""Everything the controller must not forget, in one database: a SQLite file, or PostgreSQL by URL.

Every step is one transaction: the new state, events and decisions, and the lease renewed. It is written
before any action follows; a crash in between leaves the state before or the state after, and orders follow from either.
Readers wait for no writer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import secrets
import zlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, delete, func, insert, select
from sqlalchemy.exc import DataError, SQLAlchemyError, StatementError

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.control.errors import (
    REPAIR,
    DamagedStoreError,
    StoreError,
    StoreFault,
    UnknownOutcomeError,
    UnstorableError,
)
from penstock.control.store import database, schema
from penstock.control.store import lease as leasing
from penstock.control.store.database import StoreAddress, migrate
from penstock.control.store.metric_history import unpacked
from penstock.control.store.rows import key_of, parse, reason_of, select_raw
from penstock.control.store.schema import meta
from penstock.control.store.state_tables import STATE_TABLES, StateReader, changes_nothing, write_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine, Select

    from penstock.control.core.messages import StepOutcome
    from penstock.control.core.records import ControllerState
    from penstock.control.store.metric_history import WindowReadings as Readings


# The id of a store, also written into the folders of its drivers.


_KEY = "store"


def store_id(connection: Connection) -> str:
    """Random, made when it is first asked for; a store that was moved keeps it."""
    known = connection.execute(select(meta.c.value).where(meta.c.key == _KEY)).scalar_one_or_none()
    if known is None:
        known = secrets.token_hex(16)
        connection.execute(insert(meta).values(key=_KEY, value=known))
    return str(known)


log = logging.getLogger("penstock.control")

BUSY_SECONDS = 10.0
KEPT = MappingProxyType({"events": 20_000, "decisions": 20_000, "passes": 500})
"""Max rows per table; the newest are kept."""

_NOT_STORABLE = (OverflowError, UnicodeError, ValueError, TypeError, RecursionError)
"""Raised by drivers for values that no column takes."""


class Store:
    """`folder` is the state folder of the controller: a store that belongs to another one is rejected when the lease is
    taken, unless it is to `take_over`."""

    def __init__(self, url: str, *, folder: Path | None = None, take_over: bool = False) -> None:
        self._address = StoreAddress.of(url)
        self.url = str(self._address)
        """The URL without passwords."""
        self._holder = leasing.LeaseHolder.own(folder)
        self._take_over = take_over
        path = self._address.path
        if path is not None:
            database.prepare_file(path, self.url)
        try:
            self._engine = database.make_engine(self._address, BUSY_SECONDS)
            self._reads = database.make_engine(self._address, BUSY_SECONDS, reads=True) if path else self._engine
            # metrics need not survive a power cut: no wait for the disk
            self._metrics = database.make_engine(self._address, BUSY_SECONDS, "NORMAL") if path else self._engine
        except (SQLAlchemyError, ImportError, ValueError) as error:
            raise BadInputError(f"store '{self.url}': {self._reason(error)}") from error
        try:
            self._open(path)
        except SQLAlchemyError as error:
            self.close()
            raise BadInputError(f"store '{self.url}': {self._reason(error)}") from error
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path | None) -> None:
        with self._reads.begin() as connection:
            version = database.found_version(connection, self.url)
        if version is None:
            with self._engine.begin() as connection:
                database.create_tables(connection)
        if version is not None and version < schema.SCHEMA_VERSION:
            copy = migrate(self._engine, version, self.url, path)
            kept = f"; a copy of it as it was: {copy}" if copy else ""
            log.warning("store '%s': migrated from version %d to %d%s", self.url, version, schema.SCHEMA_VERSION, kept)
        with self._reads.begin() as connection:
            database.check_tables(connection, self.url)

    def close(self) -> None:
        for engine in {self._engine, self._reads, self._metrics}:
            engine.dispose()

    def _reason(self, error: Exception) -> str:
        reason = reason_of(error) if isinstance(error, SQLAlchemyError) else str(error).partition("\n")[0]
        return self._address.without_secrets(reason)

    @contextlib.contextmanager
    def _writing(self, engine: Engine | None = None, step: str = "") -> Iterator[Connection]:
        """All or nothing. If the database fails while it commits, only the database knows which of the two."""
        try:
            with (engine or self._engine).connect() as connection, connection.begin() as transaction:
                yield connection
                try:
                    transaction.commit()
                except SQLAlchemyError as error:
                    raise UnknownOutcomeError(f"store '{self.url}': {self._reason(error)}", step) from error
        except (DataError, *_NOT_STORABLE) as error:
            raise UnstorableError(f"cannot be stored: {self._reason(error)}") from error
        except StatementError as error:
            if isinstance(error.orig, _NOT_STORABLE):
                raise UnstorableError(f"cannot be stored: {self._reason(error)}") from error
            raise StoreError(f"store '{self.url}': {self._reason(error)}") from error
        except SQLAlchemyError as error:
            raise StoreError(f"store '{self.url}': {self._reason(error)}") from error
        except DamagedStoreError as error:
            raise self._damaged(error) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._reads.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(f"store '{self.url}': {self._reason(error)}") from error
        except DamagedStoreError as error:
            raise self._damaged(error) from error

    def _damaged(self, fault: object) -> DamagedStoreError:
        return DamagedStoreError(f"store '{self.url}': {fault}; {REPAIR}")

    @property
    def id(self) -> str:
        """Random id that a moved store keeps: the folders of its drivers carry it."""
        with self._writing() as connection:
            return store_id(connection)

    def take_lease(self, now: float) -> leasing.ControllerLease:
        """Waits for up to `LEASE_SECONDS` if the holder cannot be seen from here."""
        seen: leasing.Heartbeat | None = None
        watch = Stopwatch()
        while True:
            with self._writing() as connection:
                taken = leasing.take(
                    connection, self._holder, now, take_over=self._take_over, seen=seen, waited=watch.seconds()
                )
            if isinstance(taken, leasing.ControllerLease):
                return taken
            if seen is None:
                watch = Stopwatch()
            seen = taken
            pause(leasing.POLL_SECONDS)

    def give_back(self, held: leasing.ControllerLease) -> None:
        with self._writing() as connection:
            leasing.give_back(connection, held)

    def renew(self, held: leasing.ControllerLease, now: float) -> None:
        with self._writing() as connection:
            leasing.renew(connection, held, now)

    def commit(self, before: ControllerState, step: StepOutcome, held: leasing.ControllerLease, now: float) -> None:
        """All of a step or nothing of it; a step that changed nothing but readings is not written.

        After an `UnknownOutcomeError` the caller asks `was_written` before it makes another step from `before`.
        """
        if changes_nothing(before, step):
            return
        step_id = secrets.token_hex(16)
        with self._writing(step=step_id) as connection:
            leasing.renew(connection, held, now)
            write_step(connection, before, step, step_id)

    def was_written(self, step: str) -> bool:
        """Whether the last step that was written is the one with this id."""
        # not by a connection that only reads: the outcome of an earlier writer must be final before the answer is
        with self._writing() as connection:
            return bool(connection.execute(select(schema.controller.c.step)).scalar() == step)

    def load(self) -> ControllerState | None:
        """The state of the last step that was written; None if there was none."""
        with self._reading() as connection:
            reader = StateReader(connection.dialect.name == "sqlite")
            newest = max(_newest(connection, table) for table in (schema.decisions, schema.passes))
            state = reader.read({table.name: list(select_raw(connection, table)) for table in STATE_TABLES}, newest)
        for fault in reader.faults:
            raise self._damaged(fault)
        return state

    def read(self, question: Select[Any]) -> list[dict[str, Any]]:
        with self._reading() as connection:
            try:
                return [dict(row) for row in connection.execute(question).mappings()]
            except _NOT_STORABLE as error:
                tables = [table for table in question.get_final_froms() if isinstance(table, Table)]
                raise self._damaged(_first_fault(connection, tables) or self._reason(error)) from error

    def add_windows(self, seconds: int, windows: Iterable[tuple[str, float, bytes]]) -> None:
        """(owner, at, readings), means over `seconds`; existing windows stay."""
        if values := _window_rows(seconds, windows):
            with self._writing(self._metrics) as connection:
                _add_windows(connection, values)

    def windows(self, owner: str, since: float, until: float = math.inf) -> Iterator[tuple[float, int, Readings]]:
        """Yield start, length in seconds and readings of each window, the oldest first. Leave out and log windows that
        cannot be read."""
        table = schema.metrics
        question = select(table).where(table.c.owner == owner, table.c.at >= since).order_by(table.c.at)
        if until < math.inf:
            question = question.where(table.c.at < until)
        for row in self.read(question):
            if (readings := self._readings(row)) is not None:
                yield row["at"], row["seconds"], readings

    def windows_before(self, seconds: int, edge: float) -> list[dict[str, Any]]:
        table = schema.metrics
        rows = self.read(select(table).where(table.c.seconds == seconds, table.c.at < edge).order_by(table.c.at))
        return [row for row in rows if self._readings(row) is not None]

    def _readings(self, row: dict[str, Any]) -> Readings | None:
        _, reason = parse(schema.metrics, row, is_sqlite=True)
        try:
            if not reason:
                return unpacked(row["readings"])
        except (zlib.error, json.JSONDecodeError, UnicodeError, RecursionError, ValueError) as error:
            reason = f"readings: {error}"
        log.warning("%s", self._damaged(StoreFault("metrics", key_of(schema.metrics, row), reason)))
        return None

    def replace_windows(
        self, seconds: int, edge: float, into: int, windows: Iterable[tuple[str, float, bytes]]
    ) -> None:
        """Those over `seconds` before `edge` go, these over `into` come."""
        table = schema.metrics
        with self._writing(self._metrics) as connection:
            if values := _window_rows(into, windows):
                _add_windows(connection, values)
            connection.execute(delete(table).where(table.c.seconds == seconds, table.c.at < edge))

    def trim(self) -> None:
        """The newest rows of every log stay."""
        keys = {"events": schema.events.c.id, "decisions": schema.decisions.c.number, "passes": schema.passes.c.number}
        with self._writing(self._metrics) as connection:
            for name, most in KEPT.items():
                key = keys[name]
                edge = connection.execute(select(key).order_by(key.desc()).offset(most).limit(1)).scalar()
                if edge is not None:
                    connection.execute(delete(schema.metadata.tables[name]).where(key <= edge))

    def count(self, table: str) -> int:
        with self._reading() as connection:
            return int(
                connection.execute(select(func.count()).select_from(schema.metadata.tables[table])).scalar() or 0
            )


def _newest(connection: Connection, table: Table) -> int:
    """The highest number that was given out."""
    number = connection.execute(select(func.max(table.c.number))).scalar() or 0
    if not isinstance(number, int):
        raise DamagedStoreError(str(_first_fault(connection, [table])))
    return number


def _first_fault(connection: Connection, tables: Iterable[Table]) -> StoreFault | None:
    for table in tables:
        for raw in select_raw(connection, table):
            _, reason = parse(table, raw, is_sqlite=connection.dialect.name == "sqlite")
            if reason:
                return StoreFault(table.name, key_of(table, raw), reason)
    return None


def _window_rows(seconds: int, windows: Iterable[tuple[str, float, bytes]]) -> list[dict[str, Any]]:
    return [{"owner": owner, "seconds": seconds, "at": at, "readings": readings} for owner, at, readings in windows]


def _add_windows(connection: Connection, values: list[dict[str, Any]]) -> None:
    if connection.dialect.name == "sqlite":
        connection.execute(insert(schema.metrics).prefix_with("OR IGNORE"), values)
    else:
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert  # noqa: PLC0415 - rarely needed

        connection.execute(postgresql_insert(schema.metrics).on_conflict_do_nothing(), values)
