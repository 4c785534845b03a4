"""Calling code on a piece of a stream, per row or per batch.

A call is a value that keeps its position: when its thread hangs, another continues from there. Every row is accounted
for: it made rows, or none (filtered), or it is a dead letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.dataflow.logic import OnError, Per
from penstock.runtime.batch import UNTRACED, Batch, Marks
from penstock.runtime.dead_letters import INTERRUPTIONS, DeadLetter, StoppedError, error_line
from penstock.runtime.frame_calls import HeldBackError, Yielded, call_vectorised, made_of_frames, to_frame
from penstock.runtime.row_values import hash_contents, readable_rows, written_row, written_rows
from penstock.runtime.schemas import MissingColumnError, is_seen, nameless, rows_to_columns, unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Numbers
    from penstock.runtime.call_journal import CallJournal
    from penstock.runtime.frame_calls import Made, Settled
    from penstock.runtime.schemas import Misfit
    from penstock.runtime.steps import Step


# The input of a call, a piece of a stream as columns or as dicts, and its outcome.


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as dicts, at the edge of code per row; columns are made of them when they leave it."""

    dicts: list[dict[str, Any]]
    marks: Marks
    schema: pa.Schema

    def __len__(self) -> int:
        return len(self.dicts)

    def along(self, stream: int) -> Rows:
        return replace(self, marks=self.marks.along(stream))

    def take(self, which: NDArray[np.bool_]) -> Rows:
        return replace(
            self,
            dicts=[row for row, taken in zip(self.dicts, which, strict=True) if taken],
            marks=self.marks.take(which),
        )

    def copy(self) -> Rows:
        """With dicts that code may change, inside of structs, arrays and maps too, without changing them for others."""
        nested = [field.name for field in self.schema if pa.types.is_nested(field.type)]
        dicts = [dict(row) for row in self.dicts]
        for row in dicts if nested else ():
            row.update((name, _copied(row[name])) for name in nested if name in row)
        return replace(self, dicts=dicts)


def _copied(value: Any) -> Any:
    """Copy a value; immutable ones are shared."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value.copy() if isinstance(value, np.ndarray | set | bytearray) else value


Piece = Batch | Rows
NO_ROWS = Rows([], Marks(), pa.schema([]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one piece at one step."""

    made: Piece
    dead_letters: list[DeadLetter]
    calls: int
    filtered: Numbers | int = 0
    """Ids of rows that made none; only their number if ids are not tracked."""
    untraced: Numbers | int = 0
    """Ids, or the number, of rows whose results cannot be traced."""


def columns(piece: Piece) -> Batch:
    """Return the batch; raise if it is still rows as dicts, which only code per row takes."""
    if isinstance(piece, Rows):
        raise TypeError("rows as dicts outside of code per row")
    return piece


def stopped(dead_letter: DeadLetter) -> StoppedError:
    which = "" if dead_letter.id is None else f", tuple {dead_letter.id}"
    return StoppedError(f"operator '{dead_letter.operator}'{which}: {dead_letter.error}")


def dead_letter_of(
    operator: str, marks: Marks, at: int | None, row: dict[str, Any], line: str, field: str | None = None
) -> DeadLetter:
    number = None if marks.ids is None or at is None else int(marks.ids[at])
    return DeadLetter(operator, number, row, line, field)


def ids_or_count(marks: Marks, which: NDArray[np.bool_]) -> Numbers | int:
    return int(which.sum()) if marks.ids is None else marks.ids[which]


def and_all_of(which: Numbers | int, pieces: Sequence[Batch]) -> Numbers | int:
    """Those `which`, by id or only counted, and all rows of `pieces`."""
    if not pieces:
        return which
    tracked = [piece.ids for piece in pieces if piece.ids is not None]
    if len(tracked) < len(pieces):
        return (which if isinstance(which, int) else len(which)) + sum(map(len, pieces))
    return np.concatenate([np.zeros(0, np.int64) if isinstance(which, int) else which, *tracked])


# Calling vectorised code on a piece of a stream, as pandas, Arrow, or an iterator of frames.


ALIKE = 8
"""Number of rows that fail alone and alike before all are expected to fail."""


