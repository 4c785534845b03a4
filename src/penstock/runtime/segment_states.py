"""The life of a segment as one state machine: no threads, no locks, no clock.

Events are facts. `SegmentMachine.handle` changes the states and returns instructions: which threads to wake or to
start, and one answer for the thread that brought the event. A thread that is answered `Wait` brings the same
event again when it is woken. `EVENTS` lists the states in which each event may come, `MOVES` the changes of state that
exist; anything else raises `ImpossibleMoveError` with the history.

A pool is a queue with the threads that empty it; a thread asks for work, processes one item, and asks again:

    FeedAsked, Sent ──► queue of a pool ──► WorkAsked ──► item ──► Sent to the next pool, or Left to the output
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.base.errors import ImpossibleMoveError
from penstock.dataflow.logic import Per
from penstock.runtime.code_calls import SharedRows
from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.steps import OVERDUE_SECONDS, Pool, is_overdue, next_piece_rows, pools_entered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.runtime.batch import Batch
    from penstock.runtime.code_calls import ColumnCall, Piece, RowCall, SharedRowsCall
    from penstock.runtime.steps import PoolPlan, Step


NEVER = float("inf")
OWNER = 0
"""The thread that feeds and flushes; those of pools are numbered from 1."""


class SegmentState(StrEnum):
    RUNNING = "running"
    FLUSHING = "flushing"
    """All that was fed is processed; then the streams of code over frames end, one pool after the other."""
    DROPPING = "dropping"
    """A call of `process` was given up: queues are cleared, results of calls under way are dropped."""
    FAILED = "failed"
    CLOSED = "closed"


class ThreadState(StrEnum):
    WAITING = "waiting"
    """It has no item."""
    WORKING = "working"
    ABANDONED = "abandoned"
    """Its call took too long; another thread continues with its item."""
    ENDED = "ended"


MOVES: dict[SegmentState | ThreadState, frozenset[SegmentState | ThreadState]] = {
    SegmentState.RUNNING: frozenset(set(SegmentState) - {SegmentState.RUNNING}),
    SegmentState.FLUSHING: frozenset(set(SegmentState) - {SegmentState.FLUSHING}),
    SegmentState.DROPPING: frozenset({SegmentState.RUNNING, SegmentState.FAILED, SegmentState.CLOSED}),
    SegmentState.FAILED: frozenset({SegmentState.CLOSED}),
    SegmentState.CLOSED: frozenset(),
    ThreadState.WAITING: frozenset({ThreadState.WORKING, ThreadState.ENDED}),
    ThreadState.WORKING: frozenset({ThreadState.WAITING, ThreadState.ABANDONED, ThreadState.ENDED}),
    ThreadState.ABANDONED: frozenset({ThreadState.ENDED}),
    ThreadState.ENDED: frozenset(),
}


@dataclass(slots=True)
class WorkItem:
    """A piece that is processed by the steps of one pool. Another thread can continue it."""

    pool: int
    agenda: list[tuple[int, Piece]] = field(default_factory=list)
    """Steps to be done, each with its input; the last is next."""
    rows: int = 0
    """Rows it began with."""
    shared: SharedRows | None = None
    """Rows that several threads process; this item is the part of one of them."""
    ends_streams: bool = False
    """When the agenda is done, the streams of code over frames end; the rows they still yield belong to this item."""
    call: RowCall | ColumnCall | SharedRowsCall | None = None
    position: int = 0
    """The step whose call is next, or under way."""
    lost_seconds: float = 0.0
    """Time that abandoned threads spent in that call."""
    busy_seconds: float = 0.0


# Events, each with its possible answers.


class OwnerEvent(StrEnum):
    """Events without fields: what the owner, or the timer, asks for."""

    START = "start"
    """The segment was built: start the threads."""
    FLUSH = "flush"
    """Process everything that was fed. Answers: PROCEED, Wait, Reject, or Begin for the owner itself."""
    DROP = "drop"
    """A call of `process` was given up. Answers: PROCEED, Wait."""
    CLOSE = "close"
    """Answer: PROCEED."""
    TICK = "tick"
    """The timer woke up. Answers: Wait, STOP."""


@dataclass(frozen=True, slots=True)
class FeedAsked:
    """The owner has a batch for an entrance. Answers: PROCEED, Wait, Reject."""

    entrance: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch goes to the queue in front of a step. Answers: PROCEED, Wait.

    The owner does not wait here: it did in `FeedAsked`."""

    position: int
    batch: Batch
    thread: int


