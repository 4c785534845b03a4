"""Steps that bring the tables of an earlier version to those of the next, each in one transaction.

A step lists for itself which tables there were and which there are afterwards: it does not change when the schema
does. Version 3 had two forms of `metrics`: the first still had a row for every value.
"""

from __future__ import annotations

import json
import os
import socket
import zlib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect, text

from penstock import clock
from penstock.control.store import schema
from penstock.control.store.database import copy_file, free_name
from penstock.control.store.errors import REPAIR
from penstock.control.store.lease import LeaseHeldError
from penstock.control.store.windows import NODES, Readings, packed, threads_of
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection, Engine

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
