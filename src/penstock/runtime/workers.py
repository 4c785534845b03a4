"""One thread that runs code: what the code opened in it, what it is doing, and whether it was given up on."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from operator import length_hint
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.clock import Stopwatch
from penstock.dataflow.logic import Per
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.code_calls import FRESH, Outcome, Rows, begin_call, one_or_several, to_rows
from penstock.runtime.dead_letters import INTERRUPTIONS, AbandonedError, StoppedError, error_line, interrupt
from penstock.runtime.frame_calls import FrameStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from penstock.dataflow.logic import Logic
    from penstock.runtime.code_calls import ColumnCall, Piece, RowCall
    from penstock.runtime.dead_letters import DeadLetter
    from penstock.runtime.frame_calls import Yielded
    from penstock.runtime.steps import CrewPlan, Step


# Rows that the threads of a crew share: each takes the next one, until none is left.
#
# To make dicts of a piece, columns of what came of it, to count it and to hand it over takes a good part of a
# millisecond of CPU, however few rows it holds. Code that waits 20 ms a row would have a row or two in each piece,
# and 64 threads of it would do nothing else. So the threads of one operator with code per row share a piece: it
# becomes dicts once, and whoever ends it makes columns of all that came of it.
#
# Nobody's row waits long for a slow one of another: what is finished of a piece is sent on when it is `OVERDUE_SECONDS`
# since its last row was begun, by whichever thread comes by (`Crew.next_shared`).


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


@dataclass(slots=True)
class Errand:
    """A piece on its way through the steps of one crew. Whoever holds it can go on with it."""

    crew: int
    agenda: list[tuple[int, Piece]]
    """Steps still to be done, with what they get; the last is next."""
    rows: int
    """It began with."""
    call: RowCall | ColumnCall | RowShare | None = None
    position: int = 0
    """Of the step whose call is under way."""
    lost_seconds: float = 0.0
    """That threads which were given up on spent in that call."""
    busy_seconds: float = 0.0
    share: RowShare | None = None
    """Where it is a part in rows that a crew shares: how many it takes is known in the end."""

    @property
    def rows_taken(self) -> int:
        return self.rows if self.share is None else self.share.size


def share_of(shared: SharedRows, crew: int) -> Errand:
    """A thread's part in rows that its crew shares."""
    share = RowShare(shared)
    return Errand(crew, [], 0, share, shared.position, share=share)


