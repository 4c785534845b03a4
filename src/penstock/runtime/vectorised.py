"""One call of vectorised code: columns to pandas or Arrow as they are, the result back as columns of its schema, and
for every row that came out which of those that went in it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow.logic import Per
from penstock.runtime.batch import UNTRACED
from penstock.runtime.frame_stream import ROW_NUMBER
from penstock.runtime.row_dicts import written_row
from penstock.runtime.schemas import columns_to_schema, frame_to_schema
from penstock.runtime.session_clock import shown_on_clock, zone_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from penstock.runtime.batch import Numbers
    from penstock.runtime.frame_stream import Yielded
    from penstock.runtime.schemas import Misfit


@dataclass(frozen=True, slots=True)
class Made:
    """What one call gave."""

    rows: pa.RecordBatch
    parents: Numbers | None
    """For every row the position of the one it came from, or UNTRACED; None: row for row."""
    misfits: list[tuple[int, dict[str, Any], Misfit]]
    """Rows that do not fit the schema: parent (or UNTRACED), the row, and why."""


def call_vectorised(
    per: Per,
    function: Callable[..., Any],
    rows: pa.RecordBatch,
    arguments: tuple[Any, ...],
    schema: pa.Schema,
    *,
    tracked: bool,
) -> Made:
    """Of code that takes one frame, or one table. `tracked`: somebody asks which rows came from which."""
    given = Given(rows, tracked=tracked)
    if per is Per.ARROW:
        return _call_arrow(function, given, arguments, schema)
    return _call_pandas(function, given, arguments, schema)


@dataclass(frozen=True, slots=True)
class Given:
    """What went into one call."""

    rows: pa.RecordBatch
    tracked: bool
    first_label: int = 0
    is_all: bool = True
    """What comes out came of these rows alone."""


def _call_pandas(function: Callable[..., Any], given: Given, arguments: tuple[Any, ...], schema: pa.Schema) -> Made:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    frame = to_frame(given.rows)
    frame.index = pd.RangeIndex(len(frame), name=ROW_NUMBER)
    return _made_of_frame(function(frame, *arguments), given, schema)


def to_frame(rows: pa.RecordBatch | pa.Table) -> pd.DataFrame:
    """As Spark's own frames are: maps are dicts (of equal keys the last counts), times are in nanoseconds, and what is
    a moment has no zone but is what the session's clock showed, in arrays too: numpy has times without a zone only."""
    for at, field in enumerate(rows.schema):
        if _are_arrays_of_moments(field.type):
            column = rows.column(at)
            shown = shown_on_clock(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
            rows = rows.set_column(at, field.name, shown)
    frame = _in_nanoseconds(rows)
    for field in rows.schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            frame[field.name] = frame[field.name].dt.tz_localize(None)
    return frame


def _are_arrays_of_moments(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return False
    return zone_of(kind.value_type) is not None or _are_arrays_of_moments(kind.value_type)


def _in_nanoseconds(rows: pa.RecordBatch | pa.Table) -> pd.DataFrame:
    try:
        return rows.to_pandas(maps_as_pydicts="lossy", coerce_temporal_nanoseconds=True)
    except pa.ArrowInvalid:  # a year that nanoseconds do not reach
        return rows.to_pandas(maps_as_pydicts="lossy")


def made_of_frames(yielded: Yielded, rows: pa.RecordBatch, schema: pa.Schema, *, tracked: bool) -> Made:
    """What code over frames yielded while it was given `rows`."""
    frames = yielded.frames
    if not frames:
        return Made(pa.RecordBatch.from_pylist([], schema=schema), np.zeros(0, np.int64), [])
    given = Given(rows, tracked, yielded.first_label, len(frames) == 1 and yielded.in_step)
    return _joined([_made_of_frame(part, given, schema) for part in frames])


def _made_of_frame(made: Any, given: Given, schema: pa.Schema) -> Made:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    if not isinstance(made, pd.DataFrame):
        raise TypeError(f"expected a DataFrame, got {type(made).__name__}")
    rows, misfits = frame_to_schema(made, schema)
    if made.index.name == ROW_NUMBER:
        parents = _parents_by_label(made.index, given)
    elif ROW_NUMBER in made.columns:
        parents = _parents_by_label(pd.Index(made[ROW_NUMBER]), given)
    else:
        parents = _parents_by_position(given, rows, misfits)
    return _checked(rows, parents, misfits, len(made), lambda at: made.iloc[at].to_dict())


def _parents_by_label(labels: pd.Index, given: Given) -> Numbers | None:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    first, size = given.first_label, given.rows.num_rows
    if isinstance(labels, pd.RangeIndex) and labels.start == first and labels.step == 1 and len(labels) == size:
        return None
    numbers = labels.to_numpy()
    if numbers.dtype.kind != "i":
        return np.full(len(labels), UNTRACED)
    positions = numbers.astype(np.int64) - first
    return np.where((positions >= 0) & (positions < size), positions, UNTRACED)


def _parents_by_position(given: Given, made: pa.RecordBatch, misfits: Sequence[Misfit]) -> Numbers | None:
    """Where rows carry no label: as many as went in are the same ones if they show it. `made` is without misfits."""
    size = made.num_rows + len(misfits)
    if given.is_all and size == given.rows.num_rows and (not given.tracked or _shown(given.rows, made, misfits)):
        return None
    return np.full(size, UNTRACED)


def _shown(given: pa.RecordBatch, made: pa.RecordBatch, misfits: Sequence[Misfit]) -> bool:
    if misfits:
        given = given.take(pa.array(np.delete(np.arange(given.num_rows), [misfit.row for misfit in misfits])))
    return are_same_rows(given, made)


def are_same_rows(given: pa.RecordBatch, made: pa.RecordBatch) -> bool:
    """Whether rows show that they stand where they stood: by a column that is the very same memory, as Arrow's
    `append_column` leaves it, or by columns that are equal and in which no two rows are. That there are as many proves
    nothing: sorted, or joined with others, they may be other rows."""
    equal: list[str] = []
    for name in given.schema.names:
        at = made.schema.get_field_index(name)
        if at >= 0:
            before, after = given.column(name), made.column(at)
            if _is_same_memory(before, after):
                return True
            if not pa.types.is_nested(after.type) and after.equals(before):
                equal.append(name)
    return not made.num_rows or any(_all_differ(made.column(name)) for name in equal) or _rows_differ(made, equal)


def _all_differ(values: pa.Array) -> bool:
    """Numbers that only rise, as ids and times do, need no counting."""
    if pa.types.is_integer(values.type) and not values.null_count:
        numbers = np.asarray(values)
        if (numbers[1:] > numbers[:-1]).all():
            return True
    return bool(pc.count_distinct(values, mode="all").as_py() == len(values))


def _rows_differ(rows: pa.RecordBatch, names: list[str]) -> bool:
    if len(names) < 2:
        return False
    groups = pa.Table.from_batches([rows.select(names)]).group_by(names, use_threads=False).aggregate([])
    return bool(groups.num_rows == rows.num_rows)


def _is_same_memory(given: pa.Array, made: pa.Array) -> bool:
    if given.offset != made.offset or len(given) != len(made) or not given.type.equals(made.type):
        return False
    places = [buffer and buffer.address for buffer in given.buffers()]
    return any(places) and places == [buffer and buffer.address for buffer in made.buffers()]


def _call_arrow(function: Callable[..., Any], given: Given, arguments: tuple[Any, ...], schema: pa.Schema) -> Made:
    made = function(pa.Table.from_batches([given.rows]), *arguments)
    if not isinstance(made, pa.Table | pa.RecordBatch):
        raise TypeError(f"expected a Table or a RecordBatch, got {type(made).__name__}")
    columns, misfits = columns_to_schema(made, schema)
    parents = _parents_by_position(given, columns, misfits)
    return _checked(columns, parents, misfits, made.num_rows, lambda at: written_row(made, at))


def _checked(
    rows: pa.RecordBatch,
    parents: Numbers | None,
    misfits: list[Misfit],
    size: int,
    row_at: Callable[[int], dict[str, Any]],
) -> Made:
    """Without the rows that do not fit."""
    if not misfits:
        return Made(rows, parents, [])
    known = np.arange(size) if parents is None else parents
    fits = np.ones(size, np.bool_)
    fits[[misfit.row for misfit in misfits]] = False
    return Made(rows, known[fits], [(int(known[misfit.row]), row_at(misfit.row), misfit) for misfit in misfits])


def _joined(parts: list[Made]) -> Made:
    if len(parts) == 1:
        return parts[0]
    parents = [np.arange(part.rows.num_rows) if part.parents is None else part.parents for part in parts]
    misfits = [misfit for part in parts for misfit in part.misfits]
    return Made(pa.concat_batches([part.rows for part in parts]), np.concatenate(parents), misfits)
