"""Calling vectorised code on a piece of a stream, as pandas, Arrow, or an iterator of frames."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.dataflow.logic import OnError, Per
from penstock.runtime.batch import UNTRACED, Batch
from penstock.runtime.dead_letters import INTERRUPTIONS, StoppedError, error_line
from penstock.runtime.frame_stream import Yielded
from penstock.runtime.held_back import HeldBackError
from penstock.runtime.pieces import Outcome, and_all_of, ids_or_count, letter_of, stopped
from penstock.runtime.row_dicts import written_row, written_rows
from penstock.runtime.schemas import MissingColumnError
from penstock.runtime.vectorised import call_vectorised, made_of_frames, to_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Numbers
    from penstock.runtime.breadcrumbs import Breadcrumbs
    from penstock.runtime.dead_letters import DeadLetter
    from penstock.runtime.held_back import Settled
    from penstock.runtime.vectorised import Made


ALIKE = 8
"""So many rows that fail alone and alike are no accident."""


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
        self._open: list[tuple[int, int]] = []
        """Code over frames answers for them in its own time, as settled pieces or at the end of the stream."""
        self._lost_sight: list[Batch] = []
        self._passed_over: list[Batch] = []
        """Pieces, of earlier calls too, of which nobody can tell what came, or nothing came."""
        self._dead: list[int] = []
        self._alike = 0
        self._last_failure: type[BaseException] | None = None
        """So many single rows failed one after the other, with an error of this type."""
        self._calls = 0

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        while self._todo:
            start, stop = self._todo[-1]
            if self._crumbs is not None:
                holds = partial(written_row, self._batch.rows, start)
                died_of_it = self._crumbs.drop(self.operator, self._batch.marks, start, holds)
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
        if self._crumbs is not None:
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
        self._letters = []
        for _, row, misfit in made.misfits:
            self._put_aside_row(None, misfit.error, misfit.field, row)
        marks = self._batch.marks.of_children(np.full(made.rows.num_rows, UNTRACED))
        ends = and_all_of(0, pieces)
        return Outcome(Batch(made.rows, marks), self._letters, 0, 0 if frames else ends, ends if frames else 0)

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
            self._letters,
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
        self._add_letter(letter_of(self.operator, self._batch.marks, at, row or {}, line, field))

    def _put_aside_range(self, start: int, stop: int, line: str, field: str | None = None) -> None:
        self._dead += range(start, stop)
        self._put_aside_piece(self._batch.slice(start, stop), line, field)

    def _put_aside_piece(self, piece: Batch, line: str, field: str | None = None) -> None:
        for at, row in enumerate(written_rows(piece.rows)):
            self._add_letter(letter_of(self.operator, piece.marks, at, row, line, field))

    def _add_letter(self, letter: DeadLetter) -> None:
        if self.logic.on_error is OnError.STOP:
            raise stopped(letter)
        self._letters.append(letter)


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
