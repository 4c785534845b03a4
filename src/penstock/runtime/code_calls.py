"""Calling code on a piece of a stream: per row here, per batch in `column_calls`.

A call is a value that knows how far it came: when its thread hangs, another goes on from there. Whatever happens to a
row, it is accounted for: rows came of it, or none did (filtered), or it is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.dataflow.logic import OnError, Per
from penstock.runtime.batch import Batch
from penstock.runtime.column_calls import ColumnCall
from penstock.runtime.dead_letters import INTERRUPTIONS, DeadLetter, error_line
from penstock.runtime.pieces import Outcome, Rows, columns, ids_or_count, letter_of, stopped
from penstock.runtime.row_dicts import readable_rows, written_row
from penstock.runtime.schemas import is_seen, nameless, rows_to_columns, unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Marks, Numbers
    from penstock.runtime.breadcrumbs import Breadcrumbs
    from penstock.runtime.pieces import Piece
    from penstock.runtime.schemas import Misfit
    from penstock.runtime.steps import Step


def _references_to_fresh() -> int:
    result = dict[str, Any]()
    return getrefcount(result)


FRESH = _references_to_fresh()
"""As many references Python counts to what a call has just made, and nobody else has. If there are more the code keeps
it, and may give it again with other values in it, for the next row: then it is copied."""


def begin_call(step: Step, logic: Logic, piece: Piece, crumbs: Breadcrumbs | None) -> RowCall | ColumnCall:
    schema = step.schema or (piece.schema if isinstance(piece, Rows) else piece.rows.schema)
    if logic.per is Per.ROW:
        rows, unreadable = (piece, []) if isinstance(piece, Rows) else to_rows(step.operator, logic, piece)
        return RowCall(step.operator, logic, rows, schema, crumbs, unreadable)
    return ColumnCall(step.operator, logic, columns(piece), schema, crumbs)


def to_rows(operator: str, logic: Logic, batch: Batch) -> tuple[Rows, list[DeadLetter]]:
    """Columns as rows; those of which Python can make none become dead letters of `operator`, which is to get them."""
    dicts, misfits = readable_rows(batch.rows)
    if not misfits:
        return Rows(dicts, batch.marks, batch.rows.schema), []
    readable = np.ones(len(batch), np.bool_)
    readable[[misfit.row for misfit in misfits]] = False
    letters = [
        _misfit_letter(operator, logic, batch.marks, written_row(batch.rows, misfit.row), misfit) for misfit in misfits
    ]
    return Rows(dicts, batch.marks.take(readable), batch.rows.schema), letters


class RowCall:
    """Code per row: a dict in; a dict, None, several, or a generator out. `unreadable` are letters of rows that came
    with the others and of which no dict could be made."""

    def __init__(
        self,
        operator: str,
        logic: Logic,
        rows: Rows,
        schema: pa.Schema,
        crumbs: Breadcrumbs | None = None,
        unreadable: Sequence[DeadLetter] = (),
    ) -> None:
        self.operator = operator
        self.logic = logic
        self.size = len(rows) + len(unreadable)
        self._rows = rows
        self._schema = schema
        self._crumbs = crumbs
        self._at = 0
        self._made: list[dict[str, Any]] = []
        self._parents: list[int] | None = None
        """None as long as the k-th row made came from the k-th row."""
        self._letters: list[DeadLetter] = [*unreadable]
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
                row = dicts[at]
                result = function(row, *arguments)
                is_own = type(result) is dict and (result is row or getrefcount(result) <= FRESH)
                self._take(result if is_own else one_or_several(result))
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
                    keep(result if result is row or getrefcount(result) <= FRESH else result.copy())
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
        return Outcome(Rows(self._made, marks, self._schema), self._letters, rows, filtered)

    def _parents_so_far(self) -> list[int]:
        """From the first row on of which not exactly one was made."""
        if self._parents is None:
            self._parents = list(range(len(self._made)))
        return self._parents

    def _may_be_called(self, crumbs: Breadcrumbs) -> bool:
        died_of_it = crumbs.drop(self.operator, self._rows.marks, self._at, lambda: self._rows.dicts[self._at])
        if died_of_it is not None:
            self._put_aside_row(died_of_it, None)
        return died_of_it is None

    def _put_aside_row(self, line: str, error: BaseException | None) -> None:
        self._parents_so_far()
        self._dead.append(self._at)
        letter = letter_of(self.operator, self._rows.marks, self._at, self._rows.dicts[self._at], line)
        if self.logic.on_error is OnError.STOP:
            raise stopped(letter) from error
        self._letters.append(letter)


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
    letters = [_misfit_letter(operator, logic, rows.marks, rows.dicts[misfit.row], misfit) for misfit in misfits]
    left = rows.take(~np.isin(np.arange(len(rows)), [misfit.row for misfit in misfits])) if misfits else rows
    dicts = [row if row.keys() == keys else {name: row.get(name) for name in names} for row in left.dicts]
    return replace(left, dicts=dicts), letters


def _have_exactly(rows: list[dict[str, Any]], names: list[str]) -> bool:
    """No other field in any row, and as many in all as that makes: this way Python goes through rows in C."""
    return set(names).issuperset(set().union(*rows)) and sum(map(len, rows)) == len(names) * len(rows)


def _misfit_letter(operator: str, logic: Logic | None, marks: Marks, row: dict[str, Any], misfit: Misfit) -> DeadLetter:
    letter = letter_of(operator, marks, misfit.row, row, misfit.error, misfit.field)
    if logic is not None and logic.on_error is OnError.STOP:
        raise stopped(letter)
    return letter


def to_columns(operator: str, logic: Logic | None, rows: Rows) -> tuple[Batch, list[DeadLetter]]:
    """Rows as columns of their schema; those that do not fit become dead letters of `operator`, which made them."""
    made, misfits = rows_to_columns(rows.dicts, rows.schema)
    if not misfits:
        return Batch(made, rows.marks), []
    fits = np.ones(len(rows), np.bool_)
    fits[[misfit.row for misfit in misfits]] = False
    letters = [_misfit_letter(operator, logic, rows.marks, rows.dicts[misfit.row], misfit) for misfit in misfits]
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
