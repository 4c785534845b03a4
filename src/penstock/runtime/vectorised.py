"""One call of vectorised code: columns to pandas or Arrow as they are, the result back as columns of its schema, and
for every row that came out which of those that went in it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.dataflow.logic import Per
from penstock.runtime.batch import UNTRACED
from penstock.runtime.frame_stream import ROW_NUMBER
from penstock.runtime.schemas import columns_to_schema, frame_to_schema

if TYPE_CHECKING:
    from collections.abc import Callable

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
    per: Per, function: Callable[..., Any], rows: pa.RecordBatch, arguments: tuple[Any, ...], schema: pa.Schema
) -> Made:
    """Of code that takes one frame, or one table."""
    if per is Per.ARROW:
        return _call_arrow(function, rows, arguments, schema)
    return _call_pandas(function, rows.to_pandas(), arguments, schema)


def _call_pandas(
    function: Callable[..., Any], frame: pd.DataFrame, arguments: tuple[Any, ...], schema: pa.Schema
) -> Made:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    size = len(frame)
    frame.index = pd.RangeIndex(size, name=ROW_NUMBER)
    return _made_of_frame(function(frame, *arguments), 0, size, schema, only=True)


def made_of_frames(yielded: Yielded, size: int, schema: pa.Schema) -> Made:
    """What code over frames yielded while it was given `size` rows."""
    frames, first = yielded.frames, yielded.first_label
    if not frames:
        return Made(pa.RecordBatch.from_pylist([], schema=schema), np.zeros(0, np.int64), [])
    only = len(frames) == 1 and yielded.in_step
    return _joined([_made_of_frame(part, first, size, schema, only=only) for part in frames])


def _made_of_frame(made: Any, first: int, size: int, schema: pa.Schema, *, only: bool) -> Made:
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    if not isinstance(made, pd.DataFrame):
        raise TypeError(f"expected a DataFrame, got {type(made).__name__}")
    parents = _parents_of_frame(made, first, size, only=only)
    rows, misfits = frame_to_schema(made, schema)
    return _checked(rows, parents, misfits, len(made), lambda at: made.iloc[at].to_dict())


def _parents_of_frame(made: pd.DataFrame, first: int, size: int, *, only: bool) -> Numbers | None:
    """The rows that went in had the labels from `first` on. `only`: nothing else came of them; then as many rows
    without their index are taken for the same ones."""
    import pandas as pd  # noqa: PLC0415 - only where code wants it

    index = made.index
    if index.name == ROW_NUMBER:
        if isinstance(index, pd.RangeIndex) and index.start == first and index.step == 1 and len(index) == size:
            return None
        labels = index.to_numpy()
    elif ROW_NUMBER in made.columns:
        labels = made[ROW_NUMBER].to_numpy()
    else:
        return None if only and len(made) == size else np.full(len(made), UNTRACED)
    if labels.dtype.kind != "i":
        return np.full(len(made), UNTRACED)
    positions = labels.astype(np.int64) - first
    return np.where((positions >= 0) & (positions < size), positions, UNTRACED)


def _call_arrow(
    function: Callable[..., Any], rows: pa.RecordBatch, arguments: tuple[Any, ...], schema: pa.Schema
) -> Made:
    made = function(pa.Table.from_batches([rows]), *arguments)
    if not isinstance(made, pa.Table | pa.RecordBatch):
        raise TypeError(f"expected a Table or a RecordBatch, got {type(made).__name__}")
    parents = None if made.num_rows == rows.num_rows else np.full(made.num_rows, UNTRACED)
    columns, misfits = columns_to_schema(made, schema)
    return _checked(columns, parents, misfits, made.num_rows, lambda at: made.slice(at, 1).to_pylist()[0])


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