@dataclass(slots=True, eq=False)
class Worker:
    crew: int = 0
    errand: Errand | None = None
    _handles: dict[str, tuple[Logic, Any]] = field(default_factory=dict)
    _streams: dict[str, FrameStream] = field(default_factory=dict)
    last_over_frames: dict[str, ColumnCall] = field(default_factory=dict)
    """The last call of code over frames, by operator: what it holds back comes out as that one's would."""
    to_finish: bool = False
    """Asked to end its streams."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _since: Stopwatch | None = None
    """When the call under way began, if it has a time limit."""
    _limit: float = 0.0
    _abandoned: bool = False

    def arguments(self, operator: str, logic: Logic) -> tuple[Any, ...]:
        """What the code gets behind its rows: what `open` made for this thread, if there is an `open`."""
        if logic.open is None:
            return ()
        if operator not in self._handles:
            try:
                self._handles[operator] = (logic, logic.open())
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                raise StoppedError(f"operator '{operator}': its open raised {error_line(error)}") from error
        return (self._handles[operator][1],)

    def code(self, operator: str, logic: Logic) -> Callable[..., Any]:
        """The function to call; with a time limit around it, if it has one."""
        function = partial(self._give, operator, logic) if logic.per is Per.MAP_IN_PANDAS else logic.function
        if logic.timeout_seconds is None:
            return function
        return partial(self._timed, function, logic.per is Per.ROW, logic.timeout_seconds)

    def _give(self, operator: str, logic: Logic, frame: pd.DataFrame, piece: Batch) -> Yielded:
        """Code over frames goes on where it is; if it returned or raised, it is called anew."""
        stream = self._streams.get(operator)
        if stream is None or stream.over:
            stream = self._streams[operator] = FrameStream(operator, logic.function, self.arguments(operator, logic))
        return stream.give(frame, piece)

    def end_stream(self, operator: str, logic: Logic) -> tuple[list[pd.DataFrame], list[Batch]]:
        """What code over frames still yields when there are no more, and the pieces of which nothing had come."""
        stream = self._streams.pop(operator, None)
        if stream is None or stream.over:
            return [], []
        try:
            return stream.end(logic.timeout_seconds)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            raise StoppedError(f"operator '{operator}', at the end of its frames: {error_line(error)}") from error

    def drop_streams(self) -> None:
        for stream in self._streams.values():
            stream.drop()
        self._streams.clear()

    def _timed(self, function: Callable[..., Any], per_row: bool, limit: float, *arguments: Any) -> Any:
        self._limit = limit
        self._since = Stopwatch()
        try:
            made = function(*arguments)
            return one_or_several(made) if per_row else made
        finally:
            with self._lock:
                self._since = None
                if self._abandoned:
                    raise AbandonedError

    def abandon_if_late(self) -> Worker | None:
        """By the watch: if the call under way is past its limit, this thread no longer owns its errand. Its heir does:
        with the row that took too long put aside, or its batch halved."""
        with self._lock:  # until it is left, this thread does not go on, even if its call returns now
            errand = self.errand
            late = self._since is not None and self._since.seconds() > self._limit
            if self._abandoned or not late or errand is None or errand.call is None:
                return None
            self._abandoned = True
            stuck = self._streams.pop(errand.call.operator, None)
            heir = self._heir(errand)
        error: BaseException = TimeoutError(f"took longer than {self._limit:g} s")
        if stuck is not None:
            interrupt(stuck.thread)
            error = stuck.failure(error)
        errand.lost_seconds += self._limit
        errand.call.put_aside(error)
        return heir

    def _heir(self, errand: Errand) -> Worker:
        """Who goes on with the errand, and with code over frames that waits for more: what that holds back is not
        lost, nor what was opened for it. Whatever else was opened belongs to this thread."""
        heir = Worker(self.crew, errand, to_finish=self.to_finish, last_over_frames=self.last_over_frames)
        heir._streams, self._streams = self._streams, {}
        for operator in heir._streams.keys() & self._handles.keys():
            heir._handles[operator] = self._handles.pop(operator)
        return heir

    def close(self) -> None:
        """Ends what was opened, in the thread that opened it."""
        self.drop_streams()
        while self._handles:
            _, (logic, handle) = self._handles.popitem()
            if logic.close is not None:
                logic.close(handle)


# The queue in front of threads that share their steps: bounded, and cut into pieces that suit what a row takes.


PIECE_SECONDS = 0.025
"""About what a piece takes, where rows take less: the crew behind waits so long for its first one, and ends so much
later; to hand one over takes a fraction of a millisecond."""
MOST_ROWS = 65_536
SMALLEST_PART = 4
"""Pieces shrink to this part of what takes `PIECE_SECONDS` where that lets all threads have some."""


def next_piece_rows(rows: int, taken: int, seconds: float, wanted: float = PIECE_SECONDS) -> int:
    """How many rows to take next time, if `taken` of at most `rows` took `seconds`."""
    if seconds > 2 * wanted:
        return max(1, int(taken * wanted / seconds))
    if taken >= rows and seconds < wanted / 2:
        return min(MOST_ROWS, 2 * rows)
    return rows


def rows_to_take(queued: int, threads: int, rows: int) -> int:
    """Half of an even part for every thread, so that all end at about the same time; but not smaller than is worth
    handing over, nor larger than `rows`."""
    half = queued if threads == 1 else -(-queued // (2 * threads))
    return min(rows, max(half, rows // SMALLEST_PART, 1))


def rows_to_share(threads: int, rows: int) -> int:
    """`rows` for every thread of a crew."""
    return min(MOST_ROWS, threads * rows)


@dataclass(slots=True)
class _Queued:
    position: int
    batch: Batch
    nbytes: int
    since: Stopwatch


class Crew:
    """Every method is called with the segment's lock held; the conditions share it."""

    def __init__(
        self, plan: CrewPlan, steps: Sequence[Step], lock: threading.Lock, most_rows: int, most_bytes: int
    ) -> None:
        self.positions = frozenset(plan.positions)
        self.threads = plan.threads
        # several threads never have more than one step
        step = steps[min(plan.positions)]
        self._shares = plan.threads > 1 and step.logic is not None and step.logic.per is Per.ROW
        self._steps = steps
        self._shared: list[SharedRows] = []
        """Some of them may be over; the last may have rows left to begin."""
        self._is_watched = False
        """A thread that has nothing to do looks for rows that are overdue."""
        self.not_empty = threading.Condition(lock)
        self.not_full = threading.Condition(lock)
        self.rows = 0
        """Queued."""
        self.at_work = 0
        """Errands under way."""
        self.to_finish = 0
        """Threads that were asked to end their streams, and have not yet."""
        self.piece_rows = 1
        self._nbytes = 0
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._queue: deque[_Queued] = deque()

    @property
    def has_room(self) -> bool:
        return self.rows < self._most_rows and self._nbytes < self._most_bytes

    @property
    def idle(self) -> bool:
        return not self.rows and not self.at_work and not self.to_finish

    def put(self, position: int, batch: Batch) -> None:
        nbytes = batch.nbytes
        self._queue.append(_Queued(position, batch, nbytes, Stopwatch()))
        self.rows += len(batch)
        self._nbytes += nbytes
        # as many threads as there may be pieces; one that finds nothing waits again
        self.not_empty.notify(min(self.threads, len(batch)))

    def wait_for_work(self, is_told: Callable[[], object]) -> None:
        """Until there is some, or the thread `is_told` something else. While rows are unfinished one thread of those
        that wait looks whether they are overdue, and passes that on when it leaves."""
        while not (self.has_work or is_told()):
            watches = bool(self._unfinished()) and not self._is_watched
            self._is_watched = self._is_watched or watches
            self.not_empty.wait(OVERDUE_SECONDS if watches else None)
            if watches:
                self._is_watched = False
        if self._unfinished() and not self._is_watched:
            self.not_empty.notify()

    @property
    def has_work(self) -> bool:
        return self.rows > 0 or any(shared.has_more or shared.is_overdue for shared in self._shared)

    def next_shared(self) -> SharedRows | None:
        """Rows that others have begun to share: those that are overdue, if only to send on what is finished, else
        those of which some are left. None: there are none, or nothing is shared here."""
        unfinished = self._unfinished()
        overdue = (shared for shared in unfinished if shared.is_overdue)
        joined = next(overdue, None) or next((shared for shared in unfinished if shared.has_more), None)
        if joined is not None:
            self.at_work += 1
        return joined

    def _unfinished(self) -> list[SharedRows]:
        if any(shared.over for shared in self._shared):
            self._shared = [shared for shared in self._shared if not shared.over]
        return self._shared

    def share(self, position: int, piece: Batch) -> SharedRows | None:
        """A piece for all threads, where they have code per row."""
        step = self._steps[position]
        if not self._shares or step.logic is None:
            return None
        shared = SharedRows(position, step, step.logic, piece)
        self._shared.append(shared)
        return shared

    def take(self) -> tuple[int, Batch, float]:
        """The next piece: for which step, its rows, and how long its first had waited."""
        if self._shares:
            wanted = rows_to_share(self.threads, self.piece_rows)
        else:
            wanted = rows_to_take(self.rows, self.threads, self.piece_rows)
        first = self._queue[0]
        waited = first.since.seconds()
        parts: list[Batch] = []
        while wanted and self._queue and self._queue[0].position == first.position:
            head = self._queue[0]
            size = len(head.batch)
            if parts and not parts[0].joins(head.batch):
                break
            if size <= wanted:
                parts.append(head.batch)
                self._queue.popleft()
                self._nbytes -= head.nbytes
                wanted -= size
            else:
                parts.append(head.batch.slice(0, wanted))
                left = head.nbytes * (size - wanted) // size
                self._nbytes -= head.nbytes - left
                head.batch, head.nbytes = head.batch.slice(wanted, size), left
                wanted = 0
        piece = Batch.concat(parts)
        self.rows -= len(piece)
        self.at_work += 1
        if self.has_room:
            self.not_full.notify_all()
        return first.position, piece, waited

    def done(self, rows: int, seconds: float) -> None:
        """One that began with no rows ended streams, and says nothing of how many to take."""
        self.at_work -= 1
        if rows:
            self.piece_rows = next_piece_rows(self.piece_rows, rows, seconds)

    def drop(self) -> None:
        """Forgets what is queued."""
        self._queue.clear()
        self.rows = self._nbytes = 0
        for shared in self._shared:
            shared.cut()
        self.not_full.notify_all()
