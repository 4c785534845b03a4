"""How columns of samples go on where these are repeated, so that what comes later is something else, as in a run.

Times move on by as much as they span. A column of which every sampled row has another value is taken for a key that
does not come again: state that Spark keeps by it grows, and is let go, as it does in a run. Columns of one name in
several inputs move alike, so that what met in the samples meets again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.fused.region_function import VALUE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.trials.samples import OperatorSample

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
