"""Gathers a 100-byte line per tuple in memory and appends them to a local file once 10,000 are there.

Every thread has a file of its own. Disk stays bounded: a file that has reached its limit becomes `rows-N.old.txt`, in
place of the one before, and a thread that ends leaves its number N to the next one that starts. So a folder never holds
more than two files of `LARGEST_FILE` (and one batch) for each thread that ran at the same time.

The files are a load, not a store: lines in memory are written when the thread closes, and lost if its process is
killed. The pipeline's own sinks are what keeps results.
"""

from __future__ import annotations

import fcntl
import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.connectors.storage import user_folder
from penstock.dataflow.logic import Logic
from penstock.workloads.incoming import number_of

if TYPE_CHECKING:
    from typing import BinaryIO

WRITE_FOLDER = "PENSTOCK_WRITE_FOLDER"
"""Environment variable: where the files go. Without it, a folder of the user's in the system's temporary folder."""

BATCH = 10_000
LINE_BYTES = 100
LARGEST_FILE = 16_000_000


def write_folder() -> Path:
    given = os.environ.get(WRITE_FOLDER)
    if not given:
        return user_folder("rows")
    folder = Path(given)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return folder


class BatchWriter:
    """The lines and the file of one thread."""

    def __init__(self, folder: Path, batch: int = BATCH, largest_file: int = LARGEST_FILE) -> None:
        self._batch = batch
        self._largest_file = largest_file
        self._lines: list[bytes] = []
        self.batches = 0
        self._claim, number = _claim_number(folder)
        self.path = folder / f"rows-{number}.txt"
        self._old = folder / f"rows-{number}.old.txt"
        self._file = self.path.open("ab", buffering=0)

    def add(self, value: int) -> int:
        """The number of the batch the line will be written with."""
        self._lines.append(b"%*d\n" % (LINE_BYTES - 1, value))
        batch = self.batches
        if len(self._lines) >= self._batch:
            self.write()
        return batch

    def write(self) -> None:
        if not self._lines:
            return
        rest = memoryview(b"".join(self._lines))
        self._lines.clear()
        while rest:
            rest = rest[self._file.write(rest) :]
        self.batches += 1
        if self._file.tell() >= self._largest_file:
            self._file.close()
            self.path.replace(self._old)
            self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        try:
            self.write()
        finally:
            self._file.close()
            self._claim.close()


def _claim_number(folder: Path) -> tuple[BinaryIO, int]:
    """The smallest number no living thread has; the system gives it back when the file closes or the process dies."""
    for number in count():
        claim = (folder / f"rows-{number}.lock").open("ab")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            continue
        return claim, number
    raise AssertionError("numbers do not end")


def open_writer() -> BatchWriter:
    return BatchWriter(write_folder())


def close_writer(writer: BatchWriter) -> None:
    writer.close()


def write_row(row: dict[str, Any], writer: BatchWriter) -> dict[str, Any]:
    value = number_of(row)
    return {"value": value, "batch": writer.add(value)}


batch_file_write = Logic(write_row, schema="value bigint, batch bigint", open=open_writer, close=close_writer)
