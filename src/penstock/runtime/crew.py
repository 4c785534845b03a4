"""The queue in front of threads that share their steps: bounded, and cut into pieces that suit what a row takes."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch
from penstock.dataflow.logic import Per
from penstock.runtime.batch import Batch
from penstock.runtime.shared_rows import OVERDUE_SECONDS, SharedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.runtime.steps import CrewPlan, Step

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
