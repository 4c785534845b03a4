"""Looks one record up by its key for every tuple, in the database that PENSTOCK_TABLE_DATABASE names.

`penstock.workloads.operators.azure` builds it. Every thread has a read-only connection. A database on the same machine
answers in microseconds; PENSTOCK_TABLE_DELAY_MS adds the time a service in a cloud would take.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import math
import os
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from zlib import crc32

from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import atomic_path
from penstock.dataflow.logic import Logic
from penstock.workloads.incoming import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Downloads a blob into memory for every tuple, from the HTTP server that PENSTOCK_BLOB_URL names.
#
# `penstock.workloads.blob_server` is such a server, with the delay and the bandwidth of a cloud service. Every thread
# keeps one connection open.


BLOB_URL = "PENSTOCK_BLOB_URL"
"""Environment variable: the address of the server, http://host:port."""

TIMEOUT = 60.0
"""Seconds without a byte after which a download has failed."""


class BlobClient:
    """A connection that is kept, and made again if the server has closed it in the meantime."""

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise BadInputError(f"{BLOB_URL}: expected http://host:port, found '{url}'")
        self._url = url
        self._folder = parts.path.rstrip("/")
        # a slot is a machine of its own to the store
        self._headers = {"X-Client": str(os.getpid())}
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)

    def download(self, name: str) -> bytes:
        fresh = self._connection.sock is None
        try:
            try:
                return self._get(name)
            except ConnectionError:
                # the server may close an idle connection at any time; a new one shows whether the server is there
                if fresh:
                    raise
                self._connection.close()
                return self._get(name)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise PenstockError(f"no blob from {self._url} ({BLOB_URL}): {reason}") from error

    def _get(self, name: str) -> bytes:
        self._connection.request("GET", f"{self._folder}/blobs/{quote(name, safe='')}", headers=self._headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"blob '{name}': {response.status} {response.reason}")
        return content

    def close(self) -> None:
        self._connection.close()


def open_client() -> BlobClient:
    url = os.environ.get(BLOB_URL)
    if not url:
        raise BadInputError(f"{BLOB_URL} is not set; start a server with python -m penstock.workloads.blob_server")
    return BlobClient(url)


def close_client(client: BlobClient) -> None:
    client.close()


def download_blob(row: dict[str, Any], client: BlobClient) -> dict[str, Any]:
    value = number_of(row)
    content = client.download(str(value))
    return {"value": value, "size": len(content), "checksum": crc32(content)}


azure_blob = Logic(
    download_blob, schema="value bigint, size bigint, checksum bigint", open=open_client, close=close_client
)


# The table that the table query looks up: 2,000,000 records of 20 columns in SQLite, built once and kept.
#
# The content follows from the row key alone, so every build is the same. Records are shorter (about 75 bytes) than the
# 200 bytes published, which keeps the file under 200 MB; the work of a look-up by key hardly depends on it.


ROWS = 2_000_000
READINGS = 15
VERSION = 1
"""Goes up when the content changes, so that an older file is not taken for this one."""

SLICE = 50_000
"""Rows between two reports of progress."""

COLUMNS = {
    "row_key": "INTEGER",
    "meter": "INTEGER",
    "zone": "TEXT",
    "tariff": "TEXT",
    "status": "TEXT",
    **{f"reading_{number:02}": "INTEGER" for number in range(1, READINGS + 1)},
}


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "penstock"


def ensure_database(
    folder: Path | None = None, rows: int = ROWS, progress: Callable[[int, int], None] | None = None
) -> Path:
    """The path of a complete database of `rows` records in `folder`; builds it if it is not there.

    `progress` is called with the rows written so far and all of them. Whoever comes while another builds waits for it.
    """
    if rows < 1:
        raise BadInputError(f"rows: expected at least 1, found {rows}")
    folder = folder or default_folder()
    path = folder / f"table-v{VERSION}-{rows}.sqlite"
    with _alone(path):
        if not is_complete(path, rows):
            # left behind by a killed process: no other process builds while we hold the lock
            for leftover in folder.glob(f".{path.stem}-*{path.suffix}"):
                leftover.unlink(missing_ok=True)
            try:
                with atomic_path(path) as temporary:
                    _build(temporary, rows, progress or (lambda _done, _all: None))
            except sqlite3.Error as error:
                raise BadInputError(f"{path}: cannot be built: {error}") from error
    return path


def is_complete(path: Path, rows: int) -> bool:
    """Whether `path` holds all it should. Counting visits every page, so a file cut short is found out.

    All but one that ends inside its last page: SQLite reads zeros there. Hence the size.
    """
    if not path.is_file():
        return False
    try:
        with contextlib.closing(read_only(path)) as connection:
            counted = connection.execute("SELECT count(*), max(row_key) FROM records").fetchone()
            pages, page_bytes = (
                connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size")
            )
            size_fits = path.stat().st_size == pages * page_bytes
            return size_fits and stored_rows(connection) == rows and tuple(counted) == (rows, rows - 1)
    except sqlite3.Error:
        return False


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that any thread may close. The file never changes under its name, so nothing needs to be locked."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def stored_rows(connection: sqlite3.Connection) -> int:
    rows: int = connection.execute("SELECT rows FROM metadata").fetchone()[0]
    return rows


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the system opens the lock when its holder dies."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("ab")
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(path: Path, rows: int, progress: Callable[[int, int], None]) -> None:
    """Rows are computed inside SQLite: several times as fast as handing them over one by one."""
    # Knuth's multiplicative hash, another odd multiplier for each column
    readings = [f"((i * {2_654_435_761 + 2 * number}) >> 8) % 30000" for number in range(1, READINGS + 1)]
    record = ", ".join(
        [
            "i",
            "(i * 40503) % 30000",
            "printf('zone-%03d', (i * 7919) % 500)",
            "CASE i % 3 WHEN 0 THEN 'day' WHEN 1 THEN 'night' ELSE 'flat' END",
            "CASE WHEN i % 97 = 0 THEN 'fault' ELSE 'ok' END",
            *readings,
        ]
    )
    numbers = "WITH RECURSIVE numbers(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < ?)"
    insert = f"{numbers} INSERT INTO records SELECT {record} FROM numbers"  # noqa: S608 - our own text
    columns = ", ".join(f"{name} {kind}{' PRIMARY KEY' * (name == 'row_key')}" for name, kind in COLUMNS.items())
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        # the file is invisible until it is complete, so there is nothing to roll back to
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;")
        database.execute(f"CREATE TABLE records ({columns})")
        database.execute("CREATE TABLE metadata (rows INTEGER)")
        for start in range(0, rows, SLICE):
            end = min(start + SLICE, rows)
            database.execute(insert, (start, end))
            progress(end, rows)
        database.execute("INSERT INTO metadata VALUES (?)", (rows,))
        database.execute("COMMIT")


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
        raise BadInputError(f"{TABLE_DATABASE} is not set; penstock.workloads.operators.azure builds a database")
    return TableClient(Path(path), table_delay())


def close_table(client: TableClient) -> None:
    client.close()


def query_table(row: dict[str, Any], client: TableClient) -> dict[str, Any]:
    value = number_of(row)
    return {"value": value, **dict(zip(_NAMES, client.look_up(value), strict=True))}


azure_table = Logic(query_table, schema=SCHEMA, open=open_table, close=close_table)
