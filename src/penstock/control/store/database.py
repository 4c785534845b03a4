"""The database of a store: its file, its engines, and whether its tables are those of this version."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import stat
import zlib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, create_engine, event, insert, inspect, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError

from penstock.base import clock
from penstock.base.errors import BadInputError
from penstock.base.files import read_text
from penstock.control.errors import REPAIR
from penstock.control.store import schema
from penstock.control.store.lease import LeaseHeldError
from penstock.control.store.metric_history import NODES, packed, threads_of
from penstock.control.store.metric_history import WindowReadings as Readings
from penstock.control.store.rows import decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine


# The address of a store: which database, and how it is shown to people without its password.


SECRET_PARAMETERS = ("password", "passwd", "pwd", "secret", "token", "sslkey")
"""Query parameters whose name contains one of these are not shown."""

HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    url: URL

    @classmethod
    def of(cls, text: str) -> StoreAddress:
        try:
            url = make_url(text)
            backend = url.get_backend_name()
        except (SQLAlchemyError, ValueError) as error:
            # the text itself is not repeated: it may hold a password
            raise BadInputError(
                "store '...': not the URL of a database; expected sqlite:///FILE or postgresql+psycopg://..."
            ) from error
        address = cls(url)
        if backend not in {"sqlite", "postgresql"}:
            raise BadInputError(f"store '{address}': expected sqlite:///FILE or postgresql+psycopg://...")
        if backend == "sqlite" and (not url.database or url.database.startswith((":", "file:")) or url.query):
            raise BadInputError(f"store '{address}': expected a plain path, as in sqlite:///FILE")
        return address

    def __str__(self) -> str:
        """The URL without passwords."""
        query = {name: HIDDEN if _is_secret(name) else value for name, value in self.url.query.items()}
        return self.url.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", HIDDEN)

    def __repr__(self) -> str:
        return f"StoreAddress({self})"

    @property
    def path(self) -> Path | None:
        """File of a SQLite store."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None

    @property
    def secrets(self) -> tuple[str, ...]:
        values = [self.url.password, *(value for name, value in self.url.query.items() if _is_secret(name))]
        flat = [part for value in values for part in ((value,) if isinstance(value, str) else value or ())]
        return tuple(part for part in flat if part)

    def without_secrets(self, text: str) -> str:
        """Remove every password of this address from an error message."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return text


def _is_secret(parameter: str) -> bool:
    return any(word in parameter.lower() for word in SECRET_PARAMETERS)


def url_from_options(store: str | None, store_file: Path | None, remedy: str) -> str | None:
    """Return the URL given by `--store` or `--store-file`.

    A password on the command line is rejected: every local user can read it in the list of processes.
    """
    if store is not None and store_file is not None:
        raise BadInputError("--store and --store-file: give either")
    if store_file is not None:
        return _url_in_file(store_file)
    if store is not None and StoreAddress.of(store).secrets:
        raise BadInputError(
            "--store: a password on the command line can be read by every local user; write the URL into a file that "
            f"only you can read and give --store-file FILE, or {remedy}"
        )
    return store


def _url_in_file(path: Path) -> str:
    text = read_text(path).strip()
    if StoreAddress.of(text).secrets and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise BadInputError(f"--store-file: {path} holds a password and others can read it; run chmod 600 {path}")
    return text


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


# Steps that bring the tables of an earlier version to those of the next, each in one transaction.
#
# A step lists for itself which tables there were and which there are afterwards: it does not change when the schema
# does. Version 3 had two forms of `metrics`: the first still had a row for every value.


WINDOW = 10
"""Seconds of the windows of threads in version 3."""


def migrate(engine: Engine, version: int, shown: str, path: Path | None) -> Path | None:
    """Bring the tables to the present version. Return the copy that was kept of a SQLite file as it was."""
    if version not in STEPS:
        raise BadInputError(f"store '{shown}': its tables are of version {version}, which no Penstock wrote")
    with engine.begin() as connection:
        _refuse_if_held(connection)
    copy = None
    if path is not None:
        copy = free_name(path, f"version-{version}")
        copy_file(path, copy)
    for number in range(version, schema.SCHEMA_VERSION):
        with engine.begin() as connection:
            try:
                STEPS[number](connection)
            except (ValueError, TypeError, zlib.error) as error:
                raise BadInputError(
                    f"store '{shown}': damaged, cannot be migrated from version {number}: {error}; {REPAIR}"
                ) from error
            connection.execute(text("UPDATE meta SET value = :value WHERE key = 'schema'"), {"value": str(number + 1)})
    return copy


def _refuse_if_held(connection: Connection) -> None:
    """Versions before 4 held a lease until a time of the machine's clock."""
    held = connection.execute(text("SELECT host, pid, until FROM lease")).first()
    if held is None or not isinstance(held.until, float) or held.until <= clock.now():
        return
    if held.host != socket.gethostname() or _runs(held.pid):
        raise LeaseHeldError(
            f"the store is held by the controller with process {held.pid} on {held.host}, of an earlier version; "
            "end it, or wait 15 s if it is gone"
        )