class ColumnCall:
    """Vectorised code. If it raises, or takes too long, halves are tried until the row that offends stands alone."""

    def __init__(
        self, operator: str, logic: Logic, batch: Batch, schema: pa.Schema, journal: CallJournal | None = None
    ) -> None:
        self.operator = operator
        self.logic = logic
        self.size = len(batch)
        self._batch = batch
        self._schema = schema
        self._journal = journal
        self._todo = [(0, self.size)] if journal is None else [(at, at + 1) for at in reversed(range(self.size))]
        """Rows from, to before; the last is next."""
        self._made: list[pa.RecordBatch] = []
        self._parents: list[Numbers] = []
        """One array for each part in `_made`."""
        self._dead_letters: list[DeadLetter] = []
        self._untraced: list[tuple[int, int]] = []
        self._open: list[tuple[int, int]] = []
        """Code over frames answers for them in its own time, as settled pieces or at the end of the stream."""
        self._lost_sight: list[Batch] = []
        self._passed_over: list[Batch] = []
        """Pieces, of earlier calls too, of which nobody can tell what came, or nothing came."""
        self._dead: list[int] = []
        self._alike = 0
        self._last_failure: type[BaseException] | None = None
        """The type of the last `_alike` errors of single rows."""
        self._calls = 0

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        while self._todo:
            start, stop = self._todo[-1]
            if self._journal is not None:
                holds = partial(written_row, self._batch.rows, start)
                died_of_it = self._journal.note_call(self.operator, self._batch.marks, start, holds)
                if died_of_it is not None:
                    self._put_aside_row(start, died_of_it)
                    self._todo.pop()
                    continue
            self._calls += 1
            try:
                made = self._call(function, arguments, start, stop)
            except MissingColumnError as error:
                # no half of it would have that column
                self._todo.pop()
                self._put_aside_range(start, stop, error_line(error), error.field)
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                self.put_aside(error)
            else:
                self._todo.pop()
                self._alike = 0
                self._take(start, stop, made.rows, made.parents)
                for parent, row, misfit in made.misfits:
                    self._put_aside_row(start + parent if parent >= 0 else None, misfit.error, misfit.field, row)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], start: int, stop: int) -> Made:
        """Of code over frames `function` is what gives it a frame (`FrameStream.give`)."""
        piece = self._batch if stop - start == len(self._batch) else self._batch.slice(start, stop)
        if self.logic.per is not Per.MAP_IN_PANDAS:
            return call_vectorised(
                self.logic.per, function, piece.rows, arguments, self._schema, tracked=piece.marks.are_kept
            )
        yielded: Yielded = function(to_frame(piece.rows), piece)
        if yielded.settled is not None:
            self._settle(yielded.settled, start, stop)
        return made_of_frames(yielded, piece.rows, self._schema, tracked=piece.marks.are_kept)

    def _settle(self, settled: Settled, start: int, stop: int) -> None:
        self._lost_sight += settled.lost_sight
        self._passed_over += settled.passed_over
        if settled.is_open:
            self._open.append((start, stop))

    def put_aside(self, error: BaseException) -> None:
        """The rows that are just being called: one becomes a dead letter, of several halves are tried. If code over
        frames held others back, all of them are dead letters."""
        if isinstance(error, StoppedError):
            raise error
        start, stop = self._todo.pop()
        if isinstance(error, HeldBackError):
            line = error_line(error.cause)
            for piece in [*error.pieces, self._batch.slice(start, stop)]:
                self._put_aside_piece(piece, line)
            self._open.append((start, stop))
        elif stop - start == 1:
            self._put_aside_row(start, error_line(error))
            self._give_up_if_all_alike(error)
        else:
            middle = (start + stop) // 2
            self._todo += [(middle, stop), (start, middle)]

    def _give_up_if_all_alike(self, error: BaseException) -> None:
        """Code that always raises would be called about twice for every row. When several rows in succession failed
        alone and alike, as many are tried that lie all over the rest; if they fail too, so would the others."""
        self._alike = self._alike + 1 if type(error) is self._last_failure else 1
        self._last_failure = type(error)
        if self._journal is not None:
            return  # which row kills the worker is known by the order of calls
        if self._alike == ALIKE:
            self._todo = spread_over(self._todo, ALIKE)
        elif self._alike == 2 * ALIKE:
            line = f"{error_line(error)} (not tried: {self._alike} rows before it failed alike)"
            while self._todo:
                self._put_aside_range(*self._todo.pop(), line)

    def held_back(self, frames: list[Any], pieces: list[Batch]) -> Outcome:
        """What code over frames yields when there are no more: nobody can tell which rows it came from. Of `pieces`
        nothing had come before."""
        made = made_of_frames(
            Yielded(frames, 0, in_step=False), self._batch.rows.slice(0, 0), self._schema, tracked=True
        )
        self._dead_letters = []
        for _, row, misfit in made.misfits:
            self._put_aside_row(None, misfit.error, misfit.field, row)
        marks = self._batch.marks.of_children(np.full(made.rows.num_rows, UNTRACED))
        ends = and_all_of(0, pieces)
        return Outcome(Batch(made.rows, marks), self._dead_letters, 0, 0 if frames else ends, ends if frames else 0)

    def outcome(self) -> Outcome:
        marks, rows = self._batch.marks, len(self._batch)
        if len(self._made) == 1 and not self._parents:
            batch = Batch(self._made[0], marks)
            return Outcome(batch, [], self._calls, and_all_of(0, self._passed_over), and_all_of(0, self._lost_sight))
        parents = np.concatenate([np.zeros(0, np.int64), *self._parents])
        unaccounted = np.ones(rows, np.bool_)
        unaccounted[parents[parents >= 0]] = False
        unaccounted[self._dead] = False
        lost_sight = np.zeros(rows, np.bool_)
        for start, stop in self._untraced:
            lost_sight[start:stop] = True
        for start, stop in self._open:
            unaccounted[start:stop] = lost_sight[start:stop] = False
        return Outcome(
            Batch(_concatenated(self._made, self._schema), marks.of_children(parents)),
            self._dead_letters,
            self._calls,
            and_all_of(ids_or_count(marks, unaccounted & ~lost_sight), self._passed_over),
            and_all_of(ids_or_count(marks, lost_sight), self._lost_sight),
        )

    def _take(self, start: int, stop: int, made: pa.RecordBatch, parents: Numbers | None) -> None:
        """`parents` None: row for row."""
        self._made.append(made)
        if parents is None:
            if stop - start < self.size or self._open:
                self._parents.append(np.arange(start, stop))
            return
        untraced = parents == UNTRACED
        self._parents.append(np.where(untraced, UNTRACED, parents + start))
        if untraced.any():
            self._untraced.append((start, stop))

    def _put_aside_row(
        self, at: int | None, line: str, field: str | None = None, row: dict[str, Any] | None = None
    ) -> None:
        if at is not None:
            self._dead.append(at)
        if row is None and at is not None:
            row = written_row(self._batch.rows, at)
        self._add_dead_letter(dead_letter_of(self.operator, self._batch.marks, at, row or {}, line, field))

    def _put_aside_range(self, start: int, stop: int, line: str, field: str | None = None) -> None:
        self._dead += range(start, stop)
        self._put_aside_piece(self._batch.slice(start, stop), line, field)

    def _put_aside_piece(self, piece: Batch, line: str, field: str | None = None) -> None:
        for at, row in enumerate(written_rows(piece.rows)):
            self._add_dead_letter(dead_letter_of(self.operator, piece.marks, at, row, line, field))

    def _add_dead_letter(self, dead_letter: DeadLetter) -> None:
        if self.logic.on_error is OnError.STOP:
            raise stopped(dead_letter)
        self._dead_letters.append(dead_letter)


