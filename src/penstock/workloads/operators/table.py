"""Looks one record up by its key for every tuple, in the database that PENSTOCK_TABLE_DATABASE names.

`penstock.workloads.table_database` builds it. Every thread has a read-only connection. A database on the same machine
answers in microseconds; PENSTOCK_TABLE_DELAY_MS adds the time a service in a cloud would take.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from penstock.dataflow.logic import Logic
from penstock.errors import BadInputError, PenstockError
from penstock.workloads.incoming import number_of
from penstock.workloads.table_database import COLUMNS, read_only, stored_rows

TABLE_DATABASE = "PENSTOCK_TABLE_DATABASE"
"""Environment variable: the path of the database."""

TABLE_DELAY = "PENSTOCK_TABLE_DELAY_MS"
"""Environment variable: milliseconds every query waits before it is sent; 0 without it."""

_SPARK_TYPES = {"INTEGER": "int", "TEXT": "string"}
_NAMES = tuple(COLUMNS)
_QUERY = f"SELECT {', '.join(COLUMNS)} FROM records WHERE row_key = ?"  # noqa: S608 - names from our own table
SCHEMA = "value bigint, " + ", ".join(f"{name} {_SPARK_TYPES[kind]}" for name, kind in COLUMNS.items())


class TableClient:
    """The connection of one thread."""

    def __init__(self, path: Path, delay: float = 0.0) -> None:
        self._path = path
        self._delay = delay
        self._never = threading.Event()
        if not path.is_file():
            raise BadInputError(f"{TABLE_DATABASE}: no database at {path}")
        self._connection = read_only(path)
        try:
            self._rows = stored_rows(self._connection)
        except sqlite3.Error as error:
            self._connection.close()
            raise BadInputError(f"{TABLE_DATABASE}: {path} is not a table of Penstock's: {error}") from error

    def look_up(self, number: int) -> tuple[Any, ...]:
        if self._delay:
            self._never.wait(self._delay)
        key = number % self._rows
        try:
            record: tuple[Any, ...] | None = self._connection.execute(_QUERY, (key,)).fetchone()
        except sqlite3.Error as error:
            raise PenstockError(f"{self._path}: record {key}: {error}") from error
        if record is None:
            raise PenstockError(f"{self._path}: record {key} is missing")
        return record

    def close(self) -> None:
        self._connection.close()


def table_delay() -> float:
    """Seconds, from the environment."""
    text = os.environ.get(TABLE_DELAY) or "0"
    try:
        delay = float(text)
    except ValueError:
        delay = math.nan
    if not 0 <= delay < math.inf:
        raise BadInputError(f"{TABLE_DELAY}: expected milliseconds of at least 0, found '{text}'")
    return delay / 1000


def open_table() -> TableClient:
    path = os.environ.get(TABLE_DATABASE)
    if not path:
        raise BadInputError(f"{TABLE_DATABASE} is not set; penstock.workloads.table_database builds a database")
    return TableClient(Path(path), table_delay())


def close_table(client: TableClient) -> None:
    client.close()


def query_table(row: dict[str, Any], client: TableClient) -> dict[str, Any]:
    value = number_of(row)
    return {"value": value, **dict(zip(_NAMES, client.look_up(value), strict=True))}


azure_table = Logic(query_table, schema=SCHEMA, open=open_table, close=close_table)
