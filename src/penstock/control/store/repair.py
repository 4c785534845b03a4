"""Salvage of a damaged SQLite store: the rows that can be read, in a new store; every other row by name, with a reason.

The damaged file is read in a copy and kept under another name.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import zlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert
from sqlalchemy.exc import SQLAlchemyError

from penstock.base.clock import pause
from penstock.base.errors import BadInputError
from penstock.base.files import atomic_path, temporary_folder
from penstock.control.errors import StoreError, StoreFault
from penstock.control.store import lease as leasing
from penstock.control.store import schema
from penstock.control.store.database import SIDE_FILES, StoreAddress, create_tables, free_name, make_engine
from penstock.control.store.metric_history import unpacked
from penstock.control.store.rows import key_of, parse, text_or_bytes
from penstock.control.store.state_tables import STATE_TABLES, Row, StateReader
from penstock.control.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Table

LOG_TABLES = (schema.decisions, schema.passes, schema.events, schema.metrics)
HIGH_NUMBER = 1_000_000
"""Number of a lease whose own number cannot be read: higher than any that was given out."""


@dataclass(frozen=True, slots=True)
class StoreRepair:
    """The result of a repair, or with `dry_run` its expected result."""

    store: str
    rows: dict[str, int]
    """Rows that can be read, by table."""
    faults: tuple[StoreFault, ...]
    damaged: str | None = None
    """File that the damaged store was kept in; None: nothing was written."""

    @property
    def nothing_readable(self) -> bool:
        return bool(self.faults) and not any(self.rows.values())

    def document(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "rows": self.rows,
            "unreadable": [fault.document() for fault in self.faults],
            "damaged": self.damaged,
        }


def repair(url: str, *, dry_run: bool = False) -> StoreRepair:
    """Raises `BadInputError` if it is no SQLite file, or a controller has it. An undamaged store is left as it is."""
    address = StoreAddress.of(url)
    path = address.path
    if path is None:
        raise BadInputError(f"store '{address}': only SQLite files can be repaired; restore PostgreSQL from a backup")
    if not path.is_file():
        raise BadInputError(f"store '{address}': there is no such file")
    salvage = _salvage(path)
    reader, lease = salvage.reader, _unheld(path, salvage.lease)
    result = StoreRepair(str(address), {name: len(rows) for name, rows in reader.kept.items()}, tuple(reader.faults))
    if dry_run or not reader.faults or result.nothing_readable:
        return result
    damaged = free_name(path, "damaged")
    with atomic_path(path) as new:
        _write(new, reader.kept, lease, salvage.meta)
        damaged.hardlink_to(path)
        for ending in SIDE_FILES:  # SQLite would take them for those of the new file
            if (beside := path.with_name(path.name + ending)).exists():
                beside.rename(damaged.with_name(damaged.name + ending))
    return replace(result, damaged=str(damaged))


@dataclass(frozen=True, slots=True)
class _Salvage:
    """All rows that can be read."""

    reader: StateReader
    lease: Row | None
    meta: list[Row]
    """All but the version, as the id of the store that its drivers know."""


def _salvage(path: Path) -> _Salvage:
    reader = StateReader(is_sqlite=True)
    with temporary_folder("repair") as folder:
        for ending in ("", *SIDE_FILES[:1]):
            if (part := path.with_name(path.name + ending)).exists():
                shutil.copyfile(part, folder / f"store.db{ending}")
        with contextlib.suppress(StoreError, BadInputError):
            Store(f"sqlite:///{folder / 'store.db'}").close()  # migrates one of an earlier version
        connection = sqlite3.connect(folder / "store.db", isolation_level=None)
        connection.text_factory = text_or_bytes
        connection.row_factory = sqlite3.Row
        try:
            raw = {
                table.name: _rows_of(connection, table, reader.faults)
                for table in (*LOG_TABLES, *STATE_TABLES, schema.lease)
            }
            reader.take(schema.meta, _rows_of(connection, schema.meta, reader.faults))
        finally:
            connection.close()
    meta = reader.kept.pop("meta")
    _check_version(meta, reader.faults)
    for table in LOG_TABLES:
        reader.take(table, raw[table.name])
    reader.drop(schema.metrics, _unpacked_fault)
    newest = max((row["number"] for table in LOG_TABLES[:2] for row in reader.kept[table.name]), default=0)
    reader.read(raw, newest)
    if not any(raw.values()):
        reader.kept = {name: [] for name in reader.kept}
    lease = None
    for row in raw["lease"][:1]:
        lease, reason = parse(schema.lease, row, is_sqlite=True)
        if reason:
            lease = None
            reader.faults.append(StoreFault("lease", key_of(schema.lease, row), reason))
    return _Salvage(reader, lease, [row for row in meta if row["key"] != "schema" and row["value"] is not None])


def _rows_of(connection: sqlite3.Connection, table: Table, faults: list[StoreFault]) -> list[Row]:
    """Rows of a table from both ends, as far as the file can be read from there."""
    names = [column.name for column in table.columns]
    rows: dict[int, Row] = {}
    try:
        there = {row["name"] for row in connection.execute(f'PRAGMA table_info("{table.name}")')}
        if not there:
            faults.append(StoreFault(table.name, "", "missing"))
            return []
        if missing := [column.name for column in table.columns if column.name not in there and not column.nullable]:
            faults.append(StoreFault(table.name, "", f"has no column {', '.join(missing)}"))
            return []
        listed = ", ".join(f'"{name}"' for name in names if name in there)
        for order in ("ASC", "DESC"):
            try:
                for stored in connection.execute(
                    f'SELECT rowid AS "_row", {listed} FROM "{table.name}" ORDER BY rowid {order}'  # noqa: S608 - our own names
                ):
                    row = dict(stored)
                    number = row.pop("_row")
                    rows[number] = {**dict.fromkeys(names), **row}
                break
            except sqlite3.DatabaseError as error:
                if order == "ASC":
                    last = max(rows, default=0)
                    faults.append(StoreFault(table.name, f"after row id {last}" if rows else "", str(error)))
    except sqlite3.DatabaseError as error:
        faults.append(StoreFault(table.name, "", str(error)))
    return [rows[number] for number in sorted(rows)]


def _check_version(meta: list[Row], faults: list[StoreFault]) -> None:
    version = next((row["value"] for row in meta if row["key"] == "schema"), None)
    if version is None or not (version.isascii() and version.isdigit() and len(version) < 9):
        if not any(fault.table == "meta" for fault in faults):
            faults.append(StoreFault("meta", "'schema'", "no version of the tables"))
    elif int(version) > schema.SCHEMA_VERSION:
        raise BadInputError(f"its tables are of version {version}, this Penstock knows up to {schema.SCHEMA_VERSION}")
    elif int(version) < schema.SCHEMA_VERSION:
        faults.append(StoreFault("meta", "'schema'", f"of version {version}, and too damaged to be migrated"))


def _unpacked_fault(row: Row) -> str:
    try:
        unpacked(row["readings"])
    except (zlib.error, json.JSONDecodeError, UnicodeError, RecursionError, ValueError) as error:
        return f"readings: {error}"
    return ""


def _unheld(path: Path, lease: Row | None) -> Row:
    """The lease for the new store: free, with a higher number. Raises if its holder lives."""
    if lease is None:
        unknown = leasing.LeaseHolder("", "", "", 0, 0)
        return {"id": 1, "number": HIGH_NUMBER, "beat": 0, "held": False, "renewed_at": 0.0, **asdict(unknown)}
    holder = leasing.holder_of(lease)
    own = leasing.LeaseHolder.own()
    if lease["held"] and not own.sees(holder):
        pause(leasing.LEASE_SECONDS)
        later = _salvage(path).lease
        is_alive = later is not None and later["beat"] != lease["beat"]
    else:
        is_alive = bool(lease["held"]) and holder.lives
    if is_alive:
        raise BadInputError(
            f"the store is held by the controller with process {holder.pid} on {holder.host}; end it first"
        )
    return {**lease, "number": lease["number"] + 1, "held": False}


def _write(path: Path, kept: dict[str, list[Row]], lease: Row, meta: list[Row]) -> None:
    engine = make_engine(StoreAddress.of(f"sqlite:///{path}"), 10.0)
    try:
        with engine.begin() as connection:
            create_tables(connection)
            connection.execute(insert(schema.lease).values(**lease))
            if meta:
                connection.execute(insert(schema.meta), meta)
            for table in (*LOG_TABLES, *STATE_TABLES):
                if kept[table.name]:
                    connection.execute(insert(table), kept[table.name])
    except SQLAlchemyError as error:
        raise BadInputError(f"{path.parent}: the new store cannot be written: {error.args[0]}") from error
    finally:
        engine.dispose()
    store = Store(f"sqlite:///{path}")
    try:
        store.load()
    finally:
        store.close()
