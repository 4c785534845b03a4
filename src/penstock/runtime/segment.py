"""Operators that a slot runs as one. Built once per Python worker and kept: threads, and what code opened, live across
batches.

`feed` takes batches in, `emit` gets what leaves, `flush` waits until all that was fed has left or died; `process` is
the same as one generator. A row never disappears: it leaves, is filtered by code that made nothing of it, or becomes a
dead letter. Order is not promised.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.clock import Stopwatch
from penstock.dataflow.logic import Per
from penstock.runtime.batch import Batch, joined_by_schema
from penstock.runtime.dead_letters import AbandonedError, StoppedError, interrupt
from penstock.runtime.passage import EVERY_SECONDS, Passage
from penstock.runtime.steps import ENTRANCE, crews_entered, plan_crews
from penstock.runtime.workers import Crew, Errand, Worker, next_piece_rows, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.runtime.account import Account
    from penstock.runtime.breadcrumbs import Breadcrumbs
    from penstock.runtime.steps import Step


# What left a segment and waits to be taken: bounded, gathered by operator.


MOST_ROWS = 65_536
MOST_BYTES = 64 * 2**20
WORTH_TAKING_ROWS = 4096


class Outbox:
    """Threads put, whoever runs `Segment.process` takes. All methods are called with the segment's lock held."""

    def __init__(self, lock: threading.Lock) -> None:
        self.not_full = threading.Condition(lock)
        self._batches: dict[str, list[Batch]] = {}
        self._rows = 0
        self._nbytes = 0

    @property
    def has_room(self) -> bool:
        return self._rows < MOST_ROWS and self._nbytes < MOST_BYTES

    @property
    def worth_taking(self) -> bool:
        return self._rows >= WORTH_TAKING_ROWS or not self.has_room

    def put(self, operator: str, batch: Batch) -> None:
        self._batches.setdefault(operator, []).append(batch)
        self._rows += len(batch)
        self._nbytes += batch.nbytes

    def take(self) -> dict[str, list[Batch]]:
        """By operator."""
        taken, self._batches = self._batches, {}
        self._rows = self._nbytes = 0
        self.not_full.notify_all()
        return taken


YIELD_SECONDS = 0.02
"""`process` hands out what there is as soon as it is this old, or worth it."""
CLOSING_SECONDS = 5.0
"""How long threads are waited for in the end; one that hangs dies with the process."""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    audit: bool = False
    """Fold ids into bitmaps."""
    emit_dead_letters: bool = False
    """Let dead letters leave as rows, under the name `DEAD_LETTERS`; they are counted in any case."""
    queue_rows: int = 16_384
    queue_bytes: int = 32 * 2**20
    """Of the queue in front of a crew; the last piece put in may go beyond."""
    most_abandoned: int = 64
    """As many threads of one operator may hang at a time, or twice as many as it has: all may meet one stall."""
    crumbs: Breadcrumbs | None = None
    """Given: everything in one thread and row by row, each noted before it is called."""


