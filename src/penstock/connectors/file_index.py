"""The files of a source in the order they were found, with their rows counted, so that tuple n is always the same row.

The index is a file of its own that is kept with the run: whoever starts again, or reads in another process, finds the
same order. Every so many rows it remembers where they begin, so that reading some rows does not mean reading all.
"""

from __future__ import annotations

import csv
import glob
import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from penstock.dataflow.endpoints import reading_of
from penstock.errors import BadInputError
from penstock.files import Spec, read_value, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from penstock.dataflow.pipeline import Operator, Pipeline


class FileFormat(StrEnum):
    """What the files of a source hold: a row is a tuple."""

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
        """What `save` wrote; a `BadInputError` where it is anything else: rows could not be numbered as they were."""
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
    if held not in set(FileFormat):
        raise BadInputError(f"source '{operator.name}': placed runs read {', '.join(FileFormat)}, not {held}")
    try:
        index = FileIndex(pattern, FileFormat(held)).with_new_files(strict=True)
    except BadInputError as error:
        raise BadInputError(f"source '{operator.name}': {error}") from error
    if not index.entries:
        hint = f"; it is a folder, write '{operator.files}/*'" if Path(pattern).is_dir() else ""
        raise BadInputError(f"source '{operator.name}': no file matches '{operator.files}'{hint}")
    return index


def indexes_of(pipeline: Pipeline) -> dict[str, FileIndex]:
    """Of every source that names files."""
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
    """A row that is not what the format says."""


Row = bytes | list[str] | MalformedRowError


def is_row(row: Row, kind: FileFormat) -> bool:
    """Blank lines are rows only of plain text."""
    if isinstance(row, bytes):
        return kind is FileFormat.TEXT or bool(row.strip())
    return isinstance(row, MalformedRowError) or bool(row)


class Lines:
    """The lines of a file, and where the next one begins. (A file's own `tell` does not work while it is iterated.)"""

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
    """Records of CSV text; one that cannot be read is an error in its place, and reading goes on behind it.

    A record takes no more lines than it needs, so that where the next one begins is known after every record.
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
    """Lines from where they are: a generator that raised has ended, the file has not."""
    yield from lines
