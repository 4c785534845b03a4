"""Rows that the threads of a crew share: each takes the next one, until none is left.

To make dicts of a piece, columns of what came of it, to count it and to hand it over takes a good part of a millisecond
of CPU, however few rows it holds. Code that waits 20 ms a row would have a row or two in each piece, and 64 threads of
it would do nothing else. So the threads of one operator with code per row share a piece: it becomes dicts once, and
whoever ends it makes columns of all that came of it.

Nobody's row waits long for a slow one of another: what is finished of a piece is sent on when it is `OVERDUE_SECONDS`
since its last row was begun, by whichever thread comes by (`Crew.next_shared`).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from operator import length_hint
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.clock import Stopwatch
from penstock.runtime.batch import Marks
from penstock.runtime.code_calls import FRESH, begin_call, one_or_several, to_rows
from penstock.runtime.dead_letters import INTERRUPTIONS
from penstock.runtime.pieces import Outcome, Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.dataflow.logic import Logic
    from penstock.runtime.batch import Batch
    from penstock.runtime.dead_letters import DeadLetter
    from penstock.runtime.steps import Step

OVERDUE_SECONDS = 0.025

_PENDING = object()
"""The row was not begun, or its call is under way."""
_SENT = object()


class _Raised:
    """What the code raised, in the place of what it made."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class SharedRows:
    """A piece in front of a crew; `share` for every thread that works on it."""

    def __init__(self, position: int, step: Step, logic: Logic, piece: Batch) -> None:
        self.position = position
        self.step = step
        self.logic = logic
        self.numbers = iter(range(len(piece)))
        """Of rows nobody has begun. Python gives each number to one thread."""
        self.over = False
        """All that came of it was sent on, or nobody wants it."""
        self.results: list[Any] = [_PENDING] * len(piece)
        """By row: what the code made of it, as `one_or_several` has it, or `Raised`."""
        self._piece = piece
        self._rows: Rows | None = None
        self._unreadable: list[DeadLetter] = []
        """Of rows of which no dict could be made."""
        self._lock = threading.Lock()
        self._ended = 0
        """Rows of shares that have ended."""
        self._since: Stopwatch | None = None
        """Since when there is no row to begin, or when something was sent after that."""

    @property
    def has_more(self) -> bool:
        return length_hint(self.numbers) > 0

    @property
    def is_overdue(self) -> bool:
        return not self.over and self._since is not None and self._since.seconds() >= OVERDUE_SECONDS

    def cut(self) -> None:
        """Nobody begins another row of it, and nothing more comes of it."""
        deque(self.numbers, maxlen=0)
        self.over = True

    def rows(self) -> Rows:
        """As dicts, which the first who asks makes. Whoever takes numbers or results asks first."""
        with self._lock:
            if self._rows is None:
                self._rows, self._unreadable = to_rows(self.step.operator, self.logic, self._piece)
                if self._unreadable:
                    self.numbers = iter(range(len(self._rows)))
                    self.results = [_PENDING] * len(self._rows)
            return self._rows

    def end_share(self, taken: int) -> tuple[Outcome, int]:
        """What is to be sent on now, and of how many rows beside those `taken` it tells: everything, by the last to
        end; what is finished, where others keep it waiting."""
        with self._lock:
            self._ended += taken
            all_ended = self._ended == len(self.results)
            unreadable = self._unreadable if all_ended and not self.over else []
            due = not self.over and (all_ended or self.is_overdue)
            if due or self._since is None:
                self._since = Stopwatch()
            finished = (
                [at for at, result in enumerate(self.results) if result is not _PENDING and result is not _SENT]
                if due
                else []
            )
            made = [self.results[at] for at in finished]
            for at in finished:
                self.results[at] = _SENT
            self.over = self.over or all_ended
        if finished:
            settled = self._settled(finished, made)
            outcome = replace(settled, letters=[*unreadable, *settled.letters], calls=taken)
        else:
            outcome = Outcome(Rows([], Marks(), self._piece.rows.schema), unreadable, taken)
        return outcome, len(unreadable)

    def _settled(self, finished: list[int], made: list[Any]) -> Outcome:
        """As one thread settles rows: by calling what only says what is known already."""
        rows = self.rows()
        if len(finished) < len(rows):
            which = np.zeros(len(rows), np.bool_)
            which[finished] = True
            rows = rows.take(which)
        made.reverse()

        def answer(_row: dict[str, Any]) -> Any:
            result = made.pop()  # which nobody keeps, so that it is not copied
            if isinstance(result, _Raised):
                raise result.error
            return result

        call = begin_call(self.step, self.logic, rows, None)
        call.run(answer, ())
        return call.outcome()


class RowShare:
    """What one thread does of shared rows; to whoever carries it out a call as others are."""

    def __init__(self, shared: SharedRows) -> None:
        self.operator = shared.step.operator
        self.logic = shared.logic
        self.size = 0
        """Rows it has taken so far."""
        self._shared = shared
        self._at = 0

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Until no row is left to begin."""
        dicts, results = self._shared.rows().dicts, self._shared.results
        for at in self._shared.numbers:
            self._at = at
            try:
                row = dicts[at]
                result = function(row, *arguments)
                is_own = type(result) is dict and (result is row or getrefcount(result) <= FRESH)
                results[at] = result if is_own else one_or_several(result)
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                results[at] = _Raised(error)
            self.size += 1

    def put_aside(self, error: BaseException) -> None:
        """The row that is just being called: its call took too long."""
        self._shared.results[self._at] = _Raised(error)
        self.size += 1

    def outcome(self) -> Outcome:
        outcome, others = self._shared.end_share(self.size)
        self.size += others
        return outcome
