"""A sample over and over, as many rows as a trial wants."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.clock import now
from penstock.spark.region_function import DUE_COLUMN, VALUE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.profiling.samples import OperatorSample


# Continue columns of samples when these are repeated, so that later rows differ, as in a run.
#
# Times move on by as much as they span. A column with a different value in every sampled row is taken for a key that
# does not come again: state that Spark keeps by it grows and expires, as in a run. Columns of one name in several
# inputs move alike, so that values that matched in the samples match again.


LEAST_KEYS = 100
"""Of fewer rows nobody can tell whether values come again. With a thousand values to choose from a hundred rows have a
hundred different ones once in 150 samples."""
CLOSE = 4
"""Numbers that differ by no more than this, on average, count something."""
RISING = 0.9
"""So must numbers go with the place of their row, to count something."""
_TAIL = 6
"""Characters at the end of an id that give way to the number of the repetition."""
_KEY = r"^[0-9A-Za-z_.@:/#+-]{1,64}$"
_DIGITS = r"^[0-9]{1,18}$"
_LETTERS = r"[A-Za-z]"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"


class KeyMotion(Protocol):
    def moved(self, values: pa.Array, repetitions: np.ndarray) -> pa.Array:
        """Values of the sample as they are in each row's repetition, 0 for the sample itself."""


@dataclass(frozen=True)
class CountedOn:
    """Whole numbers, or text that is nothing else: `step` more in every repetition, the same again after `room`."""

    step: int
    room: int
    width: int | None = None
    """Of text whose zeros in front belong to it."""

    def moved(self, values: pa.Array, repetitions: np.ndarray) -> pa.Array:
        counted = pc.add(values.cast(pa.int64()), pa.array(repetitions % self.room * self.step))
        if pa.types.is_integer(values.type):
            return counted.cast(values.type)
        text = counted.cast(values.type)
        return text if self.width is None else pc.utf8_lpad(text, self.width, "0")


@dataclass(frozen=True)
class Renamed:
    """Text: the number of the repetition in the place of the last characters, as long as they leave values different
    (ids that are hashes keep their length), or behind it."""

    tail: int

    def moved(self, values: pa.Array, repetitions: np.ndarray) -> pa.Array:
        number = pa.array(repetitions % 10**_TAIL).cast(values.type)
        if self.tail:
            kept = pc.utf8_slice_codeunits(values, 0, -self.tail)
            renamed = pc.binary_join_element_wise(kept, pc.utf8_lpad(number, self.tail, "0"), "")
        else:
            renamed = pc.binary_join_element_wise(values, number, "-")
        return pc.if_else(pa.array(repetitions == 0), values, renamed)


@dataclass(frozen=True)
class Motion:
    """Of the columns of one or several samples that are repeated beside each other, by their names."""

    times: Mapping[str, float] = field(default_factory=dict)
    """Seconds that every repetition is later."""
    keys: Mapping[str, KeyMotion] = field(default_factory=dict)
    rows: int | None = None
    """No more of a sample are repeated, so that inputs that share a key are in the same repetition."""


def motion_of(samples: Sequence[OperatorSample]) -> Motion:
    tables = [_without_number(sample) for sample in samples]
    sharing = [table for table in tables if _shared_keys(table, tables)]
    rows = min((table.num_rows for table in sharing), default=None)
    cut = [table if rows is None else table.slice(0, rows) for table in tables]
    names = dict.fromkeys(name for table in cut for name in table.column_names)
    columns = {name: [table[name] for table in cut if name in table.column_names] for name in names}
    spans = {name: [_span_of(column) for column in same] for name, same in columns.items()}
    times = {name: max(known) for name, some in spans.items() if (known := [span for span in some if span is not None])}
    keys = {name: key for name, same in columns.items() if (key := _key_motion(same)) is not None}
    return Motion(times, keys, rows)


def _without_number(sample: OperatorSample) -> pa.Table:
    """The number of the source tuple is counted on by whoever repeats the sample."""
    return sample.rows.drop_columns([VALUE_COLUMN]) if sample.numbered else sample.rows


def _shared_keys(table: pa.Table, tables: Sequence[pa.Table]) -> bool:
    others = [other for other in tables if other is not table]
    return any(
        _key_motion([table[name], *same]) is not None
        for name in table.column_names
        if (same := [other[name] for other in others if name in other.column_names])
    )