@dataclass(frozen=True, slots=True)
class Left:
    """A batch of an operator left the segment. Answers: PROCEED, Wait."""

    operator: str
    batch: Batch
    thread: int


@dataclass(frozen=True, slots=True)
class WorkAsked:
    """A thread has no item, or is done with the one it had: `rows` took `seconds`. Answers: Begin, Wait, STOP."""

    thread: int
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PartEnded:
    """A thread found no more row to begin of shared rows. Answers: SETTLE, SETTLE_ALL, PROCEED."""

    thread: int
    shared: SharedRows


@dataclass(frozen=True, slots=True)
class ThreadEnded:
    """Answer: PROCEED."""

    thread: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An error ended the segment. Answer: PROCEED."""

    error: BaseException


ThreadEvent = WorkAsked | PartEnded | ThreadEnded
Event = OwnerEvent | FeedAsked | Sent | Left | Failed | ThreadEvent


# Instructions.


class Place(StrEnum):
    """A place at which threads wait."""

    WORK = "work"
    """Threads of a pool, for items."""
    ROOM = "room"
    """Those who send to a pool, for room in its queue."""
    OUTPUT = "output"
    """Those who send to the output, for room."""
    OWNER = "owner"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Wake:
    """Wake `count` of those who wait (None: all) at a place (None: at all places)."""

    place: Place | None
    pool: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class StartThread:
    """Start a thread of a pool. One that `replaces` another continues its `item`, whose call exceeded `limit`."""

    thread: int
    pool: int
    replaces: int = OWNER
    item: WorkItem | None = None
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class InterruptCall:
    """End the call of an abandoned thread, as far as that is possible."""

    thread: int


class Reply(StrEnum):
    """Answers without fields."""

    PROCEED = "proceed"
    SETTLE = "settle"
    """Send the finished ones of the shared rows."""
    SETTLE_ALL = "settle all"
    """The same; all rows are finished."""
    STOP = "stop"
    """The segment is closed: end."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, at most `seconds`, and bring the event again."""

    place: Place
    pool: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Raise this."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Begin:
    """Process an item, whose first row spent `waited` seconds in the queue (None: it comes from no queue)."""

    item: WorkItem
    waited: float | None = None


Answer = Reply | Wait | Reject | Begin
Instruction = Wake | StartThread | InterruptCall | Answer


MAX_OUTPUT_ROWS = 65_536
MAX_OUTPUT_BYTES = 64 * 2**20
OUTPUT_WORTH_TAKING_ROWS = 4096
CLOSING_SECONDS = 5.0
"""Max seconds to wait for threads at the end, and for calls whose results are dropped."""


@dataclass(slots=True)
class Thread:
    """The state of one thread."""

    number: int
    pool: Pool
    state: ThreadState = ThreadState.WAITING
    item: WorkItem | None = None
    ends_streams: bool = False
    """It is to end its streams."""
    until: float = NEVER
    """When the call under way exceeds its `limit`."""
    limit: float = 0.0

    def __str__(self) -> str:
        return f"thread {self.number} of pool {self.pool.number}"


