"""One generation of one bundle, inside its process: links, a segment between them, sources, staging.

A thread reads each input, one runs the sources, one stages epochs; what the segment makes is dealt to the links by
whichever thread made it. Anything that goes wrong with a link ends the generation, and the process waits for the next.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.clock import Stopwatch, cpu_seconds, now, pause, thread_cpu_seconds
from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import GoneError, LogError
from penstock.connectors.staged_sinks import EpochName, StagedSinks
from penstock.connectors.topic_feed import TopicFeed
from penstock.engines.placed import wire
from penstock.engines.placed.bundle.keyed_segment import KeyedSegment
from penstock.engines.placed.bundle.links import InLink, Linger, OutLink
from penstock.engines.placed.flow.bundle import SayBroken, SayLinked, Stage, Window
from penstock.engines.placed.flow.routing import Dealer
from penstock.engines.placed.messages import (
    LINK_HELLOS,
    BrokenReport,
    FirstReport,
    GaveUpReport,
    LinkedReport,
    LinkHello,
    StagedReport,
)
from penstock.runtime.account import Histogram
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.segment_states import CLOSING_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.connectors.topic_feed import Messages
    from penstock.dataflow.load import Load
    from penstock.engines.placed.bundle_plan import BundleCode
    from penstock.engines.placed.flow.bundle import Act, BundleFlow
    from penstock.engines.placed.flow.layout import Channel
    from penstock.engines.placed.messages import GenerationOrder, Report
    from penstock.engines.placed.wire import Connection, Credentials
    from penstock.runtime.account import Account
    from penstock.runtime.call_journal import CallJournal


# Share of an epoch's tuples with a field above a threshold, counted in the bundles when they come to a sink.


Watched = dict[int, tuple[str, float]]
"""A field and a threshold, by a number of whoever asked."""


class WatchedCounts:
    """Of one bundle since it was last asked. A field counts at the first of its sinks that has it."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._counts: dict[int, tuple[str, int, int]] = {}

    def take_in(self, sink: str, rows: pa.RecordBatch) -> None:
        for number, (field, threshold) in self.watched.items():
            if field not in rows.schema.names:
                continue
            at, above, total = self._counts.get(number, (sink, 0, 0))
            if at == sink:
                self._counts[number] = (sink, above + _above(rows.column(field), threshold), total + rows.num_rows)

    def cut(self) -> list[tuple[int, int, int]]:
        """(number, above, total); counting begins anew."""
        counts, self._counts = self._counts, {}
        return [(number, above, total) for number, (_, above, total) in counts.items()]


