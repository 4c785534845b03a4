"""The database of a store: its file, its engines, and whether its tables are those of this version."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, insert, inspect, select, text

from penstock.control.store import schema
from penstock.control.store.address import StoreAddress
from penstock.control.store.errors import REPAIR
from penstock.control.store.raw_rows import decode_json, encode_json
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Engine

SIDE_FILES = ("-wal", "-shm")
"""Endings of the files that SQLite keeps beside its own."""


def make_engine(
    address: StoreAddress, busy_seconds: float, synchronous: str = "FULL", *, reads: bool = False
) -> Engine:
    """An engine of a SQLite store begins transactions that write with the lock of the writer. One that only `reads`
    waits for no writer (WAL), and cannot write."""
    codec = {"json_serializer": encode_json, "json_deserializer": decode_json}
    if address.path is None:
        return create_engine(address.url, pool_pre_ping=True, **codec)
    engine = create_engine(address.url, connect_args={"timeout": busy_seconds}, **codec)

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's own BEGIN below, not the driver's late one
        cursor = connection.cursor()
        cursor.execute("PRAGMA query_only=ON" if reads else "PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={synchronous}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.execute(text("BEGIN" if reads else "BEGIN IMMEDIATE"))

    return engine


def create_tables(connection: Connection) -> None:
    schema.metadata.create_all(connection)
    connection.execute(insert(schema.meta).values(key="schema", value=str(schema.SCHEMA_VERSION)))


def prepare_file(path: Path, shown: str) -> None:
    """Make a new store if there is no file, readable by its owner only. A file appears with all its tables
    or not at all: an empty one is a store that was lost."""
    try:
        status = path.stat()
    except FileNotFoundError:
        _create_file(path, shown)
        return
    except (OSError, ValueError) as error:
        raise BadInputError(f"store '{shown}': {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise BadInputError(f"store '{shown}': not a regular file")
    if status.st_size == 0:
        raise BadInputError(
            f"store '{shown}': the file is empty: what it held is lost; restore a copy, or remove the file"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        raise BadInputError(f"store '{shown}': you may not read and write it")
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        for ending in ("", *SIDE_FILES):
            if (beside := path.with_name(path.name + ending)).exists():
                beside.chmod(0o600)


def _create_file(path: Path, shown: str) -> None:
    temporary = path.with_name(f".{path.name[:50]}-{secrets.token_hex(8)}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            engine = make_engine(StoreAddress.of(f"sqlite:///{temporary}"), 10.0)
            with engine.begin() as connection:
                create_tables(connection)
            engine.dispose()  # the last connection writes everything into the file itself
            path.hardlink_to(temporary)
        except FileExistsError:
            pass  # another process was faster
        finally:
            for ending in ("", *SIDE_FILES):
                temporary.with_name(temporary.name + ending).unlink(missing_ok=True)
    except OSError as error:
        raise BadInputError(f"store '{shown}': {error.strerror or error}") from error


def found_version(connection: Connection, shown: str) -> int | None:
    """Version of the tables; None if there are none."""
    names = set(inspect(connection).get_table_names())
    if not names & set(schema.metadata.tables):
        if connection.dialect.name == "sqlite":
            raise BadInputError(f"store '{shown}': a database without the tables of a controller")
        return None
    if "meta" not in names:
        raise BadInputError(f"store '{shown}': table 'meta' is missing; {REPAIR}")
    version = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == "schema")).scalar()
    if not isinstance(version, str) or not (version.isascii() and version.isdigit() and len(version) < 9):
        raise BadInputError(f"store '{shown}': table 'meta', row 'schema': no version of the tables; {REPAIR}")
    if int(version) > schema.SCHEMA_VERSION:
        raise BadInputError(
            f"store '{shown}': its tables are of version {version}, this Penstock knows up to {schema.SCHEMA_VERSION}; "
            "use a newer Penstock"
        )
    return int(version)


def check_tables(connection: Connection, shown: str) -> None:
    """Raise if a table or column is missing. Nothing is made anew: that would lose its content."""
    inspector = inspect(connection)
    names = set(inspector.get_table_names())
    for table in schema.metadata.sorted_tables:
        if table.name not in names:
            raise BadInputError(f"store '{shown}': table '{table.name}' is missing; {REPAIR}")
        known = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                raise BadInputError(f"store '{shown}': table '{table.name}' has no column '{column.name}'; {REPAIR}")


def copy_file(path: Path, copy: Path) -> None:
    """Copy a SQLite store as it is now, with what SQLite has not yet written into the file itself."""
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()


def free_name(path: Path, ending: str) -> Path:
    """`path` with an ending that no file has yet."""
    number = 1
    while True:
        name = path.with_name(f"{path.name}.{ending}" + ("" if number == 1 else f"-{number}"))
        if not name.exists():
            return name
        number += 1