def _concatenated(made: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches(made) if made else pa.RecordBatch.from_pylist([], schema=schema)


def spread_over(ranges: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """The same rows, with `count` single ones from all over them last: those are next. Ranges run from, to before."""
    rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(start, stop) for start, stop in ranges)])
    if len(rows) <= count:
        return ranges
    picked = np.unique(rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]).tolist()
    left: list[tuple[int, int]] = []
    for start, stop in ranges:
        edges = [start - 1, *(row for row in picked if start <= row < stop), stop]
        left += [(low + 1, high) for low, high in pairwise(edges) if low + 1 < high]
    return [*left, *((row, row + 1) for row in picked)]


def begin_call(step: Step, logic: Logic, piece: Piece, journal: CallJournal | None) -> RowCall | ColumnCall:
    schema = step.schema or (piece.schema if isinstance(piece, Rows) else piece.rows.schema)
    if logic.per is Per.ROW:
        rows, unreadable = (piece, []) if isinstance(piece, Rows) else to_rows(step.operator, logic, piece)
        return RowCall(step.operator, logic, rows, schema, journal, unreadable)
    return ColumnCall(step.operator, logic, columns(piece), schema, journal)


def to_rows(operator: str, logic: Logic, batch: Batch) -> tuple[Rows, list[DeadLetter]]:
    """Columns as rows; those of which Python can make none become dead letters of `operator`, which is to get them."""
    dicts, misfits = readable_rows(batch.rows)
    if not misfits:
        return Rows(dicts, batch.marks, batch.rows.schema), []
    readable = np.ones(len(batch), np.bool_)
    readable[[misfit.row for misfit in misfits]] = False
    dead_letters = [
        _dead_misfit(operator, logic, batch.marks, written_row(batch.rows, misfit.row), misfit) for misfit in misfits
    ]
    return Rows(dicts, batch.marks.take(readable), batch.rows.schema), dead_letters