def _runs(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _from_2(connection: Connection) -> None:
    """Measurements: one packed row for every owner and window, instead of a row for every value."""
    _pack_metrics(connection)


def _from_3(connection: Connection) -> None:
    """The lease names its holder's process and folder and counts beats; the last step has an id."""
    _pack_metrics(connection)
    held = connection.execute(text("SELECT number, host, pid, until FROM lease WHERE id = 1")).first()
    connection.execute(text("DROP TABLE lease"))
    connection.execute(
        text(
            "CREATE TABLE lease (id INTEGER NOT NULL PRIMARY KEY, number INTEGER NOT NULL, beat BIGINT NOT NULL, "
            "held BOOLEAN NOT NULL, host VARCHAR(255) NOT NULL, boot VARCHAR(100) NOT NULL, "
            "namespace VARCHAR(100) NOT NULL, pid INTEGER NOT NULL, ticks BIGINT NOT NULL, folder TEXT NOT NULL, "
            f"folder_id VARCHAR(100) NOT NULL, renewed_at {_double(connection)} NOT NULL)"
        )
    )
    if held is not None:
        connection.execute(
            text("INSERT INTO lease VALUES (1, :number, 0, :held, :host, '', '', :pid, 0, '', '', 0.0)"),
            {"number": held.number, "held": held.until > 0, "host": held.host, "pid": held.pid},
        )
    connection.execute(text("ALTER TABLE controller ADD COLUMN step VARCHAR(40)"))


STEPS: dict[int, Callable[[Connection], None]] = {2: _from_2, 3: _from_3}
"""Migration steps, keyed by the version they start from."""


def _double(connection: Connection) -> str:
    return "FLOAT" if connection.dialect.name == "sqlite" else "DOUBLE PRECISION"


def _pack_metrics(connection: Connection) -> None:
    inspector = inspect(connection)
    if "subject" not in {column["name"] for column in inspector.get_columns("metrics")}:
        return
    blob = "BLOB" if connection.dialect.name == "sqlite" else "BYTEA"
    connection.execute(
        text(
            f"CREATE TABLE packed (owner VARCHAR(201) NOT NULL, seconds INTEGER NOT NULL, at {_double(connection)} "
            f"NOT NULL, readings {blob} NOT NULL, PRIMARY KEY (owner, seconds, at))"
        )
    )
    values = connection.execute(text("SELECT seconds, at, subject, metric, value FROM metrics ORDER BY seconds, at"))
    for (seconds, at), rows in groupby(values.fetchall(), key=lambda row: (row.seconds, row.at)):
        owners: dict[str, Readings] = {}
        for row in rows:
            owner, subject = _owner(row.subject)
            owners.setdefault(owner, {}).setdefault(subject, {})[row.metric] = row.value
        _insert_packed(connection, seconds, at, owners)
    if "thread_windows" in inspector.get_table_names():
        for row in connection.execute(text("SELECT pipeline, at, readings FROM thread_windows")).fetchall():
            threads: list[Any] = json.loads(zlib.decompress(row.readings))
            readings = {f"{operator}/{node}/{slot}": metrics for operator, node, slot, metrics in threads}
            _insert_packed(connection, WINDOW, row.at, {threads_of(row.pipeline): readings})
        connection.execute(text("DROP TABLE thread_windows"))
    connection.execute(text("DROP TABLE metrics"))
    connection.execute(text("ALTER TABLE packed RENAME TO metrics"))
    connection.execute(text("CREATE INDEX metrics_by_age ON metrics (seconds, at)"))


def _owner(subject: str) -> tuple[str, str]:
    """PIPELINE, PIPELINE/OPERATOR, PIPELINE/OPERATOR/NODE/SLOT or /NODE as an owner and the subject of a metric."""
    first, _, rest = subject.partition("/")
    if not first:
        return NODES, rest
    return (threads_of(first), rest) if rest.count("/") == 2 else (first, rest)


def _insert_packed(connection: Connection, seconds: int, at: float, owners: dict[str, Readings]) -> None:
    connection.execute(
        text("INSERT INTO packed VALUES (:owner, :seconds, :at, :readings)"),
        [
            {"owner": owner, "seconds": seconds, "at": at, "readings": packed(readings)}
            for owner, readings in owners.items()
        ],
    )