def _key_motion(same: Sequence[pa.ChunkedArray]) -> KeyMotion | None:
    """Of columns of one name: one of them has another value in every row."""
    key = next((column for column in same if _is_key(column)), None)
    if key is None or any(column.type != key.type for column in same):
        return None
    values = pa.chunked_array([chunk for column in same for chunk in column.chunks], key.type).drop_null()
    if pa.types.is_signed_integer(key.type):
        return _counted_on(key, values, 2 ** (key.type.bit_width - 1) - 1)
    if not _all_match(values, _KEY):
        return None  # words, or what something else is made of
    if _all_match(values, _DIGITS):
        lengths = pc.min_max(pc.utf8_length(values)).as_py()
        width = lengths["max"] if lengths["min"] == lengths["max"] else None
        limit = 10 ** (width or 18) - 1
        return _counted_on(key.cast(pa.int64()), values.cast(pa.int64()), limit, width)
    if not _all_match(values, _LETTERS) or pc.any(pc.match_substring_regex(values, _DATE)).as_py():
        return None  # numbers with a point, times: they would be none any more
    before = pc.utf8_slice_codeunits(values, 0, -_TAIL)
    is_long = pc.min(pc.utf8_length(values)).as_py() > _TAIL
    at_end = _all_match(values, rf"[0-9A-Za-z]{{{_TAIL}}}$")
    differ = pc.count_distinct(before).as_py() == pc.count_distinct(values).as_py()
    return Renamed(_TAIL if is_long and at_end and differ else 0)