class Segment:
    """`emit(operator, batch)` is called by whichever thread made the batch; it may block."""

    def __init__(
        self,
        steps: Sequence[Step],
        options: SegmentOptions = SegmentOptions(),  # noqa: B008 - frozen
        emit: Callable[[str, Batch], None] | None = None,
    ) -> None:
        self._options = options
        self._emit = emit
        self._steps = steps
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """For whoever feeds or flushes: there is room again or much output, all is done, or something failed."""
        self._outbox = Outbox(self._lock)
        plans = plan_crews(steps, alone=options.crumbs is not None)
        self._crews = [Crew(plan, steps, self._lock, options.queue_rows, options.queue_bytes) for plan in plans]
        crew_of = {position: number for number, plan in enumerate(plans) for position in plan.positions}
        self._crew_of = crew_of
        self._entered = crews_entered(steps, crew_of)
        self._passage = Passage(
            steps,
            crew_of,
            self._hand_over,
            self._let_out,
            audit=options.audit,
            emit_dead_letters=options.emit_dead_letters,
            crumbs=options.crumbs,
        )
        over_frames = [at for at, step in enumerate(steps) if step.logic and step.logic.per is Per.MAP_IN_PANDAS]
        self._to_finish = sorted({crew_of[position] for position in over_frames})
        """Crews with code over frames; senders come before their readers."""
        self._failure: BaseException | None = None
        self._dropping = False
        """What is under way belongs to a call of `process` that was given up."""
        self._closing = threading.Event()
        self._workers: dict[Worker, threading.Thread] = {}
        self._hanging: dict[int, list[threading.Thread]] = {}  # by step
        limits = [step.logic.timeout_seconds for step in steps if step.logic and step.logic.timeout_seconds]
        own_threads = limits or len(plans) > 1 or any(plan.threads > 1 for plan in plans)
        opened_for_many = emit is not None and any(step.logic and step.logic.open for step in steps)
        self._straight = None if own_threads or opened_for_many else Worker()
        """The caller's own thread does everything: there is nothing to overlap, and no call to give up. Unless several
        threads may feed and code opens something, which belongs to the thread that opened it."""
        self._per_row = any(step.logic is not None and step.logic.per is Per.ROW for step in steps)
        self._piece_rows = 1
        if self._straight is None:
            for number, crew in enumerate(self._crews):
                for _ in range(crew.threads):
                    self._start(Worker(number))
        self._watch = threading.Thread(target=self._keep_watch, args=(min(limits),), daemon=True) if limits else None
        if self._watch is not None:
            self._watch.start()

    def feed(self, batch: Batch, entrance: int = ENTRANCE) -> None:
        """Takes a batch in; blocks while queues are full. One thread at a time."""
        if self._straight is not None:
            self._raise_failure()
            self._go_straight(batch, entrance, self._straight)
            return
        with self._lock:
            self._changed.wait_for(lambda: self._given_up or self._has_room(entrance))
        self._raise_failure()
        self._passage.enter(entrance, batch, None)

    def flush(self) -> None:
        """Until all that was fed has left or died. Code over frames ends, and is called anew for what comes next. Feed
        nothing at the same time."""
        self._wait_until_idle()
        for number in self._to_finish:
            self._finish(number)
            self._wait_until_idle()
        self.sweep_crumbs()

    def process(self, batches: Iterable[Batch]) -> Iterator[tuple[str, Batch]]:
        """What leaves, by operator, while `batches` are still being read. Only of a segment without `emit`."""
        return self.process_entrances((ENTRANCE, batch) for batch in batches)

    def process_entrances(self, batches: Iterable[tuple[int, Batch]]) -> Iterator[tuple[str, Batch]]:
        """The same for batches that each name the entrance they take."""
        if self._emit is not None:
            raise ValueError("a segment with emit is fed and flushed")
        finished = False
        try:
            for entrance, batch in batches:
                if self._straight is None:
                    yield from self._leaving(partial(self._has_room, entrance))
                self.feed(batch, entrance)
                if self._straight is not None:
                    yield from self._leaving(lambda: True)
            yield from self._leaving(lambda: self._idle)
            for number in self._to_finish:
                self._finish(number)
                yield from self._leaving(lambda: self._idle)
            self.sweep_crumbs()
            finished = True
        finally:
            if not finished:
                self._drop()

    def take_account(self) -> Account:
        """What was counted since it was last taken."""
        return self._passage.take_account()

    def close(self) -> None:
        """Ends its threads and what code opened in them; raises what that raises."""
        known = self._failure
        self._closing.set()
        with self._lock:
            self._dropping = True
            self._empty_queues()
            self._wake_all()
        watch = Stopwatch()
        for thread in [*self._workers.values(), *([self._watch] if self._watch is not None else [])]:
            thread.join(max(0.0, CLOSING_SECONDS - watch.seconds()))
        if self._straight is not None:
            self._straight.close()
        if self._options.crumbs is not None:
            self._options.crumbs.close()
        if self._failure is not known:
            self._raise_failure()

    # -- what one thread does ------------------------------------------------------------------------------------

    def _go_straight(self, batch: Batch, entrance: int, worker: Worker) -> None:
        """Code per row gets pieces, so that between them it is seen how fast the core is."""
        start, size = 0, len(batch)
        try:
            while start < size:
                stop = min(size, start + self._piece_rows) if self._per_row else size
                piece = batch if stop - start == size else batch.slice(start, stop)
                errand = Errand(0, [], len(piece))
                self._passage.enter(entrance, piece, errand)
                self._passage.carry_out(errand, worker)
                self._piece_rows = next_piece_rows(self._piece_rows, len(piece), errand.busy_seconds, EVERY_SECONDS)
                start = stop
        except BaseException as error:
            self._failure = error
            raise

    def _live(self, worker: Worker) -> None:
        """The life of a thread of a crew. It may begin with an errand that one which was given up on left."""
        try:
            self._work(worker)
        except AbandonedError:
            pass  # another thread has its errand
        except BaseException as error:  # whoever feeds or flushes raises it
            self._fail(error)

    def _work(self, worker: Worker) -> None:
        crew = self._crews[worker.crew]
        try:
            while True:
                errand = worker.errand = worker.errand or self._next_errand(worker)
                if errand is None and worker.to_finish and not self._closing.is_set():
                    self._end_streams(worker)
                    continue
                if errand is None:
                    return
                self._passage.carry_out(errand, worker)
                worker.errand = None
                with self._lock:
                    crew.done(errand.rows_taken, errand.busy_seconds)
                    if self._dropping or self._idle:
                        self._changed.notify_all()
        finally:
            worker.close()

    def _next_errand(self, worker: Worker) -> Errand | None:
        """None: no more will come, for now (`to_finish`) or for ever."""
        crew = self._crews[worker.crew]
        with self._lock:
            while True:
                crew.wait_for_work(lambda: worker.to_finish or self._closing.is_set())
                if self._closing.is_set() or not crew.has_work:
                    return None
                shared = crew.next_shared()
                if shared is not None:
                    return share_of(shared, worker.crew)
                # what there was to share may be over by now: whoever ends it does not hold this lock
                if crew.rows:
                    break
            was_full = not crew.has_room
            position, piece, waited = crew.take()
            shared = crew.share(position, piece)
            if was_full and crew.has_room:
                self._changed.notify_all()
        self._passage.waited(position, waited)
        return Errand(worker.crew, [(position, piece)], len(piece)) if shared is None else share_of(shared, worker.crew)

    def _finish(self, number: int) -> None:
        """Asks all threads of a crew to end their streams; the caller's own does so at once."""
        self._raise_failure()
        if self._straight is not None:
            self._passage.finish(Errand(number, [], 0), self._straight)
            return
        with self._lock:
            crew = self._crews[number]
            for worker in self._workers:
                if worker.crew == number:
                    worker.to_finish = True
                    crew.to_finish += 1
            crew.not_empty.notify_all()

    def _end_streams(self, worker: Worker) -> None:
        """What comes out of them is an errand as others are: if a call of it is given up, the heir goes on."""
        crew, errand = self._crews[worker.crew], Errand(worker.crew, [], 0)
        with self._lock:
            crew.at_work += 1
        worker.errand = errand
        self._passage.finish(errand, worker)
        worker.errand = None
        with self._lock:
            crew.done(errand.rows, errand.busy_seconds)
            worker.to_finish = False
            crew.to_finish -= 1
            self._changed.notify_all()

    def _hand_over(self, position: int, batch: Batch, may_wait: bool) -> None:
        crew = self._crews[self._crew_of[position]]
        with self._lock:
            if may_wait:
                crew.not_full.wait_for(lambda: crew.has_room or self._given_up)
            if not self._given_up:
                crew.put(position, batch)

    def _let_out(self, operator: str, batch: Batch, may_wait: bool) -> None:
        if self._emit is not None:
            self._emit(operator, batch)
            return
        with self._lock:
            if may_wait and self._straight is None:
                self._outbox.not_full.wait_for(lambda: self._outbox.has_room or self._given_up)
            if not self._given_up:
                self._outbox.put(operator, batch)
                if self._outbox.worth_taking:
                    self._changed.notify_all()

    # -- what concerns all threads (conditions are asked with the lock held) ---------------------------------------

    @property
    def _idle(self) -> bool:
        return all(crew.idle for crew in self._crews)

    @property
    def _nobody_works(self) -> bool:
        return not any(crew.at_work for crew in self._crews)

    @property
    def _given_up(self) -> bool:
        return self._dropping or self._failure is not None

    def _has_room(self, entrance: int) -> bool:
        return all(self._crews[number].has_room for number in self._entered[entrance])

    def _leaving(self, ready: Callable[[], bool]) -> Iterator[tuple[str, Batch]]:
        """What leaves until `ready`."""
        over = False
        while not over:
            with self._lock:
                self._changed.wait_for(lambda: ready() or self._given_up or self._outbox.worth_taking, YIELD_SECONDS)
                over = ready()
                small = over and not self._outbox.worth_taking and not self._idle
                taken = {} if small else self._outbox.take()
            self._raise_failure()
            for operator, batches in taken.items():
                yield from ((operator, batch) for batch in joined_by_schema(batches))

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._wake_all()

    def _wait_until_idle(self) -> None:
        with self._lock:
            self._changed.wait_for(lambda: self._given_up or self._idle)
        self._raise_failure()

    def sweep_crumbs(self) -> None:
        """Nobody died: there is nothing to find."""
        if self._options.crumbs is not None:
            self._options.crumbs.sweep()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake_all(self) -> None:
        for crew in self._crews:
            crew.not_empty.notify_all()
            crew.not_full.notify_all()
        self._outbox.not_full.notify_all()
        self._changed.notify_all()

    def _drop(self) -> None:
        """Forgets what is under way: nobody wants it any more."""
        with self._lock:
            self._dropping = True
            self._empty_queues()
            self._wake_all()
            ended = self._changed.wait_for(lambda: self._failure is not None or self._nobody_works, CLOSING_SECONDS)
            if not ended:
                self._failure = StoppedError("code still runs that was given up; the segment must be built anew")
            self._empty_queues()
            self._outbox.take()
            for worker in [*self._workers, *([self._straight] if self._straight is not None else [])]:
                worker.drop_streams()
            self._dropping = False
        self.take_account()

    def _empty_queues(self) -> None:
        for crew in self._crews:
            crew.drop()

    # -- time limits ---------------------------------------------------------------------------------------------

    def _start(self, worker: Worker) -> None:
        first = self._steps[min(self._crews[worker.crew].positions)].operator
        thread = threading.Thread(target=self._live, args=(worker,), daemon=True, name=f"penstock {first}")
        self._workers[worker] = thread
        thread.start()

    def _keep_watch(self, shortest: float) -> None:
        """Threads whose call takes too long are given up on; others go on with what they had."""
        try:
            while not self._closing.wait(min(1.0, max(0.002, shortest / 10))):
                for worker in list(self._workers):
                    heir = worker.abandon_if_late()
                    if heir is not None and heir.errand is not None:
                        self._replace(worker, heir, heir.errand.position)
        except BaseException as error:  # whoever feeds or flushes raises it
            self._fail(error)

    def _replace(self, worker: Worker, heir: Worker, position: int) -> None:
        with self._lock:
            thread = self._workers.pop(worker)
        interrupt(thread)
        step, others = self._steps[position], self._hanging.get(position, [])
        hanging = self._hanging[position] = [*(other for other in others if other.is_alive()), thread]
        if len(hanging) > max(self._options.most_abandoned, 2 * step.threads):
            raise StoppedError(f"operator '{step.operator}': {len(hanging)} calls that took too long still hang")
        with self._lock:
            self._start(heir)
