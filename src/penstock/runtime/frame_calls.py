"""One call of vectorised code: columns to pandas or Arrow as they are, the result back as columns of its schema, and
for every row that came out which of those that went in it came from."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow.logic import Per
from penstock.runtime.batch import UNTRACED
from penstock.runtime.dead_letters import AbandonedError, StoppedError, error_line
from penstock.runtime.python_values import shown_on_clock, zone_of
from penstock.runtime.row_values import written_row
from penstock.runtime.schemas import columns_to_schema, frame_to_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from penstock.runtime.batch import Batch, Numbers
    from penstock.runtime.schemas import Misfit


# Rows that were given to code over frames and are not answered yet.
#
# The code may keep frames and yield later, or at the end; its state is hidden. Visible is only whether output came
# before it asked for the next frame, and how many rows.


MAX_HELD_BYTES = 64 * 2**20
"""Of rows that are kept in case the code raises. Beyond, an error stops the run: its task is tried again."""


class HeldBackError(Exception):
    """Code over frames raised, or took too long, while it held back rows of earlier frames: they are lost with it. To
    give the last frame again, in halves, would find nobody: what the code does depends on what it had kept."""

    def __init__(self, cause: BaseException, pieces: list[Batch]) -> None:
        super().__init__(error_line(cause))
        self.cause = cause
        self.pieces = pieces


@dataclass(frozen=True, slots=True)
class Settled:
    """Pieces that code over frames held back until now."""

    lost_sight: list[Batch] = field(default_factory=list)
    """Nobody can tell which rows came of them."""
    passed_over: list[Batch] = field(default_factory=list)
    """Nothing came of them."""
    is_open: bool = False
    """The piece just given is one of those that are settled this way, now or later."""


class HeldBack:
    """Of one stream of frames. Code that yields for every frame is in step, and nothing is kept here."""

    def __init__(self) -> None:
        self.pieces: list[Batch] = []
        """Given, in this order, and nothing has come of them."""
        self._rows_out = 0
        """That came since the first of `pieces` was given, beyond those that were settled."""
        self._nbytes = 0
        self._unclear = False
        """It holds back, and nobody can tell what."""

    def answered(self, piece: Batch, frames: int, rows: int, begins: int | None) -> Settled | None:
        """After the code took `piece` and yielded so many frames and rows before it asked for more; `begins` is the
        label of the first of those rows, from 0 for the first of `piece` (below: of earlier ones), None where labels
        were lost. None: it is in step, and what it yielded came of this piece.

        Code that lags behind, or gathers frames, yields as many rows as the first pieces had; where the numbers do
        not add up it may hold any part of what it was given. Code that keeps rows yields the oldest first: where rows
        of this piece come, it made nothing of those before.
        """
        if frames and not self.pieces:
            self._unclear = self._unclear or (begins is not None and begins < 0)
            return None
        if begins is not None and begins >= 0:
            return Settled(passed_over=self.all())
        self.pieces.append(piece)
        self._nbytes += piece.nbytes
        self._rows_out += rows
        answered_for: list[Batch] = []
        while self.pieces and self._rows_out >= len(self.pieces[0]) > 0:
            answered_for.append(self.pieces.pop(0))
            self._rows_out -= len(answered_for[-1])
            self._nbytes -= answered_for[-1].nbytes
        if self._rows_out or self._unclear or self._nbytes > MAX_HELD_BYTES:
            self._unclear = True
            answered_for += self.all()
        return Settled(answered_for, is_open=True)

    def all(self) -> list[Batch]:
        """Takes what is held: the code has ended, or nobody can tell any longer."""
        pieces, self.pieces, self._rows_out, self._nbytes = self.pieces, [], 0, 0
        return pieces

    def failure(self, operator: str, error: BaseException) -> BaseException:
        """What it means that the code fails with `error` now."""
        if self._unclear:
            return StoppedError(
                f"operator '{operator}': {error_line(error)}, while it held back rows of earlier frames; nobody can "
                "tell which, so they cannot be put aside"
            )
        return HeldBackError(error, self.all()) if self.pieces else error


# Code that takes an iterator of frames, as `mapInPandas` does: called once, and fed until the stream ends.
#
# Such code takes an iterator for its work before the loop (loading a model), so it is not called anew for every piece.
# It asks for frames when it likes, and therefore has a thread of its own.


ROW_NUMBER = "__penstock_row__"
"""The name of the index frames come with. As long as a result's index has it, its labels say where rows came from:
filters, sorting and `explode` keep it."""


@dataclass(frozen=True, slots=True)
class Yielded:
    """What came while one frame was given. Its rows had the labels from `first_label` on."""

    frames: list[Any]
    first_label: int
    in_step: bool
    """As many rows as went in before have come out before: nothing is held back."""
    settled: Settled | None = None
    """None: what came is all that comes of that frame, and of those before it."""


class FrameStream:
    """One call of the code. Another thread gives frames, one at a time; two queues hand them over."""

    def __init__(self, operator: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._operator = operator
        self._held = HeldBack()
        self._given: SimpleQueue[pd.DataFrame | None] = SimpleQueue()
        """Frames; None: there are no more."""
        self._answers: SimpleQueue[bool] = SimpleQueue()
        """Whether the code has ended, else it asks for more; one for each frame, and one for the end."""
        self.over = False
        """The code returned, or raised."""
        self._error: BaseException | None = None
        self._yielded: list[Any] = []
        self._rows_in = self._rows_out = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def give(self, frame: pd.DataFrame, piece: Batch, call: Callable[..., Any]) -> Yielded:
        """Give the code one frame, made of `piece`, and wait until it asks for more: `call` does that, in its time
        limit. Raises what the code raises, or what that means for rows it held back."""
        import pandas as pd  # noqa: PLC0415 - only where code wants it

        first = self._rows_in
        frame.index = pd.RangeIndex(first, first + len(frame), name=ROW_NUMBER)
        in_step = self._rows_in == self._rows_out
        call(self._exchange, frame)
        if self._error is not None:
            raise self.failure(self._error)
        frames, self._yielded = self._yielded, []
        rows = sum(len(made) for made in frames if hasattr(made, "__len__"))
        self._rows_in += len(piece)
        self._rows_out += rows
        settled = self._held.answered(piece, len(frames), rows, _first_label(frames, first))
        if settled is not None and self.over:
            settled.lost_sight.extend(self._held.all())
        return Yielded(frames, first, in_step, settled)

    def _exchange(self, frame: pd.DataFrame) -> None:
        self._given.put(frame)
        self.over = self._answers.get()

    def failure(self, error: BaseException) -> BaseException:
        """What it means that the code fails with `error` now."""
        return self._held.failure(self._operator, error)

    def end(self, within_seconds: float | None) -> tuple[list[Any], list[Batch]]:
        """No more frames: what the code still yields, and the pieces of which nothing had come before."""
        self.drop()
        try:
            self.over = self._answers.get(timeout=within_seconds)
        except Empty:
            raise TimeoutError(f"took longer than {within_seconds:g} s to end") from None
        if self._error is not None:
            raise self._error
        return self._yielded, self._held.all()

    def drop(self) -> None:
        """Let the code end, whatever it still yields."""
        self._given.put(None)

    def _run(self) -> None:
        try:
            for made in self._function(self._frames(), *self._arguments):
                self._yielded.append(made)
        except AbandonedError:
            pass  # its further output is not needed
        except BaseException as error:  # raised by the thread that gives frames
            self._error = error
        finally:
            self._answers.put(True)

    def _frames(self) -> Iterator[pd.DataFrame]:
        while (frame := self._given.get()) is not None:
            yield frame
            self._answers.put(False)


def _first_label(frames: list[Any], first: int) -> int | None:
    """Of what was yielded, counted from the label `first`; None where there is none. Looks at one row, not at all."""
    for made in frames:
        if getattr(getattr(made, "index", None), "name", None) == ROW_NUMBER and len(made):
            label = made.index[0]
            return int(label) - first if isinstance(label, int | np.integer) else None
    return None


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
    for at, column_type in enumerate(rows.schema):
        if _are_arrays_of_moments(column_type.type):
            column = rows.column(at)
            shown = shown_on_clock(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
            rows = rows.set_column(at, column_type.name, shown)
    frame = _in_nanoseconds(rows)
    for column_type in rows.schema:
        if pa.types.is_timestamp(column_type.type) and column_type.type.tz is not None:
            frame[column_type.name] = frame[column_type.name].dt.tz_localize(None)
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
