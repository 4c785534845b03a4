"""A piece's way through the steps: code is called, what it made goes to everybody who reads it, and all is counted."""

from __future__ import annotations

import threading
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from penstock.base.clock import Stopwatch, now, thread_cpu_seconds
from penstock.dataflow.logic import Per
from penstock.runtime.account import Account, IdBitmaps
from penstock.runtime.code_calls import ColumnCall, Rows, begin_call, columns, to_columns, to_named_rows
from penstock.runtime.dead_letters import DEAD_LETTERS, as_batch
from penstock.runtime.row_values import hash_contents
from penstock.runtime.schemas import rows_to_columns
from penstock.runtime.steps import on_share, places_on_circle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.runtime.batch import Batch
    from penstock.runtime.breadcrumbs import Breadcrumbs
    from penstock.runtime.code_calls import Piece, RowCall
    from penstock.runtime.dead_letters import DeadLetter
    from penstock.runtime.steps import Read, Step
    from penstock.runtime.workers import Errand, Worker


# How fast a core is just now: a small piece of work of fixed size, timed over and over amid the operators' own.
#
# The same code may need twice the CPU a minute later: cores of a virtual machine share their hardware with those of
# others, clocks rise and fall. None of that shows as load. So a thread that works through tuples does a piece now and
# then, ten times a second in a slot, and notes how much CPU it took. It must be that very thread: another one may run
# on another core, which tells little. What the host of a virtual machine takes is in nobody's CPU seconds, and slows
# the pace as well (`process_tree.share_given`). Models and runs both say at what pace they were measured, and one can
# be told for the pace of the other (`penstock.modelling.adjustments`).


EVERY_SECONDS = 0.1
_ITERATIONS = 4000
"""About a third of a millisecond."""