class RowCall:
    """Code per row: a dict in; a dict, None, several, or a generator out. `unreadable` are dead letters of rows of
    the same piece of which no dict could be made."""

    def __init__(
        self,
        operator: str,
        logic: Logic,
        rows: Rows,
        schema: pa.Schema,
        journal: CallJournal | None = None,
        unreadable: Sequence[DeadLetter] = (),
    ) -> None:
        self.operator = operator
        self.logic = logic
        self.size = len(rows) + len(unreadable)
        self._rows = rows
        self._schema = schema
        self._journal = journal
        self._at = 0
        self._made: list[dict[str, Any]] = []
        self._parents: list[int] | None = None
        """None as long as the k-th row made came from the k-th row."""
        self._dead_letters: list[DeadLetter] = [*unreadable]
        self._dead: list[int] = []

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Call `function`, which is the code, perhaps with a time limit, on the rows that are left."""
        if self._journal is None and not arguments:
            self._run_while_regular(function)
        dicts, journal = self._rows.dicts, self._journal
        for at in range(self._at, len(dicts)):
            self._at = at
            if journal is not None and not self._may_be_called(journal):
                continue
            try:
                row = dicts[at]
                result = function(row, *arguments)
                self._take(row if result is row else one_or_several(result))
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                self._put_aside_row(error_line(error), error)
        self._at = len(dicts)

    def _run_while_regular(self, function: Callable[[dict[str, Any]], Any]) -> None:
        """The same for code that makes one row of each, for as long as it does, with nothing to keep per row: there
        are as many made as there were calls."""
        keep = self._made.append
        for row in self._rows.dicts if self._at == 0 else ():
            try:
                result = function(row)
                if type(result) is dict:
                    keep(row if result is row else result.copy())
                    continue
                result = one_or_several(result)
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                self.put_aside(error)
                return
            self._at = len(self._made)
            self._take(result)
            self._at += 1
            return
        self._at = max(self._at, len(self._made))

    def _take(self, result: dict[str, Any] | list[dict[str, Any]] | None) -> None:
        if isinstance(result, dict):
            self._made.append(result)
            if self._parents is not None:
                self._parents.append(self._at)
        elif result is None:
            self._parents_so_far()
        else:
            self._parents_so_far().extend([self._at] * len(result))
            self._made.extend(result)

    def take_results(self, results: list[Any]) -> None:
        """Take what others made of the rows, one result for each, as `one_or_several` has it, or `Raised`."""
        if {*map(type, results)} == {dict}:
            self._made = results
            return
        for self._at, result in enumerate(results):
            if isinstance(result, Raised):
                self._put_aside_row(error_line(result.error), result.error)
            else:
                self._take(result)

    def put_aside(self, error: BaseException) -> None:
        """The row that is just being called becomes a dead letter: its call raised, or took too long."""
        if self._parents is None:
            self._at = len(self._made)
        self._put_aside_row(error_line(error), error)
        self._at += 1

    def outcome(self) -> Outcome:
        marks = self._rows.marks
        rows = len(self._rows)
        filtered: Numbers | int = 0
        if self._parents is not None:
            parents = np.array(self._parents, np.int64)
            untouched = np.ones(rows, np.bool_)
            untouched[parents] = False
            untouched[self._dead] = False
            filtered = ids_or_count(marks, untouched)
            marks = marks.of_children(parents)
        return Outcome(Rows(self._made, marks, self._schema), self._dead_letters, rows, filtered)

    def _parents_so_far(self) -> list[int]:
        """From the first row on of which not exactly one was made."""
        if self._parents is None:
            self._parents = list(range(len(self._made)))
        return self._parents

    def _may_be_called(self, journal: CallJournal) -> bool:
        died_of_it = journal.note_call(self.operator, self._rows.marks, self._at, lambda: self._rows.dicts[self._at])
        if died_of_it is not None:
            self._put_aside_row(died_of_it, None)
        return died_of_it is None

    def _put_aside_row(self, line: str, error: BaseException | None) -> None:
        self._parents_so_far()
        self._dead.append(self._at)
        dead_letter = dead_letter_of(self.operator, self._rows.marks, self._at, self._rows.dicts[self._at], line)
        if self.logic.on_error is OnError.STOP:
            raise stopped(dead_letter) from error
        self._dead_letters.append(dead_letter)


# Rows that the threads of a pool share.
#
# A piece costs a good part of a millisecond of CPU, however few rows it holds: dicts are made of it, columns of the
# results, it is counted and handed over. Code that waits 20 ms a row would have a row or two in each piece, and
# 64 threads would do nothing else. So the threads of an operator with code per row share a piece: one makes dicts of
# it, each begins the next row, and the last to end makes columns of all results. When rows are slow, the finished ones
# are sent before (`SegmentMachine`).


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that the code raised, in the place of a result."""

    error: BaseException