class SegmentMachine:
    """All states of one segment. `max_hung`: as in `SegmentOptions`."""

    def __init__(
        self, steps: Sequence[Step], plans: Sequence[PoolPlan], *, queue_rows: int, queue_bytes: int, max_hung: int
    ) -> None:
        self.state = SegmentState.RUNNING
        self.failure: BaseException | None = None
        self.number = OWNER
        self.history: deque[tuple[int, str, str]] = deque(maxlen=64)
        """The last moves: of which thread, from, to."""
        self.pool_of = {position: number for number, plan in enumerate(plans) for position in plan.positions}
        self.pools: list[Pool] = []
        for number, plan in enumerate(plans):
            kinds = {step.logic.per for at in plan.positions if (step := steps[at]).logic is not None}
            # several threads never have more than one step
            shares_rows = plan.threads > 1 and Per.ROW in kinds
            self.pools.append(
                Pool(number, plan.threads, shares_rows, Per.MAP_IN_PANDAS in kinds, queue_rows, queue_bytes)
            )
        self.threads: dict[int, Thread] = {}
        limits = [step.logic.timeout_seconds for step in steps if step.logic and step.logic.timeout_seconds]
        self._tick_seconds = min(1.0, max(0.002, min(limits) / 10)) if limits else None
        self.needs_timer = bool(limits) or any(pool.shares_rows for pool in self.pools)
        self._steps = steps
        self._max_hung = max_hung
        self._entered = pools_entered(steps, self.pool_of)
        self._started = 0
        self._hung: dict[int, set[int]] = {}
        """Abandoned threads that have not ended, by step."""
        self._to_flush: list[Pool] = []
        """Pools whose streams are yet to be ended; senders come before their readers."""
        self._drop_until = 0.0
        self._output: dict[str, list[Batch]] = {}
        self._output_rows = self._output_bytes = 0
        self._out: list[Instruction] = []

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return what to do about `event` at `now`, in seconds of any clock that does not go back. At most one of the
        instructions is an answer for the thread that brought the event."""
        handler, states, thread_states = EVENTS[event if isinstance(event, OwnerEvent) else type(event)]
        if self.state not in states:
            self._impossible(event, f"the segment is {self.state}")
        if thread_states and not isinstance(event, OwnerEvent | FeedAsked | Failed):
            thread = self.threads.get(event.thread)
            if thread is None or thread.state not in thread_states:
                self._impossible(event, "no such thread" if thread is None else f"{thread} is {thread.state}")
        self._out = []
        handler(self, event, now)
        return self._out

    @property
    def is_idle(self) -> bool:
        return all(pool.is_idle for pool in self.pools)

    @property
    def output_is_worth_taking(self) -> bool:
        return self._output_rows >= OUTPUT_WORTH_TAKING_ROWS or not self._output_has_room

    @property
    def _output_has_room(self) -> bool:
        return self._output_rows < MAX_OUTPUT_ROWS and self._output_bytes < MAX_OUTPUT_BYTES

    def take_output(self) -> tuple[dict[str, list[Batch]], Wake]:
        """Return what left, by operator, and whom to wake."""
        batches, self._output = self._output, {}
        self._output_rows = self._output_bytes = 0
        return batches, Wake(Place.OUTPUT)

    def _move(self, subject: SegmentMachine | Thread, state: SegmentState | ThreadState) -> None:
        """Change a state: the only place that does."""
        if state not in MOVES[subject.state]:
            self._impossible(state, f"{subject} is {subject.state}")
        self.history.append((subject.number, subject.state, state))
        subject.state = state

    def __str__(self) -> str:
        return "segment"

    def _impossible(self, what: object, why: str) -> NoReturn:
        name = what if isinstance(what, str) else type(what).__name__
        moves = (f"{f'thread {who}' if who else self} {before} -> {after}" for who, before, after in self.history)
        raise ImpossibleMoveError(f"{name}: {why}; moves before: {', '.join(moves) or 'none'}")

    def _wake(self, place: Place | None, pool: int = 0, count: int | None = None) -> None:
        self._out.append(Wake(place, pool, count))

    def _is_rejected(self) -> bool:
        """Answer the owner if the segment has failed or is closed."""
        is_rejected = self.failure is not None or self.state is SegmentState.CLOSED
        if is_rejected:
            self._out.append(Reject(self.failure or StoppedError("the segment is closed")))
        return is_rejected

    # Events of the owner.

    def _start(self, _event: OwnerEvent, _now: float) -> None:
        for pool in self.pools:
            for _ in range(pool.threads):
                self._out.append(StartThread(self._new_thread(pool).number, pool.number))

    def _new_thread(self, pool: Pool) -> Thread:
        self._started += 1
        thread = self.threads[self._started] = Thread(self._started, pool)
        return thread

    def _feed_asked(self, event: FeedAsked, _now: float) -> None:
        if not self._is_rejected():
            has_room = all(self.pools[number].has_room for number in self._entered[event.entrance])
            self._out.append(Reply.PROCEED if has_room else Wait(Place.OWNER))

    def _flush_asked(self, _event: OwnerEvent, _now: float) -> None:
        if self._is_rejected():
            return
        if self.state is SegmentState.RUNNING:
            self._move(self, SegmentState.FLUSHING)
            self._to_flush = [pool for pool in self.pools if pool.has_streams]
        if not self.is_idle:
            self._out.append(Wait(Place.OWNER))
        elif not self._to_flush:
            self._move(self, SegmentState.RUNNING)
            self._out.append(Reply.PROCEED)
        else:
            self._end_streams(self._to_flush.pop(0))

    def _end_streams(self, pool: Pool) -> None:
        if not self.threads:  # the owner's own thread does everything
            self._out.append(Begin(WorkItem(pool.number, ends_streams=True)))
            return
        for thread in self.threads.values():
            thread.ends_streams = thread.pool is pool and thread.state is ThreadState.WAITING
        pool.to_end = sum(thread.ends_streams for thread in self.threads.values())
        self._wake(Place.WORK, pool.number)
        self._out.append(Wait(Place.OWNER))

    def _drop_asked(self, _event: OwnerEvent, now: float) -> None:
        if self.state in ACTIVE:
            self._move(self, SegmentState.DROPPING)
            self._drop_until = now + CLOSING_SECONDS
            self._clear()
        if self.state is SegmentState.DROPPING and any(pool.at_work for pool in self.pools):
            if now < self._drop_until:
                self._out.append(Wait(Place.OWNER, seconds=self._drop_until - now))
                return
            self._fail(StoppedError("code still runs that was given up; the segment must be built anew"))
        if self.state is SegmentState.DROPPING:
            self._move(self, SegmentState.RUNNING)
        self._out.append(Reply.PROCEED)

    def _close_asked(self, _event: OwnerEvent, _now: float) -> None:
        if self.state is not SegmentState.CLOSED:
            self._move(self, SegmentState.CLOSED)
            self._clear()
        self._out.append(Reply.PROCEED)

    def _clear(self) -> None:
        """Clear the queues and the output, and wake all threads."""
        for pool in self.pools:
            pool.clear()
        for thread in self.threads.values():
            thread.pool.to_end -= thread.ends_streams
            thread.ends_streams = False
        self.take_output()
        self._wake(None)

    def _failed(self, event: Failed, _now: float) -> None:
        self._fail(event.error)
        self._out.append(Reply.PROCEED)

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        if self.state not in (SegmentState.FAILED, SegmentState.CLOSED):
            self._move(self, SegmentState.FAILED)
        self._wake(None)

    # Events of threads.

    def _sent(self, event: Sent, now: float) -> None:
        pool = self.pools[self.pool_of[event.position]]
        if self.state in ACTIVE:
            if event.thread != OWNER and not pool.has_room:
                self._out.append(Wait(Place.ROOM, pool.number))
                return
            pool.put(event.position, event.batch, now)
            if pool.at_work < pool.threads:
                self._wake(Place.WORK, pool.number, min(pool.threads, len(event.batch)))
        self._out.append(Reply.PROCEED)

    def _left(self, event: Left, _now: float) -> None:
        if self.state in ACTIVE:
            if event.thread != OWNER and not self._output_has_room:
                self._out.append(Wait(Place.OUTPUT))
                return
            self._output.setdefault(event.operator, []).append(event.batch)
            self._output_rows += len(event.batch)
            if self.threads:  # else the owner empties it at once
                self._output_bytes += event.batch.nbytes
                if self.output_is_worth_taking:
                    self._wake(Place.OWNER)
        self._out.append(Reply.PROCEED)

    def _work_asked(self, event: WorkAsked, now: float) -> None:
        thread = self.threads[event.thread]
        pool = thread.pool
        if thread.item is not None:
            if event.rows:
                pool.piece_rows = next_piece_rows(pool.piece_rows, event.rows, event.seconds)
            pool.to_end -= thread.item.ends_streams
            pool.at_work -= 1
            thread.item = None
            self._move(thread, ThreadState.WAITING)
        if self.state is SegmentState.CLOSED:
            self._out.append(Reply.STOP)
            return
        begin = self._next_item(thread, now) if self.state in ACTIVE else None
        if begin is None:
            if self.is_idle if self.state in ACTIVE else not pool.at_work:
                self._wake(Place.OWNER)
            self._out.append(Wait(Place.WORK, pool.number))
            return
        thread.item = begin.item
        pool.at_work += 1
        self._move(thread, ThreadState.WORKING)
        self._out.append(begin)

    def _next_item(self, thread: Thread, now: float) -> Begin | None:
        pool = thread.pool
        shared = pool.joinable(now)
        if shared is not None:
            shared.threads += 1
            return Begin(WorkItem(pool.number, shared=shared, position=shared.position))
        if pool.rows:
            had_room = pool.has_room
            position, piece, waited = pool.take(now)
            if pool.has_room and not had_room:
                self._wake(Place.ROOM, pool.number)
                self._wake(Place.OWNER)
            step = self._steps[position]
            if not pool.shares_rows or step.logic is None:
                return Begin(WorkItem(pool.number, [(position, piece)], len(piece), position=position), waited)
            shared = SharedRows(position, step, step.logic, piece)
            pool.shared.append(shared)
            return Begin(WorkItem(pool.number, shared=shared, position=position), waited)
        if thread.ends_streams:
            thread.ends_streams = False
            return Begin(WorkItem(pool.number, ends_streams=True))
        return None

    def _part_ended(self, event: PartEnded, now: float) -> None:
        shared = event.shared
        shared.threads -= 1
        if not shared.threads:
            self.threads[event.thread].pool.shared.remove(shared)
            self._out.append(Reply.SETTLE_ALL)
            return
        is_due = shared.since is not None and is_overdue(shared.since, now)
        if is_due or shared.since is None:
            shared.since = now
            self._wake(Place.TIMER)
        self._out.append(Reply.SETTLE if is_due else Reply.PROCEED)

    def _thread_ended(self, event: ThreadEnded, _now: float) -> None:
        self._move(self.threads.pop(event.thread), ThreadState.ENDED)
        for hung in self._hung.values():
            hung.discard(event.thread)
        self._out.append(Reply.PROCEED)

    # Time limits.

    def call_started(self, number: int, limit: float, now: float) -> None:
        """A thread calls code that may take `limit` seconds. This and `call_ended` come for every row, and therefore
        not as events; a thread only sets its own deadline."""
        thread = self.threads[number]
        thread.limit, thread.until = limit, now + limit

    def call_ended(self, number: int) -> bool:
        """Return whether the thread still has its item; otherwise it was abandoned, and must end."""
        thread = self.threads[number]
        thread.until = NEVER
        return thread.state is ThreadState.WORKING

    def _tick(self, _event: OwnerEvent, now: float) -> None:
        if self.state is SegmentState.CLOSED:
            self._out.append(Reply.STOP)
            return
        for thread in list(self.threads.values()):
            if now > thread.until and self.state is not SegmentState.FAILED:
                self._abandon(thread, thread.item)
        pauses = [] if self._tick_seconds is None else [self._tick_seconds]
        for pool in self.pools:
            for since in (shared.since for shared in pool.shared if shared.since is not None):
                if is_overdue(since, now):
                    self._wake(Place.WORK, pool.number, 1)
                pauses.append(OVERDUE_SECONDS if is_overdue(since, now) else since + OVERDUE_SECONDS - now)
        self._out.append(Wait(Place.TIMER, seconds=min(pauses, default=None)))

    def _abandon(self, thread: Thread, item: WorkItem | None) -> None:
        """Another thread continues with the item; too many that hang stop the run."""
        if item is None:
            self._impossible("abandon", f"{thread} has no item")
        self._move(thread, ThreadState.ABANDONED)
        thread.until = NEVER
        self._out.append(InterruptCall(thread.number))
        step, hung = self._steps[item.position], self._hung.setdefault(item.position, set())
        hung.add(thread.number)
        if len(hung) > max(self._max_hung, 2 * step.threads):
            self._fail(StoppedError(f"operator '{step.operator}': {len(hung)} calls that took too long still hang"))
            return
        item.lost_seconds += thread.limit
        other = self._new_thread(thread.pool)
        other.item = item
        self._move(other, ThreadState.WORKING)
        self._out.append(StartThread(other.number, thread.pool.number, thread.number, item, thread.limit))


ACTIVE = frozenset({SegmentState.RUNNING, SegmentState.FLUSHING})
"""Threads get items, and batches are queued; otherwise they are dropped."""
_ANY = frozenset(SegmentState)
_FED = frozenset({SegmentState.RUNNING, SegmentState.FAILED, SegmentState.CLOSED})
_FLUSHED = _FED | {SegmentState.FLUSHING}
_WORKING = frozenset({ThreadState.WORKING})

EVENTS: dict[
    type | OwnerEvent,
    tuple[Callable[[SegmentMachine, Any, float], None], frozenset[SegmentState], frozenset[ThreadState] | None],
] = {
    OwnerEvent.START: (SegmentMachine._start, frozenset({SegmentState.RUNNING}), None),
    OwnerEvent.FLUSH: (SegmentMachine._flush_asked, _FLUSHED, None),
    OwnerEvent.DROP: (SegmentMachine._drop_asked, _ANY, None),
    OwnerEvent.CLOSE: (SegmentMachine._close_asked, _ANY, None),
    OwnerEvent.TICK: (SegmentMachine._tick, _ANY, None),
    FeedAsked: (SegmentMachine._feed_asked, _FED, None),
    Failed: (SegmentMachine._failed, _ANY, None),
    Sent: (SegmentMachine._sent, _ANY, None),
    Left: (SegmentMachine._left, _ANY, None),
    WorkAsked: (SegmentMachine._work_asked, _ANY, frozenset({ThreadState.WAITING, ThreadState.WORKING})),
    PartEnded: (SegmentMachine._part_ended, _ANY, _WORKING),
    ThreadEnded: (SegmentMachine._thread_ended, _ANY, frozenset(set(ThreadState) - {ThreadState.ENDED})),
}
"""Per event its handler, and the states of the segment and of its thread in which it may come."""