class PaceProbe:
    """Of one slot; its threads look in between two tuples."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._since = Stopwatch()
        self._one_at_a_time = threading.Lock()

    def look(self) -> None:
        """Does a piece, if the last one is long ago."""
        if self._since.seconds() < EVERY_SECONDS or not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            began = thread_cpu_seconds()
            _piece()
            self._seconds.append(thread_cpu_seconds() - began)
            self._since = Stopwatch()
        finally:
            self._one_at_a_time.release()

    def take(self) -> tuple[int, float]:
        """Pieces done since this was last asked, and the seconds of CPU they took, each as many as the median: a single
        one that took far longer, as happens where threads contend, says nothing about the core."""
        seconds, self._seconds = self._seconds, []
        return len(seconds), len(seconds) * median(seconds) if seconds else 0.0


def _piece() -> int:
    total = 0
    for number in range(_ITERATIONS):
        total += number * number % 7
    return total


class Passage:
    """Shared by all threads of a segment.

    `crew_of` says which steps share threads, `hand_over` queues a batch for a step of others, `emit` gets what leaves;
    both are told whether they may wait: who feeds has done so before.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        crew_of: Mapping[int, int],
        hand_over: Callable[[int, Batch, bool], None],
        emit: Callable[[str, Batch, bool], None],
        *,
        audit: bool,
        emit_dead_letters: bool,
        crumbs: Breadcrumbs | None,
    ) -> None:
        self._steps = steps
        self._with_code = {at: (step, step.logic) for at, step in enumerate(steps) if step.logic is not None}
        self._crew_of = crew_of
        self._hand_over = hand_over
        self._emit = emit
        self._audit = audit
        self._emit_dead_letters = emit_dead_letters
        self._crumbs = crumbs
        self._readers: dict[int, list[tuple[int, Read]]] = {}
        for position, step in enumerate(steps):
            for read in step.reads:
                self._readers.setdefault(read.position, []).append((position, read))
        self._columns_wanted = {at for at in crew_of if self._wants_columns(at, crew_of[at])}
        self._sent: dict[int, int] = {}
        self._lock = threading.Lock()
        self._account = self._new_account()
        self._pace = PaceProbe()

    def carry_out(self, errand: Errand, worker: Worker) -> None:
        """From where it stands to its end."""
        while errand.call is not None or errand.agenda:
            self._pace.look()
            watch, cpu = Stopwatch(), thread_cpu_seconds()
            call = errand.call or self._begin(errand, worker)
            call.run(worker.code(call.operator, call.logic), worker.arguments(call.operator, call.logic))
            outcome = call.outcome()
            if isinstance(outcome.made, Rows) and len(outcome.made):
                as_wanted = to_columns if errand.position in self._columns_wanted else to_named_rows
                made, misfits = as_wanted(call.operator, call.logic, outcome.made)
                outcome = replace(outcome, made=made, letters=[*outcome.letters, *misfits])
            errand.call = None
            busy = watch.seconds() + errand.lost_seconds
            errand.busy_seconds += busy
            with self._lock:
                self._account.worked(call.operator, call.size, outcome, busy, thread_cpu_seconds() - cpu)
            self._send_letters(outcome.letters)
            self.send(errand.position, outcome.made, errand)

    def finish(self, errand: Errand, worker: Worker) -> None:
        """There is no more for now: code over frames of this crew ends, and what it held back goes on. Nobody can
        tell which rows that came from."""
        for position, (step, logic) in self._with_code.items():
            if self._crew_of[position] != errand.crew or logic.per is not Per.MAP_IN_PANDAS:
                continue
            frames, pieces = worker.end_stream(step.operator, logic)
            if frames or pieces:
                outcome = worker.last_over_frames[step.operator].held_back(frames, pieces)
                with self._lock:
                    self._account.worked(step.operator, 0, outcome, 0.0, 0.0)
                self._send_letters(outcome.letters)
                self.send(position, outcome.made, errand)
                self.carry_out(errand, worker)

    def _begin(self, errand: Errand, worker: Worker) -> RowCall | ColumnCall:
        errand.position, piece = errand.agenda.pop()
        errand.lost_seconds = 0.0
        step, logic = self._with_code[errand.position]
        errand.call = begin_call(step, logic, piece, self._crumbs)
        if isinstance(errand.call, ColumnCall) and logic.per is Per.MAP_IN_PANDAS:
            worker.last_over_frames[step.operator] = errand.call
        return errand.call

    def enter(self, entrance: int, batch: Batch, errand: Errand | None) -> None:
        with self._lock:
            self._account.entered(len(batch), batch.nbytes)
        self.send(entrance, batch, errand)

    def send(self, position: int, piece: Piece, errand: Errand | None) -> None:
        """What a step made, or what entered, to everybody who reads it. `errand`: of the thread that made it, which
        goes on with what is for its own crew; None: all is handed over."""
        if not len(piece):
            return
        if position >= 0 and self._steps[position].leaves:
            self._emit(self._steps[position].operator, columns(piece), errand is not None)
        if position >= 0 and self._steps[position].delivers:
            with self._lock:
                self._account.delivered(self._steps[position].operator, piece.marks, now())
        if position >= 0 and self._steps[position].leaves_sight:
            with self._lock:
                self._account.left_sight(piece.marks)
        for receiver, part in self._divided(position, piece):
            step = self._steps[receiver]
            if step.logic is None:
                with self._lock:
                    self._account.passed(step.operator, len(part))
                self.send(receiver, part, errand)
            elif errand is not None and self._crew_of[receiver] == errand.crew:
                errand.agenda.append((receiver, part))
            else:
                self._hand_over(receiver, columns(part), errand is not None)

    def _divided(self, position: int, piece: Piece) -> Iterator[tuple[int, Piece]]:
        """For every reader its part; of rows the last has those themselves, others have copies. Rows that take none of
        the streams count as filtered by their sender."""
        readers = self._readers.get(position, [])
        last = len(readers) - 1
        if all(read.takes_all for _, read in readers):
            for at, (receiver, read) in enumerate(readers):
                part = piece.along(read.stream)
                yield receiver, part.copy() if isinstance(part, Rows) and at < last else part
            return
        operator = self._steps[position].operator if position >= 0 else str(position)
        with self._lock:
            first = self._sent.get(position, 0)
            self._sent[position] = first + len(piece)
        places = places_on_circle(
            piece.marks, len(piece), first, crc32(operator.encode()), lambda: _hash_contents(piece)
        )
        taken = np.zeros(len(piece), np.bool_)
        for at, (receiver, read) in enumerate(readers):
            which = on_share(places, read.share)
            taken |= which
            if which.any():
                part = piece.take(which).along(read.stream)
                yield receiver, part.copy() if isinstance(part, Rows) and at < last else part
        if not taken.all():
            ids = piece.marks.ids
            with self._lock:
                self._account.filtered(operator, int((~taken).sum()) if ids is None else ids[~taken])

    def _wants_columns(self, position: int, crew: int) -> bool:
        """Whether what code per row made must be columns: it leaves, or goes to others than code per row of its own
        crew."""
        if self._steps[position].leaves:
            return True
        for receiver, _ in self._readers.get(position, []):
            logic = self._steps[receiver].logic
            if logic is None:
                if self._wants_columns(receiver, crew):
                    return True
            elif self._crew_of[receiver] != crew or logic.per is not Per.ROW:
                return True
        return False

    def _send_letters(self, letters: Sequence[DeadLetter]) -> None:
        if letters and self._emit_dead_letters:
            self._emit(DEAD_LETTERS, as_batch(letters), True)

    def waited(self, position: int, seconds: float) -> None:
        with self._lock:
            count = self._account.count(self._steps[position].operator)
            count.waited_seconds += seconds
            count.pieces += 1

    def take_account(self) -> Account:
        import psutil  # noqa: PLC0415 - belongs to the extra

        with self._lock:
            account, self._account = self._account, self._new_account()
        account.pieces_of_work, account.pieces_seconds = self._pace.take()
        account.memory_bytes = psutil.Process().memory_info().rss
        return account

    def _new_account(self) -> Account:
        return Account(ids=IdBitmaps() if self._audit else None)


def _hash_contents(piece: Piece) -> NDArray[np.uint64]:
    """Rows have the same as dicts and as columns; what fits no column is put aside before long."""
    if not isinstance(piece, Rows):
        return hash_contents(piece.rows)
    rows, misfits = rows_to_columns(piece.dicts, piece.schema)
    fits = np.ones(len(piece), np.bool_)
    fits[[misfit.row for misfit in misfits]] = False
    hashes = np.zeros(len(piece), np.uint64)
    hashes[fits] = hash_contents(rows)
    return hashes
