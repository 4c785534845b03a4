"""Calling code on a piece of a stream: per row, or per batch as pandas or Arrow.

A call is a value that knows how far it came: when its thread hangs, another goes on from there. Whatever happens to a
row, it is accounted for: rows came of it, or none did (filtered), or it is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.dataflow.logic import OnError, Per
from penstock.runtime.batch import UNTRACED, Batch, Marks
from penstock.runtime.dead_letters import FAILURES, DeadLetter, StoppedError, error_line
from penstock.runtime.frame_stream import Yielded
from penstock.runtime.row_dicts import row_dicts
from penstock.runtime.schemas import MissingColumnError, rows_to_columns
from penstock.runtime.vectorised import call_vectorised, made_of_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Numbers
    from penstock.runtime.breadcrumbs import Breadcrumbs
    from penstock.runtime.steps import Step


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

    def own(self) -> Rows:
        """With dicts that code may change without changing them for others; what is inside a field is shared."""
        return replace(self, dicts=[dict(row) for row in self.dicts])


Piece = Batch | Rows


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one piece at one step."""

    made: Piece
    letters: list[DeadLetter]
    calls: int
    filtered: Numbers | int = 0
    """Ids of what went in and nothing came of; only their number where ids are not tracked."""
    untraced: Numbers | int = 0
    """Of what went in where nobody can tell what came of it."""


def columns(piece: Piece) -> Batch:
    """Where only columns can come: whoever made rows for others than code per row made columns of them."""
    if isinstance(piece, Rows):
        raise TypeError("rows as dicts outside of code per row")
    return piece


def begin_call(step: Step, logic: Logic, piece: Piece, crumbs: Breadcrumbs | None) -> RowCall | ColumnCall:
    schema = step.schema or (piece.schema if isinstance(piece, Rows) else piece.rows.schema)
    if logic.per is Per.ROW:
        rows = piece if isinstance(piece, Rows) else Rows(row_dicts(piece.rows), piece.marks, piece.rows.schema)
        return RowCall(step.operator, logic, rows, schema, crumbs)
    return ColumnCall(step.operator, logic, columns(piece), schema, crumbs)