def _is_key(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if not (pa.types.is_signed_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    rows = len(column)
    return rows >= LEAST_KEYS and not column.null_count and pc.count_distinct(column).as_py() == rows


def _counted_on(key: pa.ChunkedArray, values: pa.ChunkedArray, limit: int, width: int | None = None) -> CountedOn:
    """By as much as they span where numbers count something, or rise from row to row, as times do. Others, ids by
    chance or amounts, stay about as large as they are."""
    ends = pc.min_max(values).as_py()
    span = ends["max"] - ends["min"]
    goes_with_place = abs(float(np.corrcoef(np.arange(len(key)), key.to_numpy().astype(float))[0, 1]))
    counts = span <= CLOSE * len(key) or goes_with_place >= RISING
    step = span + max(1, span // (len(key) - 1)) if counts else 1
    return CountedOn(step, (limit - ends["max"]) // step + 1, width)


def _all_match(values: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def later(values: pa.Array, by: pa.Array) -> pa.Array:
    """Times, or windows of time, later by as much."""
    if not pa.types.is_struct(values.type):
        return pc.add(values, by).cast(values.type)
    ends = [later(values.field(number), by) for number in range(values.type.num_fields)]
    return pa.StructArray.from_arrays(ends, fields=list(values.type), mask=values.is_null())


def _is_window(kind: pa.DataType) -> bool:
    return (
        pa.types.is_struct(kind)
        and [field.name for field in kind] == ["start", "end"]
        and all(pa.types.is_timestamp(field.type) for field in kind)
    )


def _span_of(column: pa.ChunkedArray) -> float | None:
    """Of times, and of Spark's windows of them: from the first start to the last end, so that windows lie as before.
    None: the column tells no time."""
    if pa.types.is_timestamp(column.type):
        return _span_seconds(column)
    if not _is_window(column.type) or not column.num_chunks:
        return None
    windows = column.combine_chunks()
    first, last = pc.min(pc.struct_field(windows, "start")), pc.max(pc.struct_field(windows, "end"))
    return (last.as_py() - first.as_py()).total_seconds() if first.is_valid else None


def _span_seconds(column: pa.ChunkedArray) -> float | None:
    """From the first to what would be the first of the next repetition; a second where all are alike."""
    ends = pc.min_max(column)
    if not ends["min"].is_valid:
        return None
    rows = len(column)
    seconds = (ends["max"].as_py() - ends["min"].as_py()).total_seconds()
    return seconds * rows / (rows - 1) if seconds > 0 and rows > 1 else 1.0


LEAST_ROWS = 65_536
"""A sample is repeated to at least so many rows once, and then cut without a copy."""
MOST_BYTES = 16 * 2**20
"""But to no more than this, where the sample itself is smaller."""


def times_repeated(rows: pa.Table) -> int:
    for_rows, for_bytes = -(-LEAST_ROWS // rows.num_rows), MOST_BYTES // max(1, rows.nbytes)
    return max(1, int(min(for_rows, for_bytes)))


def replayed_bytes(sample: OperatorSample) -> int:
    """What whoever repeats a sample holds for that."""
    return times_repeated(sample.rows) * int(sample.rows.nbytes)


class Replay:
    def __init__(self, sample: OperatorSample) -> None:
        if not sample.rows.num_rows:
            raise ValueError("a sample without rows cannot be repeated")
        self._numbered = sample.numbered
        repeated = pa.concat_tables([sample.rows] * times_repeated(sample.rows)).combine_chunks()
        self._rows = pa.RecordBatch.from_arrays(
            [column.chunk(0) for column in repeated.columns], schema=sample.rows.schema
        )

    def rows(self, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """Rows `first` to before `first + count` of a sample that never ends."""
        size = self._rows.num_rows
        while count > 0:
            start = first % size
            taken = min(count, size - start)
            yield self._counted(self._rows.slice(start, taken), first)
            first, count = first + taken, count - taken

    def _counted(self, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if not self._numbered:
            return rows
        place = rows.schema.get_field_index(VALUE_COLUMN)
        numbers = pa.array(np.arange(first, first + rows.num_rows)).cast(rows.schema.field(place).type)
        return rows.set_column(place, rows.schema.field(place), numbers)


class TimedReplay:
    """A sample over and over, its times, and keys where they are wanted new, moved on with every repetition (`motion`).
    When a tuple was due is the clock's: as in a run, those of a batch were due while the one before lasted."""

    def __init__(
        self,
        sample: OperatorSample,
        clock: Callable[[], float] = now,
        motion: Motion | None = None,
        *,
        new_keys: bool = True,
    ) -> None:
        self._motion = motion_of([sample]) if motion is None else motion
        cut = sample if self._motion.rows is None else replace(sample, rows=sample.rows.slice(0, self._motion.rows))
        self._size = cut.rows.num_rows
        self._names = cut.rows.column_names
        self._numbered = cut.numbered
        self._replay = Replay(cut)
        self._clock = clock
        self._reached = clock()
        self.new_keys = new_keys

    @property
    def moves_on(self) -> bool:
        """Whether rows that come later differ from those that came."""
        moved = {*self._motion.times, *(self._motion.keys if self.new_keys else ()), DUE_COLUMN}
        return self._numbered or not moved.isdisjoint(self._names)

    def table(self, first: int, count: int) -> pa.Table:
        table = pa.Table.from_batches(list(self._replay.rows(first, count)))
        repetitions = np.arange(first, first + count) // self._size
        for name in self._names:
            if (span := self._motion.times.get(name)) is not None:
                by = pa.array((repetitions * span * 1e6).astype("timedelta64[us]"))
                table = _with_column(table, name, later(table[name].combine_chunks(), by))
            elif self.new_keys and (key := self._motion.keys.get(name)) is not None:
                table = _with_column(table, name, key.moved(table[name].combine_chunks(), repetitions))
        until = self._clock()
        if DUE_COLUMN in self._names:
            due = np.linspace(self._reached, until, count + 1)[1:]
            table = _with_column(table, DUE_COLUMN, pa.array(due))
        self._reached = until
        return table


def _with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


# Repeat a sample as files that a stream reads.


class ReplayFiles:
    """Files of `format` below a folder that a stream looks into, each there whole or not at all.

    Spark writes other formats than Parquet, and takes longer for it than the stream for reading them: so files are made
    before the stream begins, and shown to it when their turn comes. Where rows that come later are the same, the same
    files serve again and again, by links.
    """

    def __init__(
        self,
        session: SparkSession,
        sample: OperatorSample,
        folder: Path,
        format: str = "parquet",  # noqa: A002 - Spark's word
        options: Mapping[str, str] | None = None,
        motion: Motion | None = None,
        *,
        new_keys: bool = True,
    ) -> None:
        self._session = session
        self._replay = TimedReplay(sample, motion=motion, new_keys=new_keys)
        self._folder = folder
        self._format = format
        self._options = dict(options or {})
        self._ready: defaultdict[tuple[int, int], deque[Path]] = defaultdict(deque)
        """Folders that are not shown yet, by rows and files."""
        self._made = 0
        self._shown = 0
        self._rows = 0
        folder.mkdir()

    @property
    def pattern(self) -> str:
        """What the stream reads: files that belong together lie in a folder of their own, and are there at once."""
        return str(self._folder / "*")

    def renew_keys(self) -> None:
        """From now on."""
        self._replay.new_keys = True

    def prepare(self, rows: int, files: int, batches: int) -> None:
        """So many batches are made now."""
        ready = self._ready[rows, files]
        while len(ready) < (batches if self._replay.moves_on else 1):
            ready.append(self._make(rows, files))

    def write(self, rows: int, files: int = 1) -> None:
        """The next rows of the sample, in so many files."""
        self.prepare(rows, files, 1)
        ready = self._ready[rows, files]
        next_one = ready.popleft() if self._replay.moves_on else self._linked(ready[0])
        next_one.rename(self._folder / f"{self._shown:06d}")
        self._shown += 1

    def _make(self, rows: int, files: int) -> Path:
        each = max(1, rows // files)
        hidden = self._hidden()
        for number in range(files):
            table = self._replay.table(self._rows, each)
            self._rows += each
            written = self._written(table, hidden.with_name(f"{hidden.name}-{number}"))
            written.rename(hidden / f"{number}{''.join(written.suffixes)}")
        return hidden

    def _linked(self, made: Path) -> Path:
        hidden = self._hidden()
        for file in made.iterdir():
            os.link(file, hidden / file.name)
        return hidden

    def _hidden(self) -> Path:
        """A new folder where the stream does not look."""
        hidden = self._folder.with_name(f"next-{self._folder.name}-{self._made}")
        hidden.mkdir()
        self._made += 1
        return hidden

    def _written(self, table: pa.Table, place: Path) -> Path:
        """A file that holds these rows, not yet where the stream looks."""
        if self._format == "parquet":
            file = place.with_suffix(".parquet")
            pq.write_table(table, file)
            return file
        rows = self._session.createDataFrame(table).coalesce(1)
        rows.write.format(self._format).options(**self._options).mode("overwrite").save(str(place))
        return next(place.glob("part-*"))
