"""The files of a source in the order they were found, with their rows counted, so that tuple n is always the same row.

The index is a file of its own that is kept with the run: a restart, or another process, finds the same order. It
records positions at regular intervals, so that reading some rows does not mean reading all.
"""

from __future__ import annotations

import csv
import glob
import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError
from penstock.base.files import Spec, read_value, write_text
from penstock.dataflow.formats import declared_formats, find_format, reading_of
from penstock.dataflow.logic import Logic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from penstock.dataflow.pipeline import Operator, Pipeline


class FileFormat(StrEnum):
    """Format of the files of a source: a row is a tuple."""

    JSONL = "json"
    CSV = "csv"
    PARQUET = "parquet"
    TEXT = "text"


Whole = Annotated[int, Field(ge=0, strict=True)]

STRIDE = 1000
"""Rows from one remembered place to the next."""


@dataclass(frozen=True)
class FileEntry:
    """One file. `marks` are the bytes at which rows 0, STRIDE, 2 STRIDE, ... begin; of Parquet, the first row of every
    row group. A file that could not be read is one row, and reading that row raises `error`."""

    path: str
    rows: int
    marks: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class FileIndex:
    """The files of one source so far."""

    pattern: str
    format: FileFormat
    entries: tuple[FileEntry, ...] = ()
    row_offsets: tuple[int, ...] = field(init=False, compare=False)
    """After each file, how many rows there are up to its end."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_offsets", tuple(accumulate(entry.rows for entry in self.entries)))

    @property
    def rows(self) -> int:
        return self.row_offsets[-1] if self.row_offsets else 0

    def locate(self, row: int) -> tuple[FileEntry, int]:
        """The file that holds row `row` (from 0) of all, and which of its rows that is."""
        position = bisect_right(self.row_offsets, row)
        entry = self.entries[position]
        return entry, row - (self.row_offsets[position] - entry.rows)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(entry.path for entry in self.entries)

    def with_new_files(self, *, strict: bool = False) -> FileIndex:
        """This index with the files that have appeared since behind it, older ones first.

        A file that cannot be read counts as one row, or is an error where `strict`.
        """
        matching = [Path(name) for name in glob.glob(self.pattern, recursive=True)]  # noqa: PTH207 - patterns may be absolute
        new = [path for path in matching if str(path) not in self._known and path.is_file()]
        if not new:
            return self
        new.sort(key=lambda path: (path.stat().st_mtime if self.entries else 0.0, str(path)))
        entries = []
        for path in new:
            try:
                entries.append(_count(path, self.format))
            except (OSError, pa.ArrowException, MalformedRowError) as error:
                text = f"{path}: cannot be read as {self.format}: {str(error).splitlines()[0]}"
                if strict:
                    raise BadInputError(text) from error
                entries.append(FileEntry(str(path), 1, error=text))
        return FileIndex(self.pattern, self.format, (*self.entries, *entries))

    def save(self, path: Path) -> None:
        document = {
            "pattern": self.pattern,
            "format": self.format,
            "entries": [asdict(entry) for entry in self.entries],
        }
        write_text(path, json.dumps(document))

    @classmethod
    def read(cls, path: Path) -> FileIndex:
        """Read an index that `save` wrote. Raise `BadInputError` for anything else: rows could not be numbered as
        before."""
        kept = read_value(_KeptIndex, path)
        return cls(kept.pattern, kept.format, tuple(FileEntry(**dict(entry)) for entry in kept.entries))


class _KeptEntry(Spec):
    """A `FileEntry` as it stands in its file."""

    path: str
    rows: Whole
    marks: tuple[Whole, ...]
    columns: tuple[str, ...]
    error: str | None


class _KeptIndex(Spec):
    pattern: str
    format: FileFormat
    entries: tuple[_KeptEntry, ...]


def index_of(operator: Operator) -> FileIndex:
    """The files a source names, counted; no file, or one that cannot be read, is an error."""
    pattern = str(Path(operator.files or "").absolute())
    held = reading_of(operator).format
    if not find_format(held).numbered_rows:
        known = ", ".join(form.name for form in declared_formats() if form.numbered_rows)
        raise BadInputError(f"source '{operator.name}': placed runs read {known}, not {held}")
    try:
        index = FileIndex(pattern, FileFormat(held)).with_new_files(strict=True)
    except BadInputError as error:
        raise BadInputError(f"source '{operator.name}': {error}") from error
    if not index.entries:
        hint = f"; it is a folder, write '{operator.files}/*'" if Path(pattern).is_dir() else ""
        raise BadInputError(f"source '{operator.name}': no file matches '{operator.files}'{hint}")
    return index


def indexes_of(pipeline: Pipeline) -> dict[str, FileIndex]:
    """Return the indexes of all sources that name files."""
    return {name: index_of(operator) for name, operator in pipeline.operators.items() if operator.files is not None}


def _count(path: Path, kind: FileFormat) -> FileEntry:
    if kind is FileFormat.PARQUET:
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        return FileEntry(str(path), sum(groups), tuple(accumulate(groups, initial=0))[:-1])
    with path.open("rb") as file:
        lines = Lines(file)
        columns: tuple[str, ...] = ()
        if kind is FileFormat.CSV:
            lines.skip_mark()
            header = next(records(lines), [])
            if isinstance(header, MalformedRowError):
                raise header
            columns = tuple(name.strip() for name in header)
        marks = []
        rows = 0
        begin = lines.position
        for row in records(lines) if kind is FileFormat.CSV else lines:
            if not is_row(row, kind):
                begin = lines.position
                continue
            if rows % STRIDE == 0:
                marks.append(begin)
            rows += 1
            begin = lines.position
    return FileEntry(str(path), rows, tuple(marks), columns)


class MalformedRowError(Exception):
    """A row that does not match its format."""


Row = bytes | list[str] | MalformedRowError


def is_row(row: Row, kind: FileFormat) -> bool:
    """Blank lines are rows only of plain text."""
    if isinstance(row, bytes):
        return kind is FileFormat.TEXT or bool(row.strip())
    return isinstance(row, MalformedRowError) or bool(row)


class Lines:
    """The lines of a file, and the position of the next one. (A file's own `tell` does not work while it is
    iterated.)"""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.position = file.tell()

    def skip_mark(self) -> None:
        """Step over the mark some programs put before UTF-8 text."""
        if self.position == 0 and self._file.read(3) != b"\xef\xbb\xbf":
            self._file.seek(0)
        self.position = self._file.tell()

    def __iter__(self) -> Iterator[bytes]:
        for line in self._file:
            self.position += len(line)
            yield line


def records(lines: Lines) -> Iterator[list[str] | MalformedRowError]:
    """Yield records of CSV text; one that cannot be read is an error in its place, and reading continues after it.

    A record takes no more lines than it needs, so the position of the next one is known after every record.
    """
    reader = csv.reader((line.decode("utf-8") for line in _again(lines)), strict=True)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeDecodeError) as error:
            yield MalformedRowError(f"not valid CSV: {error}")
            reader = csv.reader((line.decode("utf-8") for line in _again(lines)), strict=True)


def _again(lines: Lines) -> Iterator[bytes]:
    """Yield lines from the present position: a generator that raised has ended, the file has not."""
    yield from lines


# Rows of files as the tuples of a source: the source's code, which gets the number of a tuple and gives that row.
#
# So it runs where any operator's code runs, a row that cannot be read becomes a dead letter like any tuple whose code
# raises, and a batch that is run again reads the same rows.


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


# The files of a run: found again and again while it runs, written down for the processes that read them.


LOOK_SECONDS = 1.0


class FileFeed:
    """Keeps the index files in the run's folder up to date, and counts the tuples.

    Tuple n leaves every source at the same time: with several of them the one with the fewest rows sets the number.
    """

    def __init__(self, folder: Path, indexes: Mapping[str, FileIndex]) -> None:
        self._indexes = dict(indexes)
        self._paths = {name: folder / f"files-{number}.json" for number, name in enumerate(indexes)}
        self._looked = Stopwatch()
        for name, path in self._paths.items():
            # a resumed run keeps the order in which it numbered the rows
            if path.exists():
                self._indexes[name] = FileIndex.read(path).with_new_files()
            self._indexes[name].save(path)

    @property
    def logic(self) -> dict[str, Logic]:
        return {name: file_logic(path) for name, path in self._paths.items()}

    @property
    def tuples(self) -> int | None:
        """Return the present number of tuples; None if no source has files, so there is no end."""
        return min((index.rows for index in self._indexes.values()), default=None)

    def look(self) -> None:
        """Add files that have appeared; not more often than every second."""
        if not self._indexes or self._looked.seconds() < LOOK_SECONDS:
            return
        self._looked = Stopwatch()
        for name, index in self._indexes.items():
            grown = index.with_new_files()
            if grown is not index:
                grown.save(self._paths[name])
                self._indexes[name] = grown