def _above(column: pa.Array, threshold: float) -> int:
    """A column that is not of numbers is above nothing."""
    try:
        numbers = pc.cast(column, pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return 0
    return int(pc.sum(pc.greater(numbers, threshold)).as_py() or 0)


def shares_of(counts: Iterable[tuple[int, int, int]], watched: Watched) -> Mapping[int, float]:
    """share = above / total over all bundles, of what is watched and came at all."""
    sums: dict[int, tuple[int, int]] = {}
    for number, above, total in counts:
        known = sums.get(number, (0, 0))
        sums[number] = (known[0] + above, known[1] + total)
    return {number: above / total for number, (above, total) in sums.items() if total and number in watched}


class ProcessCosts:
    """Counts rows that cross to and from other processes, the work of sources and sinks, and the CPU and memory of the
    whole process. Threads of the process add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._crossed: Counter[str] = Counter()
        self._worked: dict[str, list[float]] = {}
        self._cpu = cpu_seconds()
        self._memory_bytes: int | None = None
        """Memory of the process at its first account."""

    def crossed(self, operator: str, rows: int) -> None:
        with self._lock:
            self._crossed[operator] += rows

    def worked(self, operator: str, rows: int, seconds: float, used: float) -> None:
        """Count the work of a source or sink, which no segment counts. `used`: CPU seconds."""
        with self._lock:
            known = self._worked.setdefault(operator, [0, 0.0, 0.0])
            known[0] += rows
            known[1] += seconds
            known[2] += used

    def take_into(self, account: Account) -> None:
        """Add the counts since the last call."""
        with self._lock:
            crossed, self._crossed = self._crossed, Counter()
            worked, self._worked = self._worked, {}
        for operator, rows in crossed.items():
            account.count(operator).crossed += rows
        for operator, (count, seconds, used) in worked.items():
            account.sampled(operator, int(count), seconds, used)
            account.count(operator).busy_seconds += seconds
        before, self._cpu = self._cpu, cpu_seconds()
        account.cpu_seconds = self._cpu - before
        if self._memory_bytes is None:
            self._memory_bytes = account.memory_bytes
        account.held_bytes = max(0, account.memory_bytes - self._memory_bytes)


MOST_SOURCE_ROWS = 1 << 16
SOURCE_SECONDS = 0.01
"""What is due is emitted so often: a batch costs about as much as a hundred rows, whatever it holds."""
QUEUE_ROWS = 128
"""In front of an operator: a fraction of a second of what most do."""
SHOWN_ROWS = 3
VALUE_SCHEMA = pa.schema([("value", pa.int64())])
"""What a load emits: numbers from 0."""


class Generation:
    """`report` sends a report to the conductor; `crash` gets errors that no new generation can mend."""

    def __init__(
        self,
        code: BundleCode,
        order: GenerationOrder,
        credentials: Credentials,
        flow: BundleFlow,
        changed: threading.Condition,
        report: Callable[[Report, bytes], None],
        crash: Callable[[BaseException], None],
        crumbs: CallJournal | None = None,
        watched: Watched | None = None,
    ) -> None:
        self._code, self._order, self._credentials = code, order, credentials
        self._flow, self._changed = flow, changed
        self._report, self._crash = report, crash
        self._closed = threading.Event()
        self._stages: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._outs: dict[Channel, OutLink] = {}
        self._ins: dict[Channel, InLink] = {}
        self._feeding = threading.Lock()
        """Straight segments work in the thread that feeds them: one at a time."""
        self._emitting = threading.Lock()
        """Held by the sources while they emit, and while an epoch is staged."""
        self._dealing = threading.Lock()
        self._addresses = dict(order.outputs)
        self._dealers: dict[str, list[tuple[Dealer, list[Channel]]]] = {}
        for route in order.routes:
            channels = [
                c for t in route.targets for c in self._addresses if (c.stream, c.receiver) == (route.stream, t.bundle)
            ]
            self._dealers.setdefault(route.sender, []).append((Dealer(route), channels))
        self._offsets = {source: order.offsets.get(source, 0) for source in code.sources if source not in code.topics}
        self._feeds = {source: TopicFeed(share, order.offsets) for source, share in code.topics.items()}
        self.limit = order.limit
        self._counts = WatchedCounts(watched or {})
        self._sinks = StagedSinks(code.sinks, EpochName(order.run, order.conductor, order.generation, code.name))
        self._is_end = code.keyed is not None or any(step.delivers for step in code.steps)
        self._has_reported_first = False
        self._shown: list[tuple[str, str]] = []
        self._gone: dict[str, int] = {}
        """Messages of this epoch that retention took unread, by source/topic/partition."""
        self._hops = Histogram()
        self._costs = ProcessCosts()
        self._own_sinks = [step.operator for step in code.steps if step.delivers and step.operator in code.sinks]
        self._receivers = {entrance: code.receivers(entrance) for entrance in code.entrances.values()}
        self._segment = self._make_segment(crumbs)
        self._ending = threading.Thread(target=self._segment.close, daemon=True)
        self._linger: Linger | None = None

    def _make_segment(self, crumbs: CallJournal | None) -> Segment | KeyedSegment:
        order, code = self._order, self._code
        if code.keyed is not None:
            label = f"{order.run}-{order.conductor}-{order.generation}-{code.name}"
            return KeyedSegment(code.keyed, order.checkpoint, label, order.states, order.groups, self._emit)
        steps = [replace(step, threads=order.threads.get(step.operator, step.threads)) for step in code.steps]
        options = SegmentOptions(
            audit=code.audit,
            emit_dead_letters=bool(code.sinks),
            queue_rows=QUEUE_ROWS,
            journal=crumbs,
            sample_every=code.sample_every,
        )
        return Segment(steps, options, self._emit)

    # Beginning and end.

    def start(self, arrived: dict[Channel, Connection]) -> None:
        """Link up; `arrived` are connections of this generation that came before the order did."""
        order = self._order
        acts = self._flow.form(
            order.generation,
            order.epoch,
            order.inputs,
            frozenset(self._addresses),
            has_sources=bool(self._code.sources),
            held=order.held,
        )
        self._sinks.begin(order.epoch + 1)
        self._thread(self._stage_epochs)
        self._act(acts)
        for channel, made in arrived.items():
            self.accept(channel, made)
        self._thread(self._connect)

    def accept(self, channel: Channel, made: Connection) -> None:
        """Somebody connected who sends through `channel`."""
        if channel not in self._order.inputs or channel in self._ins:
            wire.close(made)
            return
        self._ins[channel] = InLink(made)
        with self._changed:
            acts = self._flow.link_up(channel, self._order.generation)
        self._act(acts)
        self._thread(self._read, channel)

    def _connect(self) -> None:
        generation = self._order.generation
        for channel, address in self._addresses.items():
            hello = LINK_HELLOS.encode(LinkHello(generation, channel))
            self._outs[channel] = OutLink(wire.connect(address, self._credentials, hello))
        self._linger = Linger(list(self._outs.values()), self._failed)
        self._linger.start()
        for channel in self._addresses:
            with self._changed:
                acts = self._flow.link_up(channel, generation)
            self._act(acts)

    def _thread(self, work: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            try:
                work(*arguments)
            except BaseException as error:  # the conductor decides what becomes of it
                self._failed(error)

        threading.Thread(target=guarded, daemon=True).start()

    def close(self) -> None:
        """Drop everything; what is under way is not committed and never was."""
        with self._changed:
            if self._closed.is_set():
                return
            self._closed.set()
        self._stages.put(None)
        if self._linger is not None:
            self._linger.stop()
        for made in [*(link.socket for link in self._ins.values()), *(link.socket for link in self._outs.values())]:
            wire.close(made)
        with self._changed:
            self._changed.notify_all()
        # the next generation does not wait for code that hangs
        self._ending.start()

    def wait_until_closed(self) -> None:
        """What code opened is closed: the process may end. Code that hangs is not waited for long."""
        if self._ending.is_alive():
            self._ending.join(CLOSING_SECONDS)

    def break_links(self) -> None:
        for link in list(self._outs.values()):
            wire.close(link.socket)

    def _failed(self, error: BaseException) -> None:
        if self._closed.is_set():
            return
        if isinstance(error, StoppedError):
            self._report(GaveUpReport(self._order.generation, str(error)), b"")
        elif isinstance(error, OSError):
            with self._changed:
                acts = self._flow.link_down(self._order.generation, str(error))
            self._act(acts)
        else:
            self._crash(error)

    def _act(self, acts: Sequence[Act]) -> None:
        for act in acts:
            match act:
                case Stage(epoch):
                    self._stages.put(epoch)
                case SayLinked(generation):
                    self._report(LinkedReport(generation), b"")
                    for source, entrance in self._code.sources.items():
                        run = self._run_topics if source in self._feeds else self._run_source
                        self._thread(run, source, entrance)
                    with self._changed:
                        self._changed.notify_all()
                case SayBroken(generation, reason):
                    self.close()
                    self._report(BrokenReport(generation, reason), b"")

    # Requests while it flows.

    def open_epoch(self, epoch: int, *, hold: bool) -> None:
        with self._changed:
            acts = self._flow.open_epoch(self._order.generation, epoch, hold=hold)
        self._act(acts)

    def watch(self, watched: Watched) -> None:
        """From the next batch on."""
        self._counts.watched = watched

    def go(self) -> None:
        with self._changed:
            self._flow.go(self._order.generation)
            self._changed.notify_all()

    # Tuples.

    def _read(self, channel: Channel) -> None:
        link, entrance = self._ins[channel], self._code.entrances[channel.stream]
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or self._flow.may_read(channel))
            if self._closed.is_set():
                return
            received = link.next()
            if isinstance(received, int):
                with self._changed:
                    acts = self._flow.marker(channel, self._order.generation, received)
                self._act(acts)
                continue
            batch, sent = received
            self._hops.add(np.array([now() - sent]))
            for operator in self._receivers[entrance]:
                self._costs.crossed(operator, len(batch))
            watch = Stopwatch()
            with self._feeding:
                self._segment.feed(batch, entrance)
            link.took(len(batch), watch.seconds())
            self._report_first()

    def _run_source(self, source: str, entrance: int) -> None:
        load, window = self._order.load, Window()
        while not self._closed.is_set():
            with self._emitting:
                behind = self._flow.may_emit and self._emit_due(source, entrance, load, window)
            if not behind:
                self._closed.wait(SOURCE_SECONDS)
            else:
                pause(0)

    def _run_topics(self, source: str, entrance: int) -> None:
        feed, window = self._feeds[source], Window()
        try:
            while not self._closed.is_set():
                try:
                    reads = self._flow.may_emit or not feed.begun
                    watch, cpu = Stopwatch(), thread_cpu_seconds()
                    messages = feed.next(min(window.rows, MOST_SOURCE_ROWS)) if reads else None
                    if messages is not None and messages.rows.num_rows:
                        rows = messages.rows.num_rows
                        self._costs.worked(source, rows, watch.seconds(), thread_cpu_seconds() - cpu)
                except (GoneError, BadInputError, LogError) as error:  # the latter was waited for
                    raise StoppedError(f"source '{source}': {error}") from error
                if messages is None or not self._emit_messages(feed, messages, entrance, window):
                    self._closed.wait(SOURCE_SECONDS)
        finally:
            feed.close()

    def _emit_messages(self, feed: TopicFeed, messages: Messages, entrance: int, window: Window) -> bool:
        """False: an epoch ends here, or sources are held; they are read again."""
        with self._emitting:
            if not self._flow.may_emit or self._closed.is_set():
                return False
            if messages.gone:
                self._gone[messages.key] = self._gone.get(messages.key, 0) + messages.gone
            if messages.rows.num_rows:
                watch = Stopwatch()
                batch = Batch(messages.rows, Marks(due=messages.sent_seconds.to_numpy(zero_copy_only=False)))
                with self._feeding:
                    self._segment.feed(batch, entrance)
                window.took(messages.rows.num_rows, watch.seconds())
                self._report_first()
            feed.took(messages)
        return True

    def _emit_due(self, source: str, entrance: int, load: Load, window: Window) -> bool:
        """What is due by now, as much as a fraction of a second; whether there is more."""
        at = self._offsets[source]
        due = load.due(max(0.0, now() - self._order.began))
        if self.limit is not None:
            due = min(due, self.limit)
        until = min(due, at + min(window.rows, MOST_SOURCE_ROWS))
        if until <= at:
            return False
        watch, cpu = Stopwatch(), thread_cpu_seconds()
        numbers = np.arange(at, until, dtype=np.int64)
        rows = pa.RecordBatch.from_arrays([pa.array(numbers)], schema=VALUE_SCHEMA)
        batch = Batch(rows, Marks(numbers, self._order.began + load.due_seconds(at, until)))
        self._costs.worked(source, until - at, watch.seconds(), thread_cpu_seconds() - cpu)
        watch = Stopwatch()
        with self._feeding:
            self._segment.feed(batch, entrance)
        window.took(until - at, watch.seconds())
        self._offsets[source] = until
        self._report_first()
        return until < due

    def _report_first(self) -> None:
        """Where tuples come to their end: that they do, in this generation."""
        if self._is_end and not self._has_reported_first:
            self._has_reported_first = True
            self._report(FirstReport(self._order.generation), b"")

    def _emit(self, operator: str, batch: Batch) -> None:
        """What left the segment goes to those who read it, and to its files where it is a sink."""
        with self._dealing:
            dealt = [
                (channels[target], part)
                for dealer, channels in self._dealers.get(operator, ())
                for target, part in dealer.deal(batch)
            ]
            if operator in self._code.sinks:
                watch, cpu = Stopwatch(), thread_cpu_seconds()
                self._sinks.take(operator, batch)
                self._costs.worked(operator, len(batch), watch.seconds(), thread_cpu_seconds() - cpu)
                self._counts.take_in(operator, batch.rows)
            if operator in self._code.shown and len(self._shown) < SHOWN_ROWS:
                rows = batch.rows.slice(0, SHOWN_ROWS).to_pylist()
                self._shown += [(operator, json.dumps(row, default=str, ensure_ascii=False)) for row in rows]
        for channel, part in dealt:
            self._costs.crossed(operator, len(part))
            self._outs[channel].put(part)

    # Epochs.

    def _know_where_they_begin(self) -> bool:
        """Waits until every feed does; False: the generation is over. An epoch of before would be committed without the
        offsets of some partitions, and whoever went on from it would begin with the first messages these have."""
        while not self._closed.is_set() and not all(feed.begun for feed in self._feeds.values()):
            self._closed.wait(SOURCE_SECONDS)
        return not self._closed.is_set()

    def _stage_epochs(self) -> None:
        while (epoch := self._stages.get()) is not None and self._know_where_they_begin():
            generation = self._order.generation
            with self._emitting:
                self._segment.flush()
                for link in self._outs.values():
                    link.mark(epoch)
                offsets: dict[str, int | None] = dict(self._offsets)
                for feed in self._feeds.values():
                    offsets |= {**feed.offsets, **dict.fromkeys(feed.vanished)}
                lag = {key: count for feed in self._feeds.values() for key, count in feed.lag.items()}
                notes = [note for feed in self._feeds.values() for note in feed.take_notes()]
                account = self._segment.take_account()
                self._costs.take_into(account)
                rows, written = self._sinks.cut(epoch)
                state = self._segment.snapshot(epoch) if isinstance(self._segment, KeyedSegment) else None
                shown, self._shown = self._shown, []
                gone, self._gone = self._gone, {}
                watched = self._counts.cut()
                hops, self._hops = self._hops, Histogram()
                with self._changed:
                    self._flow.staged(generation, epoch)
                    self._changed.notify_all()
            watch, cpu = Stopwatch(), thread_cpu_seconds()
            outputs = self._sinks.write(epoch, rows, written)
            for sink in self._own_sinks if outputs else ():
                # written together: each has an equal part of the time
                share = 1 / len(self._own_sinks)
                self._costs.worked(sink, 0, share * watch.seconds(), share * (thread_cpu_seconds() - cpu))
            states = {} if state is None else state.write()
            staged = StagedReport(
                generation,
                epoch,
                offsets,
                states,
                tuple(outputs),
                tuple(shown),
                dict(hops.counts()),
                tuple(watched),
                lag,
                gone,
                tuple(notes),
            )
            self._report(staged, account.to_bytes())