class RowCall:
    """Code per row: a dict in; a dict, None, several, or a generator out."""

    def __init__(
        self, operator: str, logic: Logic, rows: Rows, schema: pa.Schema, crumbs: Breadcrumbs | None = None
    ) -> None:
        self.operator = operator
        self.logic = logic
        self.size = len(rows)
        self._rows = rows
        self._schema = schema
        self._crumbs = crumbs
        self._at = 0
        self._made: list[dict[str, Any]] = []
        self._parents: list[int] | None = None
        """None as long as the k-th row made came from the k-th row."""
        self._letters: list[DeadLetter] = []
        self._dead: list[int] = []

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Goes on where it stands. `function` is the code, perhaps with a time limit around it."""
        if self._crumbs is None and not arguments:
            self._run_while_regular(function)
        dicts, crumbs = self._rows.dicts, self._crumbs
        for at in range(self._at, len(dicts)):
            self._at = at
            if crumbs is not None and not self._may_be_called(crumbs):
                continue
            try:
                result = function(dicts[at], *arguments)
                self._take(result if type(result) is dict else one_or_several(result))
            except FAILURES as error:
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
                    keep(result)
                    continue
                result = one_or_several(result)
            except FAILURES as error:
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
            filtered = _ids_or_count(marks, untouched)
            marks = marks.of_children(parents)
        return Outcome(Rows(self._made, marks, self._schema), self._letters, rows, filtered)

    def _parents_so_far(self) -> list[int]:
        """From the first row on of which not exactly one was made."""
        if self._parents is None:
            self._parents = list(range(len(self._made)))
        return self._parents

    def _may_be_called(self, crumbs: Breadcrumbs) -> bool:
        died_of_it = crumbs.drop(self.operator, self._rows.marks, self._at)
        if died_of_it is not None:
            self._put_aside_row(died_of_it, None)
        return died_of_it is None

    def _put_aside_row(self, line: str, error: BaseException | None) -> None:
        self._parents_so_far()
        self._dead.append(self._at)
        letter = _letter(self.operator, self._rows.marks, self._at, self._rows.dicts[self._at], line)
        if self.logic.on_error is OnError.STOP:
            raise stopped(letter) from error
        self._letters.append(letter)


class ColumnCall:
    """Vectorised code. If it raises, or takes too long, halves are tried until the row that offends stands alone."""

    def __init__(
        self, operator: str, logic: Logic, batch: Batch, schema: pa.Schema, crumbs: Breadcrumbs | None = None
    ) -> None:
        self.operator = operator
        self.logic = logic
        self.size = len(batch)
        self._batch = batch
        self._schema = schema
        self._crumbs = crumbs
        self._todo = [(0, self.size)] if crumbs is None else [(at, at + 1) for at in reversed(range(self.size))]
        """Rows from, to before; the last is next."""
        self._made: list[pa.RecordBatch] = []
        self._parents: list[Numbers] = []
        """For every part that was made."""
        self._letters: list[DeadLetter] = []
        self._untraced: list[tuple[int, int]] = []
        self._dead: list[int] = []
        self._calls = 0

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        while self._todo:
            start, stop = self._todo[-1]
            if self._crumbs is not None:
                died_of_it = self._crumbs.drop(self.operator, self._batch.marks, start)
                if died_of_it is not None:
                    self._put_aside_row(start, died_of_it)
                    self._todo.pop()
                    continue
            rows = self._batch.rows if stop - start == len(self._batch) else self._batch.rows.slice(start, stop - start)
            self._calls += 1
            try:
                made = call_vectorised(self.logic.per, function, rows, arguments, self._schema)
            except MissingColumnError as error:
                # no half of it would have that column
                self._todo.pop()
                for at in range(start, stop):
                    self._put_aside_row(at, error_line(error), error.field)
            except FAILURES as error:
                self.put_aside(error)
            else:
                self._todo.pop()
                self._take(start, stop, made.rows, made.parents)
                for parent, row, misfit in made.misfits:
                    self._put_aside_row(start + parent if parent >= 0 else None, misfit.error, misfit.field, row)

    def put_aside(self, error: BaseException) -> None:
        start, stop = self._todo.pop()
        if stop - start == 1:
            self._put_aside_row(start, error_line(error))
        else:
            middle = (start + stop) // 2
            self._todo += [(middle, stop), (start, middle)]

    def held_back(self, frames: list[Any]) -> Outcome:
        """What code over frames yields when there are no more: nobody can tell which rows it came from."""
        made = made_of_frames(Yielded(frames, 0, in_step=False), 0, self._schema)
        self._letters = []
        for _, row, misfit in made.misfits:
            self._put_aside_row(None, misfit.error, misfit.field, row)
        marks = self._batch.marks.of_children(np.full(made.rows.num_rows, UNTRACED))
        return Outcome(Batch(made.rows, marks), self._letters, 0)

    def outcome(self) -> Outcome:
        marks, rows = self._batch.marks, len(self._batch)
        if len(self._made) == 1 and not self._parents:
            return Outcome(Batch(self._made[0], marks), [], self._calls)
        parents = np.concatenate([np.zeros(0, np.int64), *self._parents])
        unaccounted = np.ones(rows, np.bool_)
        unaccounted[parents[parents >= 0]] = False
        unaccounted[self._dead] = False
        lost_sight = np.zeros(rows, np.bool_)
        for start, stop in self._untraced:
            lost_sight[start:stop] = True
        return Outcome(
            Batch(_concatenated(self._made, self._schema), marks.of_children(parents)),
            self._letters,
            self._calls,
            _ids_or_count(marks, unaccounted & ~lost_sight),
            _ids_or_count(marks, lost_sight),
        )

    def _take(self, start: int, stop: int, made: pa.RecordBatch, parents: Numbers | None) -> None:
        """`parents` None: row for row."""
        self._made.append(made)
        if parents is None:
            if stop - start < self.size:
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
            row = self._batch.rows.slice(at, 1).to_pylist()[0]
        letter = _letter(self.operator, self._batch.marks, at, row or {}, line, field)
        if self.logic.on_error is OnError.STOP:
            raise stopped(letter)
        self._letters.append(letter)


def to_columns(operator: str, logic: Logic | None, rows: Rows) -> tuple[Batch, list[DeadLetter]]:
    """Rows as columns of their schema; those that do not fit become dead letters of `operator`, which made them."""
    made, misfits = rows_to_columns(rows.dicts, rows.schema)
    if not misfits:
        return Batch(made, rows.marks), []
    fits = np.ones(len(rows), np.bool_)
    letters = []
    for misfit in misfits:
        fits[misfit.row] = False
        row = rows.dicts[misfit.row]
        letter = _letter(operator, rows.marks, misfit.row, row, misfit.error, misfit.field)
        if logic is not None and logic.on_error is OnError.STOP:
            raise stopped(letter)
        letters.append(letter)
    return Batch(made, rows.marks.take(fits)), letters


def one_or_several(made: Any) -> dict[str, Any] | list[dict[str, Any]] | None:
    """What code per row returned, or yields: its own code may still run, and raise, while it is gone through."""
    if made is None:
        return None
    if _is_row(made):
        return _plain(made)
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise TypeError(f"expected a dict, None or several dicts, got {type(made).__name__}")
    return [_plain(row) for row in made]


def _is_row(made: object) -> bool:
    return isinstance(made, Mapping) or hasattr(made, "asDict")


def _plain(row: Any) -> dict[str, Any]:
    """A dict of its own, of what may be another kind of mapping, or Spark's Row."""
    if not _is_row(row):
        raise TypeError(f"expected dicts, got one {type(row).__name__} among them")
    return dict(row) if isinstance(row, Mapping) else row.asDict(recursive=True)


def stopped(letter: DeadLetter) -> StoppedError:
    which = "" if letter.id is None else f", tuple {letter.id}"
    return StoppedError(f"operator '{letter.operator}'{which}: {letter.error}")


def _letter(
    operator: str, marks: Marks, at: int | None, row: dict[str, Any], line: str, field: str | None = None
) -> DeadLetter:
    number = None if marks.ids is None or at is None else int(marks.ids[at])
    return DeadLetter(operator, number, row, line, field)


def _ids_or_count(marks: Marks, which: NDArray[np.bool_]) -> Numbers | int:
    return int(which.sum()) if marks.ids is None else marks.ids[which]


def _concatenated(made: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches(made) if made else pa.RecordBatch.from_pylist([], schema=schema)
