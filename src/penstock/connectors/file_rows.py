"""Rows of files as the tuples of a source: the source's code, which gets the number of a tuple and gives that row.

So it runs where any operator's code runs, a row that cannot be read becomes a dead letter like any tuple whose code
raises, and a batch that is run again reads the same rows.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow.parquet as pq

from penstock.connectors.file_index import STRIDE, FileFormat, FileIndex, Lines, MalformedRowError, is_row, records
from penstock.dataflow.logic import Logic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.connectors.file_index import FileEntry, Row

_SHOWN = 200
"""Characters of a malformed row that its error shows."""
_WINDOW = 256
"""Rows of Parquet turned into Python values at a time."""
_CHANGED = "not there any more: the file has been changed since it was counted"


def file_logic(index: Path) -> Logic:
    """The code of a source whose files are listed in the index file `index`."""
    return Logic(_row, open=partial(RowReader, str(index)), close=RowReader.close)


def _row(tuple_: dict[str, Any], reader: RowReader) -> dict[str, Any]:
    return reader.row(tuple_["value"])


class RowReader:
    """Rows by number. Those that follow each other are read without looking for them again."""

    def __init__(self, index: str) -> None:
        self._path = Path(index)
        self._index = FileIndex.read(self._path)
        self._entry: FileEntry | None = None
        self._cursor: _Cursor | None = None

    def row(self, number: int) -> dict[str, Any]:
        if number >= self._index.rows:
            self._index = FileIndex.read(self._path)
        entry, row = self._index.locate(number)
        if entry.error is not None:
            raise MalformedRowError(entry.error)
        if self._cursor is None or entry != self._entry:
            self.close()
            self._entry, self._cursor = entry, _CURSORS[self._index.format](entry)
        try:
            return self._cursor.row(row)
        except MalformedRowError as error:
            raise MalformedRowError(f"{entry.path}, row {row + 1}: {error}") from error

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
        self._cursor = None


class _Cursor(Protocol):
    def row(self, number: int) -> dict[str, Any]: ...

    def close(self) -> None: ...


class _TextCursor:
    """Rows of a file of lines or records."""

    format: FileFormat

    def __init__(self, entry: FileEntry) -> None:
        self._entry = entry
        self._file = Path(entry.path).open("rb")  # noqa: SIM115 - stays open from row to row
        self._rows: Iterator[Row] = iter(())
        self._following: int | None = None

    def row(self, number: int) -> dict[str, Any]:
        if self._following is None or not self._following <= number < self._following + STRIDE:
            self._file.seek(self._entry.marks[number // STRIDE])
            lines = Lines(self._file)
            records_of_file: Iterator[Row] = records(lines) if self.format is FileFormat.CSV else iter(lines)
            self._rows = (row for row in records_of_file if is_row(row, self.format))
            self._following = number // STRIDE * STRIDE
        for _ in range(self._following, number + 1):
            self._following += 1
            row = next(self._rows, None)
        if row is None:
            self._following = None
            raise MalformedRowError(_CHANGED)
        return self.parse(row)

    def parse(self, row: Row) -> dict[str, Any]:
        raise NotImplementedError

    def close(self) -> None:
        self._file.close()


def _decoded(row: Row) -> str:
    if not isinstance(row, bytes):
        raise MalformedRowError("expected text")
    try:
        return row.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRowError(f"not UTF-8: {error.reason} at byte {error.start + 1}") from error


class _PlainText(_TextCursor):
    format = FileFormat.TEXT

    def parse(self, row: Row) -> dict[str, Any]:
        return {"value": _decoded(row)}


class _JsonLines(_TextCursor):
    format = FileFormat.JSONL

    def parse(self, row: Row) -> dict[str, Any]:
        text = _decoded(row).removeprefix("\ufeff")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MalformedRowError(f"not valid JSON: {error}: {text[:_SHOWN]}") from error
        if not isinstance(value, dict):
            raise MalformedRowError(f"expected a JSON object: {text[:_SHOWN]}")
        return value


class _Csv(_TextCursor):
    format = FileFormat.CSV

    def parse(self, row: Row) -> dict[str, Any]:
        if isinstance(row, MalformedRowError):
            raise row
        columns = self._entry.columns
        if not isinstance(row, list) or len(row) != len(columns):
            shown = ",".join(map(str, row))[:_SHOWN]
            raise MalformedRowError(f"expected {len(columns)} fields, found {len(row)}: {shown}")
        return dict(zip(columns, row, strict=True))


class _Parquet:
    """Rows of a Parquet file; the row group read last stays in memory, and some of its rows as Python values."""

    def __init__(self, entry: FileEntry) -> None:
        self._entry = entry
        self._file = pq.ParquetFile(entry.path)
        self._group: int | None = None
        self._table: Any = None
        self._window: list[dict[str, Any]] = []
        self._first = 0

    def row(self, number: int) -> dict[str, Any]:
        if not self._first <= number < self._first + len(self._window):
            group = bisect_right(self._entry.marks, number) - 1
            if group != self._group:
                self._table, self._group = self._file.read_row_group(group), group
            self._window = self._table.slice(number - self._entry.marks[group], _WINDOW).to_pylist()
            self._first = number
        if not self._window:
            raise MalformedRowError(_CHANGED)
        return self._window[number - self._first]

    def close(self) -> None:
        self._file.close()


_CURSORS: dict[FileFormat, Callable[[FileEntry], _Cursor]] = {
    FileFormat.TEXT: _PlainText,
    FileFormat.JSONL: _JsonLines,
    FileFormat.CSV: _Csv,
    FileFormat.PARQUET: _Parquet,
}
