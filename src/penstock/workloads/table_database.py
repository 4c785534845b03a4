"""The table that the table query looks up: 2,000,000 records of 20 columns in SQLite, built once and kept.

The content follows from the row key alone, so every build is the same. Records are shorter (about 75 bytes) than the
200 bytes published, which keeps the file under 200 MB; the work of a look-up by key hardly depends on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import BadInputError
from penstock.files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
            # whoever left these was killed: nobody else builds while we are alone
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
        # nobody sees the file before it is whole, so there is nothing to roll back to
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;")
        database.execute(f"CREATE TABLE records ({columns})")
        database.execute("CREATE TABLE metadata (rows INTEGER)")
        for start in range(0, rows, SLICE):
            end = min(start + SLICE, rows)
            database.execute(insert, (start, end))
            progress(end, rows)
        database.execute("INSERT INTO metadata VALUES (?)", (rows,))
        database.execute("COMMIT")