class SharedRows:
    """One piece in front of a pool. `to_begin` and `finished` need no lock: a deque gives each item to one thread.
    `threads` and `since` belong to the state machine."""

    def __init__(self, position: int, step: Step, logic: Logic, piece: Batch) -> None:
        self.position = position
        self.step = step
        self.logic = logic
        self.to_begin = deque(range(len(piece)))
        self.finished: deque[tuple[int, Any]] = deque()
        """Rows that were not sent yet: which, and what the code made of it, as `RowCall.take_results` takes it."""
        self.threads = 1
        """Threads with a part in it."""
        self.since: float | None = None
        """Since when no row is left to begin, or when something was sent after that."""
        self.unreadable: list[DeadLetter] = []
        """Dead letters of rows that have no dict."""
        self._piece = piece
        self._rows: Rows | None = None
        self._is_opened = Lock()

    def open(self) -> Rows:
        """Return the rows as dicts, which the first thread makes while the others wait; before a row is begun."""
        with self._is_opened:
            if self._rows is None:
                self._rows, self.unreadable = to_rows(self.step.operator, self.logic, self._piece)
            return self._rows

    def cut(self) -> None:
        """Begin no more rows, and send nothing."""
        self.to_begin.clear()
        self.finished.clear()


class SharedRowsCall:
    """The part of one thread in shared rows; for those who process it a call like others."""

    def __init__(self, shared: SharedRows) -> None:
        self.shared = shared
        self.operator = shared.step.operator
        self.logic = shared.logic
        self.size = 0
        """Rows it has taken so far."""
        self._at = 0

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Call the code on row after row until none is left to begin."""
        dicts, begin, finish = self.shared.open().dicts, self.shared.to_begin.popleft, self.shared.finished.append
        while True:
            try:
                self._at = begin()
            except IndexError:
                return
            if self._at >= len(dicts):  # the piece had rows that have no dict
                continue
            row = dicts[self._at]
            try:
                result = function(row, *arguments)
                finish((self._at, row if result is row else one_or_several(result)))
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                finish((self._at, Raised(error)))
            self.size += 1

    def put_aside(self, error: BaseException) -> None:
        """The call of the row took too long."""
        self.shared.finished.append((self._at, Raised(error)))
        self.size += 1

    def outcome(self, *, settles: bool = False, is_last: bool = False) -> Outcome:
        """Return the outcome of this part; if it `settles`, with the rows that other threads finished."""
        calls, finished = self.size, dict[int, Any]()
        unreadable = self.shared.unreadable if is_last else []
        self.size += len(unreadable)
        while settles and self.shared.finished:
            try:
                at, result = self.shared.finished.popleft()
            except IndexError:  # another thread settles too
                break
            finished[at] = result
        if not finished:
            return Outcome(NO_ROWS, unreadable, calls)
        rows = self.shared.open()
        order = sorted(finished)
        if len(order) < len(rows):
            which = np.zeros(len(rows), np.bool_)
            which[order] = True
            rows = rows.take(which)
        call = RowCall(self.operator, self.logic, rows, self.shared.step.schema or rows.schema)
        call.take_results([finished[at] for at in order])
        settled = call.outcome()
        return replace(settled, dead_letters=[*unreadable, *settled.dead_letters], calls=calls)


def to_named_rows(operator: str, logic: Logic, rows: Rows) -> tuple[Rows, list[DeadLetter]]:
    """Rows that stay dicts, with the fields of their schema, as they would have if they became columns on the way: what
    the next operator gets must not depend on whether a thread of its own runs it. Values are not looked at."""
    names = rows.schema.names
    if not names or _have_exactly(rows.dicts, names):
        return rows, []
    keys = set(names)
    strays = [unseen(at, row, keys) for at, row in enumerate(rows.dicts)] if is_seen(rows.schema) else []
    misfits = [misfit for misfit in strays if misfit is not None]
    lost = {misfit.row for misfit in misfits}
    nowhere = (at for at, row in enumerate(rows.dicts) if row.keys().isdisjoint(keys) and at not in lost)
    misfits += [nameless(at, names) for at in nowhere]
    dead_letters = [_dead_misfit(operator, logic, rows.marks, rows.dicts[misfit.row], misfit) for misfit in misfits]
    left = rows.take(~np.isin(np.arange(len(rows)), [misfit.row for misfit in misfits])) if misfits else rows
    dicts = [row if row.keys() == keys else {name: row.get(name) for name in names} for row in left.dicts]
    return replace(left, dicts=dicts), dead_letters


def _have_exactly(rows: list[dict[str, Any]], names: list[str]) -> bool:
    """No other field in any row, and as many in all as that makes: this way Python goes through rows in C."""
    return set(names).issuperset(set().union(*rows)) and sum(map(len, rows)) == len(names) * len(rows)


def _dead_misfit(operator: str, logic: Logic | None, marks: Marks, row: dict[str, Any], misfit: Misfit) -> DeadLetter:
    dead_letter = dead_letter_of(operator, marks, misfit.row, row, misfit.error, misfit.field)
    if logic is not None and logic.on_error is OnError.STOP:
        raise stopped(dead_letter)
    return dead_letter


def to_columns(operator: str, logic: Logic | None, rows: Rows) -> tuple[Batch, list[DeadLetter]]:
    """Rows as columns of their schema; those that do not fit become dead letters of `operator`, which made them."""
    made, misfits = rows_to_columns(rows.dicts, rows.schema)
    if not misfits:
        return Batch(made, rows.marks), []
    fits = np.ones(len(rows), np.bool_)
    fits[[misfit.row for misfit in misfits]] = False
    dead_letters = [_dead_misfit(operator, logic, rows.marks, rows.dicts[misfit.row], misfit) for misfit in misfits]
    return Batch(made, rows.marks.take(fits)), dead_letters


def one_or_several(made: Any) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Return what code per row returned, or yields, as dicts of our own: the code may keep those it gave, and give them
    again with other values. If it yields, it may still run, and raise, here."""
    if made is None:
        return None
    if type(made) is dict:
        return made.copy()
    if _is_row(made):
        return _plain(made)
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise TypeError(f"expected a dict, None or several dicts, got {type(made).__name__}")
    return [_plain(row) for row in made]


def _is_row(made: object) -> bool:
    return isinstance(made, Mapping) or hasattr(made, "asDict")


def _plain(row: Any) -> dict[str, Any]:
    """Return a new dict of a dict, another kind of mapping, or Spark's Row."""
    if type(row) is dict:
        return row.copy()
    if not _is_row(row):
        raise TypeError(f"expected dicts, got one {type(row).__name__} among them")
    return dict(row) if isinstance(row, Mapping) else row.asDict(recursive=True)


def hash_piece(piece: Piece) -> NDArray[np.uint64]:
    """Return a number for every row, the same for dicts as for columns; 0 for rows that fit no column."""
    if not isinstance(piece, Rows):
        return hash_contents(piece.rows)
    rows, misfits = rows_to_columns(piece.dicts, piece.schema)
    fits = np.ones(len(piece), np.bool_)
    fits[[misfit.row for misfit in misfits]] = False
    hashes = np.zeros(len(piece), np.uint64)
    hashes[fits] = hash_contents(rows)
    return hashes
