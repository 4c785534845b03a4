"""Operators that a slot runs as one. Built once per Python worker and kept: threads, and what code opened, live across
batches.

`feed` takes batches in, `emit` gets what leaves, `flush` waits until all that was fed has left or died; `process` is
the same as one generator. A row never disappears: it leaves, is filtered by code that made nothing of it, or becomes a
dead letter. Order is not promised.

One batch, from entering to leaving: `Segment.feed` routes it (`steps.Router`) to the queue of a pool
(`segment_states.SegmentMachine`); a thread of the pool begins it as an item, calls the code (`code_calls`, with
`frame_calls` for pandas and Arrow), counts the outcome (`account`), and routes that again, until it leaves.

This module owns the threads and the one lock. Under it `_act` brings each event to the state machine and carries out
the instructions that come back.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, thread_cpu_seconds
from penstock.dataflow.logic import Per
from penstock.runtime import segment_states as st
from penstock.runtime.account import Account, IdBitmaps
from penstock.runtime.batch import Batch, joined_by_schema
from penstock.runtime.call_sampler import CallSampler, Samples, sampling_cost
from penstock.runtime.code_calls import (
    ColumnCall,
    Rows,
    SharedRowsCall,
    begin_call,
    one_or_several,
    to_columns,
    to_named_rows,
)
from penstock.runtime.cpu_speed import EVERY_SECONDS, SpeedProbe
from penstock.runtime.dead_letters import (
    DEAD_LETTERS,
    INTERRUPTIONS,
    AbandonedError,
    StoppedError,
    as_batch,
    error_line,
    forget_interrupt,
    interrupt,
)
from penstock.runtime.frame_calls import FrameStream
from penstock.runtime.steps import ENTRANCE, Router, StepRoute, next_piece_rows, plan_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from penstock.dataflow.logic import Logic
    from penstock.runtime.call_journal import CallJournal
    from penstock.runtime.code_calls import Outcome, RowCall
    from penstock.runtime.frame_calls import Yielded
    from penstock.runtime.steps import Step

YIELD_SECONDS = 0.02
"""`process` hands out what there is as soon as it is this old, or worth it."""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    audit: bool = False
    """Fold ids into bitmaps."""
    emit_dead_letters: bool = False
    """Let dead letters leave as rows, under the name `DEAD_LETTERS`; they are counted in any case."""
    queue_rows: int = 16_384
    queue_bytes: int = 32 * 2**20
    """Limits of the queue in front of a pool; the last piece put in may exceed them."""
    max_hung: int = 64
    """Max hung calls per operator: the larger of this and twice its threads, since all may meet one stall."""
    journal: CallJournal | None = None
    """If given, everything is done in one thread and row by row, and each call is noted before it is made."""
    sample_every: int | None = None
    """Measure one row in so many; None: none. Code over batches is measured whole."""


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
        plans = plan_pools(steps, alone=options.journal is not None)
        self._with_code = {at: (step, step.logic) for at, step in enumerate(steps) if step.logic is not None}
        logics = [logic for _, logic in self._with_code.values()]
        overlaps = len(plans) > 1 or any(plan.threads > 1 for plan in plans)
        opened_for_many = emit is not None and any(logic.open for logic in logics)
        self._is_direct = not (overlaps or opened_for_many or any(logic.timeout_seconds for logic in logics))
        """The caller's own thread does everything: there is nothing to overlap, and no call to give up. Not if several
        threads may feed and code opens something, which belongs to the thread that opened it."""
        if self._is_direct:
            plans = [replace(plan, threads=0) for plan in plans]
        self._is_per_row = any(logic.per is Per.ROW for logic in logics)
        self._machine = st.SegmentMachine(
            steps, plans, queue_rows=options.queue_rows, queue_bytes=options.queue_bytes, max_hung=options.max_hung
        )
        self._router = Router(steps, self._machine.pool_of)
        self._lock = threading.Lock()
        """Held to change anything below, but never while code of a user or `emit` is called."""
        self._conditions = defaultdict[tuple[st.Place, int], threading.Condition](
            partial(threading.Condition, self._lock)
        )
        self._watch = Stopwatch()
        self._account = self._new_account()
        self._rows_made: dict[int, int] = defaultdict(int)
        self._code = {st.OWNER: ThreadCode(st.OWNER, options.sample_every)}
        """Opened code per thread."""
        self._threads: dict[int, threading.Thread] = {}
        self._probe = SpeedProbe()
        self._piece_rows = 1
        """Rows that the caller's own thread processes at a time."""
        self._timer = threading.Thread(target=self._keep_time, daemon=True) if self._machine.needs_timer else None
        self._tell(st.OwnerEvent.START)
        if self._timer is not None:
            self._timer.start()

    def feed(self, batch: Batch, entrance: int = ENTRANCE) -> None:
        """Take a batch in; block while queues are full. One thread at a time."""
        self._ask(st.FeedAsked(entrance))
        self._enter(batch, entrance)

    def flush(self) -> None:
        """Wait until every row that was fed is processed. Code over frames ends, and is called anew for the next batch.
        Feed nothing at the same time."""
        while isinstance(begin := self._ask(st.OwnerEvent.FLUSH), st.Begin):
            self._process_here(begin.item)
        self.clear_journal()

    def process(self, batches: Iterable[Batch]) -> Iterator[tuple[str, Batch]]:
        """Yield what leaves, by operator, while `batches` are still being read. Only of a segment without `emit`."""
        return self.process_entrances((ENTRANCE, batch) for batch in batches)

    def process_entrances(self, batches: Iterable[tuple[int, Batch]]) -> Iterator[tuple[str, Batch]]:
        """Do the same for batches that each name the entrance they take."""
        if self._emit is not None:
            raise ValueError("a segment with emit is fed and flushed")
        finished = False
        try:
            for entrance, batch in batches:
                yield from self._leaving(st.FeedAsked(entrance))
                self._enter(batch, entrance)
            yield from self._leaving(st.OwnerEvent.FLUSH)
            self.clear_journal()
            finished = True
        finally:
            if not finished:
                self._drop()

    def take_account(self) -> Account:
        """Return the counts since the last call."""
        import psutil  # noqa: PLC0415 - belongs to the extra

        with self._lock:
            account, self._account = self._account, self._new_account()
        account.pieces_of_work, account.pieces_seconds = self._probe.take()
        if self._options.sample_every is not None:
            rows = sum(
                account.count(step.operator).rows_in
                for step, logic in self._with_code.values()
                if logic.per is Per.ROW and step.operator in account.operators
            )
            account.sampling_seconds = rows * sampling_cost(self._options.sample_every)
        account.memory_bytes = psutil.Process().memory_info().rss
        return account

    def close(self) -> None:
        """End the threads and what code opened in them; raise what that raises."""
        known = self._machine.failure
        self._tell(st.OwnerEvent.CLOSE)
        watch = Stopwatch()
        for thread in [*self._threads.values(), *([self._timer] if self._timer is not None else [])]:
            thread.join(max(0.0, st.CLOSING_SECONDS - watch.seconds()))
        self._code[st.OWNER].close()
        if self._options.journal is not None:
            self._options.journal.close()
        if self._machine.failure is not None and self._machine.failure is not known:
            raise self._machine.failure

    def clear_journal(self) -> None:
        """Clear the note of the last call: it killed no worker."""
        if self._options.journal is not None:
            self._options.journal.clear()

    def _new_account(self) -> Account:
        return Account(ids=IdBitmaps() if self._options.audit else None)

    def _leaving(self, event: st.Event) -> Iterator[tuple[str, Batch]]:
        """Yield what leaves until `event` may proceed."""
        is_over = False
        while not is_over:
            taken: dict[str, list[Batch]] = {}
            with self._lock:
                answer = self._act(event)
                if isinstance(answer, st.Wait) and not self._machine.output_is_worth_taking:
                    self._conditions[answer.place, answer.pool].wait(YIELD_SECONDS)
                    answer = self._act(event)
                is_over = answer is st.Reply.PROCEED
                is_fed = is_over and event is not st.OwnerEvent.FLUSH and not self._is_direct
                if not is_fed or self._machine.output_is_worth_taking:
                    taken, wake = self._machine.take_output()
                    self._wake(wake)
            if isinstance(answer, st.Reject):
                raise answer.error
            if isinstance(answer, st.Begin):
                self._process_here(answer.item)
            for operator, batches in taken.items():
                yield from ((operator, batch) for batch in joined_by_schema(batches))

    def _drop(self) -> None:
        """Drop all batches that are queued or being processed."""
        self._ask(st.OwnerEvent.DROP)
        for code in self._code.values():
            code.drop_streams()
        self.take_account()

    # -- events and instructions ---------------------------------------------------------------------------------

    def _act(self, event: st.Event) -> st.Answer:
        """Bring an event to the state machine and carry out its instructions; return its answer. Needs the lock."""
        answer: st.Answer = st.Reply.PROCEED
        for instruction in self._machine.handle(event, self._watch.seconds()):
            match instruction:
                case st.Wake():
                    self._wake(instruction)
                case st.StartThread():
                    self._start(instruction)
                case st.InterruptCall(number):
                    interrupt(self._threads[number])
                case _:
                    answer = instruction
        return answer

    def _wake(self, wake: st.Wake) -> None:
        places = self._conditions if wake.place is None else [(wake.place, wake.pool)]
        for place in places:
            if place not in self._conditions:
                continue  # no thread has waited there
            if wake.count is None:
                self._conditions[place].notify_all()
            else:
                self._conditions[place].notify(wake.count)

    def _tell(self, event: st.Event) -> st.Answer:
        """Bring an event that need not wait."""
        with self._lock:
            return self._act(event)

    def _ask(self, event: st.Event) -> st.Answer:
        """Bring an event again and again until it need not wait."""
        with self._lock:
            while isinstance(answer := self._act(event), st.Wait):
                self._conditions[answer.place, answer.pool].wait(answer.seconds)
        if isinstance(answer, st.Reject):
            raise answer.error
        return answer

    def _start(self, start: st.StartThread) -> None:
        code, stuck = ThreadCode(start.thread, self._options.sample_every), None
        if start.item is not None and start.item.call is not None:
            del self._threads[start.replaces]
            stuck = self._code.pop(start.replaces).pass_on(code, start.item.call.operator)
            if stuck is not None:
                interrupt(stuck.thread)
        first = self._steps[min(at for at, pool in self._machine.pool_of.items() if pool == start.pool)].operator
        thread = threading.Thread(target=self._live, args=(start, code, stuck), daemon=True, name=f"penstock {first}")
        self._code[start.thread] = code
        self._threads[start.thread] = thread
        thread.start()

    def _live(self, start: st.StartThread, code: ThreadCode, stuck: FrameStream | None) -> None:
        """Live as a thread of a pool."""
        item = start.item
        try:
            try:
                if item is not None and item.call is not None:
                    error: BaseException = TimeoutError(f"took longer than {start.limit:g} s")
                    item.call.put_aside(error if stuck is None else stuck.failure(error))
                    self._process(item, code)
                while isinstance(begin := self._ask(st.WorkAsked(code.thread, *_effort(item))), st.Begin):
                    item = begin.item
                    if begin.waited is not None:
                        with self._lock:
                            self._account.waited(self._steps[item.position].operator, begin.waited)
                    self._process(item, code)
            finally:
                code.close()
        except AbandonedError:
            pass  # another thread has its item
        except BaseException as error:  # raised by the next feed or flush
            self._tell(st.Failed(error))
        finally:
            self._tell(st.ThreadEnded(code.thread))

    def _keep_time(self) -> None:
        try:
            self._ask(st.OwnerEvent.TICK)
        except BaseException as error:  # raised by the next feed or flush
            self._tell(st.Failed(error))

    # -- processing a piece -------------------------------------------------------------------------

    def _enter(self, batch: Batch, entrance: int) -> None:
        if not self._is_direct:
            self._forward(self._route_in(batch, entrance, None), st.OWNER)
            return
        # code per row gets pieces, so that between them it is seen how fast the core is
        start, size = 0, len(batch)
        while start < size:
            stop = min(size, start + self._piece_rows) if self._is_per_row else size
            piece = batch if stop - start == size else batch.slice(start, stop)
            route = self._route_in(piece, entrance, 0)
            item = st.WorkItem(0, route.own_pool, len(piece))
            self._forward(route, st.OWNER)
            self._process_here(item)
            self._piece_rows = next_piece_rows(self._piece_rows, len(piece), item.busy_seconds, EVERY_SECONDS)
            start = stop

    def _route_in(self, batch: Batch, entrance: int, pool: int | None) -> StepRoute:
        with self._lock:
            self._account.entered(len(batch), batch.nbytes)
            first = self._number_rows(entrance, len(batch))
        return self._router.add(StepRoute(), entrance, batch, pool, first)

    def _number_rows(self, position: int, rows: int) -> int:
        first = self._rows_made[position]
        self._rows_made[position] = first + rows
        return first

    def _process_here(self, item: st.WorkItem) -> None:
        try:
            self._process(item, self._code[st.OWNER])
        except BaseException as error:
            self._tell(st.Failed(error))
            raise

    def _process(self, item: st.WorkItem, code: ThreadCode) -> None:
        """Call code until the item is done in its pool. If it ends streams, code over frames then ends, step by step;
        the rows that it held back are processed too, without ids."""
        if item.shared is not None and item.call is None:
            item.call = SharedRowsCall(item.shared)
        self._run_agenda(item, code)
        for position, (step, logic) in self._with_code.items() if item.ends_streams else ():
            if logic.per is Per.MAP_IN_PANDAS and self._machine.pool_of[position] == item.pool:
                frames, pieces = code.end_stream(step.operator, logic)
                if frames or pieces:
                    outcome = code.last_over_frames[step.operator].held_back(frames, pieces)
                    self._send(position, outcome, 0, 0.0, 0.0, item, code)
                    self._run_agenda(item, code)

    def _run_agenda(self, item: st.WorkItem, code: ThreadCode) -> None:
        while item.call is not None or item.agenda:
            self._probe.look()
            watch, cpu = Stopwatch(), thread_cpu_seconds()
            call = item.call or self._begin(item, code)
            function = code.function(call.operator, call.logic, partial(self._timed, code.thread))
            call.run(function, code.arguments(call.operator, call.logic))
            if isinstance(call, SharedRowsCall):
                reply = self._tell(st.PartEnded(code.thread, call.shared))
                outcome = call.outcome(settles=reply is not st.Reply.PROCEED, is_last=reply is st.Reply.SETTLE_ALL)
                item.rows = call.size
            else:
                outcome = call.outcome()
            if isinstance(outcome.made, Rows) and len(outcome.made):
                as_wanted = to_columns if item.position in self._router.wants_columns else to_named_rows
                made, misfits = as_wanted(call.operator, call.logic, outcome.made)
                outcome = replace(outcome, made=made, dead_letters=[*outcome.dead_letters, *misfits])
            item.call = None
            busy, used = watch.seconds() + item.lost_seconds, thread_cpu_seconds() - cpu
            item.busy_seconds += busy
            if self._options.sample_every is not None:
                is_per_row = call.logic.per is Per.ROW
                samples = code.take_samples(call.operator) if is_per_row else Samples(call.size, busy, used)
                with self._lock:
                    self._account.sampled(call.operator, *samples)
            self._send(item.position, outcome, call.size, busy, used, item, code)

    def _begin(self, item: st.WorkItem, code: ThreadCode) -> RowCall | ColumnCall | SharedRowsCall:
        item.position, piece = item.agenda.pop()
        item.lost_seconds = 0.0
        step, logic = self._with_code[item.position]
        item.call = begin_call(step, logic, piece, self._options.journal)
        if isinstance(item.call, ColumnCall) and logic.per is Per.MAP_IN_PANDAS:
            code.last_over_frames[step.operator] = item.call
        return item.call

    def _timed(self, thread: int, limit: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call code that has a time limit. Only in here is the thread interrupted; when it is, another has its item."""
        self._machine.call_started(thread, limit, self._watch.seconds())
        try:
            return function(*arguments)
        finally:
            with self._lock:
                has_item = self._machine.call_ended(thread)
            if not has_item:
                forget_interrupt()
                raise AbandonedError

    def _send(
        self, position: int, outcome: Outcome, rows: int, busy: float, cpu: float, item: st.WorkItem, code: ThreadCode
    ) -> None:
        """Count the outcome of `rows` at a step, and send its output to the steps that read it."""
        with self._lock:
            self._account.worked(self._steps[position].operator, rows, outcome, busy, cpu)
            first = self._number_rows(position, len(outcome.made))
        if outcome.dead_letters and self._options.emit_dead_letters:
            self._let_out(DEAD_LETTERS, as_batch(outcome.dead_letters), code.thread)
        route = StepRoute(own_pool=item.agenda)
        self._forward(self._router.add(route, position, outcome.made, item.pool, first), code.thread)

    def _forward(self, route: StepRoute, thread: int) -> None:
        for operator, batch in route.leaving:
            self._let_out(operator, batch, thread)
        if route.counts:
            with self._lock:
                for count in route.counts:
                    count(self._account)
        for position, batch in route.other_pools:
            self._ask(st.Sent(position, batch, thread))

    def _let_out(self, operator: str, batch: Batch, thread: int) -> None:
        if self._emit is not None:
            self._emit(operator, batch)
        else:
            self._ask(st.Left(operator, batch, thread))


def _effort(item: st.WorkItem | None) -> tuple[int, float]:
    return (0, 0.0) if item is None else (item.rows, item.busy_seconds)


class ThreadCode:
    """The handles and streams that code has opened in one thread."""

    def __init__(self, thread: int, sample_every: int | None = None) -> None:
        self.thread = thread
        self._sample_every = sample_every
        self._samplers: dict[str, CallSampler] = {}
        self._handles: dict[str, tuple[Logic, Any]] = {}
        self._streams: dict[str, FrameStream] = {}
        self.last_over_frames: dict[str, ColumnCall] = {}
        """The last call of code over frames, by operator: what that holds back comes out as that call's would."""

    def arguments(self, operator: str, logic: Logic) -> tuple[Any, ...]:
        """Return what the code gets after its rows: what `open` made for this thread, if there is an `open`."""
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

    def function(self, operator: str, logic: Logic, timed: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to call. If it has a time limit, `timed(limit, function, ...)` calls the user's code."""
        limit = logic.timeout_seconds
        call = _called if limit is None else partial(timed, limit)
        if logic.per is Per.MAP_IN_PANDAS:
            return partial(self._give, operator, logic, call)
        if logic.per is not Per.ROW:
            return logic.function if limit is None else partial(call, logic.function)
        function = logic.function
        if self._sample_every is not None:
            if operator not in self._samplers:
                self._samplers[operator] = CallSampler(function, self._sample_every)
            function = self._samplers[operator].call
        return function if limit is None else partial(call, _rows_of, function)

    def take_samples(self, operator: str) -> Samples:
        """Return what was measured of an operator's calls in this thread since the last time."""
        return self._samplers[operator].take() if operator in self._samplers else Samples(0, 0.0, 0.0)

    def _give(
        self, operator: str, logic: Logic, call: Callable[..., Any], frame: pd.DataFrame, piece: Batch
    ) -> Yielded:
        """Give code over frames one more; if it returned or raised, it is called anew."""
        stream = self._streams.get(operator)
        if stream is None or stream.over:
            stream = self._streams[operator] = FrameStream(operator, logic.function, self.arguments(operator, logic))
        return stream.give(frame, piece, call)

    def end_stream(self, operator: str, logic: Logic) -> tuple[list[pd.DataFrame], list[Batch]]:
        """Return what code over frames still yields when there are no more, and the pieces of which nothing came."""
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

    def pass_on(self, other: ThreadCode, operator: str) -> FrameStream | None:
        """Prepare `other` to continue when this thread hangs in `operator`; return the stream that hangs.

        The other thread gets the streams that wait for frames, so that the rows they hold back are not lost, and the
        handles opened for them. All other handles stay here."""
        stuck = self._streams.pop(operator, None)
        other.last_over_frames = self.last_over_frames
        other._streams, self._streams = self._streams, {}
        for name in other._streams.keys() & self._handles.keys():
            other._handles[name] = self._handles.pop(name)
        return stuck

    def close(self) -> None:
        """Close all streams and handles; called in the thread that opened them."""
        self.drop_streams()
        while self._handles:
            _, (logic, handle) = self._handles.popitem()
            if logic.close is not None:
                logic.close(handle)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _rows_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """A generator's code runs while its rows are taken: that belongs to its time limit."""
    return one_or_several(function(*arguments))
