"""Tuples of one pipeline, event by event: emitting, queueing, working, sending, acknowledging."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.simulation.counters import Counters
from penstock.simulation.layout import BLOCK, emissions_of, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.simulation.contention import Processors
    from penstock.simulation.counters import Counts
    from penstock.simulation.event_engine import Links
    from penstock.simulation.layout import Lane, SimulatedStage, StageLayout
    from penstock.simulation.scenario import Scenario, SimulatedPipeline


@dataclass(slots=True, eq=False)
class Root:
    """A tuple of a source with everything it causes."""

    source: int
    due: int
    emitted: int
    open: int = 1
    """Descendants on their way, itself included."""
    failed: bool = False
    delivered: dict[str, int] | None = None
    """Tuples of it that each end processed since it was emitted."""
    before: dict[str, int] | None = None
    """Different tuples of it that each end processed when it was emitted earlier."""


@dataclass(slots=True, eq=False)
class EventTuple:
    """A tuple at a station. `born` is the time its source's tuple was due, below 0 if no source caused it."""

    born: int
    root: Root | None
    work: int = 0
    """Nanoseconds it takes at full speed, if that is drawn."""
    started: int = 0
    """When a thread took it."""
    held: list[tuple[int, int]] | None = None
    """While its thread waits for room: the remaining results, as (output, target)."""


@dataclass(slots=True, eq=False)
class ThreadLine:
    """A queue and the threads that take from it: one thread, or all of a station (if they share it, or need no
    time)."""

    station: int
    thread: int
    """The first of its threads."""
    free: int
    waiting: deque[EventTuple] = field(default_factory=deque)
    epoch: int = 0
    """Rises when its node fails: tuples in work before then never get done."""
    working: list[EventTuple] = field(default_factory=list)
    blocked: list[EventTuple] = field(default_factory=list)
    """Done, but their results find no room."""


class EventStage:
    """State of one operator."""

    def __init__(self, stage: SimulatedStage, counts: list[Counts], seeds: Sequence[int], limit: int | None) -> None:
        self.stage = stage
        self.counts = counts
        self.limit = limit
        self.passing, self.random, self.end, self.source = stage.passing, stage.random, stage.end, stage.source
        self.gate, self.outputs, self.threaded = stage.gate, stage.outputs, stage.by_thread
        self.simple = len(stage.outputs) == 1 and stage.outputs[0].plain
        """Every tuple causes exactly one."""
        self.sent = 0
        size = len(stage.stations)
        shared = stage.random and not stage.by_thread
        threads = stage.threads.tolist()
        bases = stage.bases.tolist()
        self.lines: list[list[ThreadLine]] = [
            [ThreadLine(station, bases[station], threads[station])]
            if shared or stage.passing
            else [ThreadLine(station, bases[station] + offset, 1) for offset in range(threads[station])]
            for station in range(size)
        ]
        self.by_thread = [line for row in self.lines for line in row]
        self.turns = [0] * size
        self.down = [False] * size
        self.service: list[int] = stage.service.tolist()
        self.full_service: list[int] = stage.service.tolist()
        self.speed = [1.0] * size
        self.room = [0] * size
        """Waiting or on their way to each station."""
        self.queued = [0] * size
        """Waiting at each station."""
        self.had = [0] * size
        """Waiting at the start of the window, or arrived since."""
        self.busy = [0] * size
        """Nanoseconds of threads at each station, for tuples done in the window."""
        self.gated: list[dict[int, EventTuple]] = [{} for _ in range(size)]
        """Part of those that wait: for the next batch, at each station."""
        self.senders: list[deque[tuple[int, ThreadLine, EventTuple]]] = [deque() for _ in range(size)]
        """Senders that wait for room at each station."""
        self.selected = [0] * len(stage.outputs)
        """Tuples each output has counted for its selectivity."""
        self.times: list[int] = []
        """Times at which tuples were processed and not reported yet, and the times they were born."""
        self.born: list[int] = []
        self.station_of: list[int] = stage.station_of.tolist()
        self._draws = [np.random.default_rng([*seeds, station]) for station in range(size)] if stage.random else []
        self._ready: list[list[float]] = [[] for _ in range(size)]

    def busy_threads(self, start: int, end: int) -> list[float]:
        """Return the mean busy threads of every station over a window that has ended."""
        for station, row in enumerate(self.lines):
            for line in row:
                for item in line.working:
                    self.busy[station] += end - max(item.started, start)
        averages = [busy / (end - start) for busy in self.busy]
        self.busy = [0] * len(self.busy)
        return averages

    def has_room(self, station: int) -> bool:
        return self.limit is None or self.room[station] < self.limit

    def line_for(self, target: int) -> ThreadLine:
        """Return the line in which an arriving tuple queues: its thread's, or the next of its station's."""
        if self.passing:
            return self.lines[self.station_of[target] if self.threaded else target][0]
        if self.threaded:
            return self.by_thread[target]
        row = self.lines[target]
        turn = self.turns[target]
        self.turns[target] = turn + 1 if turn + 1 < len(row) else 0
        return row[turn]

    def draw(self, station: int) -> int:
        """The next exponential service time of a station, at full speed."""
        ready = self._ready[station]
        if not ready:
            ready.extend(self._draws[station].exponential(size=256).tolist()[::-1])
        return round(self.full_service[station] * ready.pop())

    def duration(self, station: int, item: EventTuple) -> int:
        if not self.random:
            return self.service[station]
        speed = self.speed[station]
        return item.work if speed >= 1 else round(item.work / speed)


# State of one pipeline in the event engine: counters, stages, pending events.


class EventState:
    """State of the event engine. `heap` is shared; entries are (time, order, first tie, second tie, method,
    arguments)."""

    def __init__(
        self,
        scenario: Scenario,
        pipeline: SimulatedPipeline,
        first_layout: StageLayout,
        number: int,
        heap: list[Any],
        links: Links,
        processors: Processors | None,
    ) -> None:
        self.scenario = scenario
        self.pipeline = pipeline
        self.number = number
        self.heap = heap
        self.links = links
        self.processors = processors
        self.length = nanoseconds(scenario.seconds)
        self.warm_up = nanoseconds(scenario.warm_up)
        self.window = 0
        """When the window began."""
        self.counters = Counters(scenario, pipeline, number)
        self._counter = count()
        self.emissions = emissions_of(scenario, pipeline, number)
        self._due: list[deque[int]] = [deque() for _ in pipeline.sources]
        self.ended = [False] * len(pipeline.sources)
        self.in_flight = [0] * len(pipeline.sources)
        self._scheduled = [False] * len(pipeline.sources)
        self._emitted: list[int] = []
        self._tracked = pipeline.in_flight is not None or pipeline.replay_seconds is not None
        self._bytes = any(route.bytes > 0 for route in pipeline.routes)
        self.paused = False
        self.full = False
        self.inside = 0
        self.epoch = 0
        """Rises with every placement: events of an earlier one are void."""
        self.begin(first_layout, 0)

    # ------------------------------------------------------------------------------------------ placements

    def begin(self, new_layout: StageLayout, at: int) -> None:
        self.epoch += 1
        self.layout = new_layout
        self._rows = self.counters.use(new_layout, at)
        limit = self.pipeline.queue_limit
        self.stages = [
            EventStage(stage, row, (self.scenario.seed, self.number, 3, position), limit)
            for position, (stage, row) in enumerate(zip(new_layout.stages, self._rows, strict=True))
        ]
        self.entries = new_layout.entries()
        self._next_target: list[int | None] = [None] * len(new_layout.sources)
        self._orders = [(self.number * 4096 + rank) * 4 for rank in range(len(self.stages))]
        self._source_of = {position: index for index, position in enumerate(new_layout.sources)}
        cluster = self.scenario.cluster
        self._nodes = [[cluster.position(station.slot.node) for station in s.stations] for s in new_layout.stages]
        self._delays = [[lane.delays.tolist() for lane in stage.outputs] for stage in new_layout.stages]
        self.speeds = [self.processors.enter(stage.stations) for stage in new_layout.stages] if self.processors else []

    def end_placement(self, at: int) -> None:
        for stage in self.stages:
            self.flush_stage(stage)
        if self.processors is not None:
            for where in self.speeds:
                self.processors.leave(where)
        self.counters.retire(self._rows, at)

    def _push(self, time: int, rank: int, kind: int, tie: int, method: Any, *arguments: Any) -> None:
        entry = (time, self._orders[rank] + kind, tie, next(self._counter), method, (self.epoch, *arguments))
        heappush(self.heap, entry)

    # --------------------------------------------------------------------------------------------- telling

    def flush(self) -> None:
        self.counters.emitted += self.counters.by_spell(np.array(self._emitted, dtype=np.int64))
        self._emitted.clear()

    def flush_stage(self, stage: EventStage) -> None:
        times, born = np.array(stage.times, dtype=np.int64), np.array(stage.born, dtype=np.int64)
        self.counters.process(stage.stage.name, times, born, end=stage.end)
        self.counters.sent[stage.stage.name] += stage.sent
        stage.sent = 0
        stage.times.clear()
        stage.born.clear()


ARRIVE, DONE, TICK, INCOMING = range(4)
"""Order of events at equal times within one operator; operators go in topological order."""

FLUSH = 20_000


class EventFlow(EventState):
    """Tuples emitted, queued, worked on, sent, acknowledged."""

    def begin(self, new_layout: StageLayout, at: int) -> None:
        super().begin(new_layout, at)
        for position, stage in enumerate(new_layout.stages):
            for output, lane in enumerate(stage.outputs):
                if lane.constant_gap:
                    self._schedule_tick(position, output, lane, int(at // lane.constant_gap) + 1)

    # -------------------------------------------------------------------------------------------- emitting

    def emit_all(self, now: int) -> None:
        for source in range(len(self._due)):
            self.emit(source, now)

    def emit(self, source: int, now: int) -> None:
        """Everything of a source that is due and may be emitted; the next one is looked at when it is due."""
        limit, most = self.pipeline.in_flight, self.scenario.most_waiting
        rank = self.layout.sources[source]
        stage = self.stages[rank]
        while not self.paused:
            due = self._next_due(source)
            if due is None:
                return
            if due > now:
                if not self._scheduled[source]:
                    self._scheduled[source] = True
                    self._push(due, rank, ARRIVE, 0, self._on_due, source)
                return
            if self.inside >= most:
                self.full = True
                return
            if limit is not None and self.in_flight[source] >= limit:
                return
            target = self._next_target[source]
            if target is None:
                target = self._next_target[source] = self.entries[source].next_target(0)
            if not stage.has_room(target):
                return
            self._due[source].popleft()
            self._next_target[source] = None
            root = Root(source, due, now) if self._tracked else None
            self.in_flight[source] += 1
            self.enter(rank, target, EventTuple(due, root), now)

    def enter(self, rank: int, target: int, item: EventTuple, now: int) -> None:
        self._emitted.append(now)
        if len(self._emitted) >= FLUSH:
            self.flush()
        self.inside += 1
        self.stages[rank].room[target] += 1
        self.arrive(now, self.epoch, rank, target, item)

    def _on_due(self, now: int, epoch: int, source: int) -> None:
        self._scheduled[source] = False
        self.emit(source, now)

    def _next_due(self, source: int) -> int | None:
        row = self._due[source]
        if not row and not self.ended[source]:
            due = self.emissions[source].take(self.length, BLOCK)
            self.ended[source] = not len(due)
            self.counters.offered += self.counters.by_spell(due)
            row.extend(due.tolist())
        return row[0] if row else None

    # -------------------------------------------------------------------------------------------- working

    def arrive(self, now: int, epoch: int, rank: int, target: int, item: EventTuple) -> None:
        if epoch != self.epoch:
            return
        stage = self.stages[rank]
        station = stage.station_of[target] if stage.threaded else target
        stage.counts[station].received += 1
        if stage.down[station] and not stage.source:
            stage.room[station] -= 1
            stage.counts[station].lost += 1
            self.lose(stage.stage.name, item, now)
            if stage.limit is not None:
                self.room_made(stage, rank, station, now)
            return
        stage.had[station] += 1
        stage.queued[station] += 1
        gate = stage.gate
        if gate:
            later = -(-now // gate) * gate
            stage.gated[station][id(item)] = item
            self._push(later, rank, ARRIVE, 1 << 30, self._queue, rank, target, item)
        else:
            self._queue(now, epoch, rank, target, item)

    def _queue(self, now: int, epoch: int, rank: int, target: int, item: EventTuple) -> None:
        if epoch != self.epoch:
            return
        stage = self.stages[rank]
        if stage.gate:
            station = stage.station_of[target] if stage.threaded else target
            if stage.gated[station].pop(id(item), None) is None:
                return  # its node failed meanwhile
        line = stage.line_for(target)
        if stage.random:
            item.work = stage.draw(line.station)
        line.waiting.append(item)
        if line.free:
            self.start(stage, rank, line, now)

    def start(self, stage: EventStage, rank: int, line: ThreadLine, now: int) -> None:
        """Free threads of a line take what waits."""
        station = line.station
        counts = stage.counts[station]
        while line.free and line.waiting:
            item = line.waiting.popleft()
            line.free -= 1
            stage.queued[station] -= 1
            stage.room[station] -= 1
            takes = stage.duration(station, item)
            if now >= self.warm_up:
                counts.worked += 1
                counts.busy += takes
                counts.slowed += takes - (item.work if stage.random else stage.full_service[station])
            if stage.passing:
                self._done(now, self.epoch, rank, line, line.epoch, item)
            else:
                item.started = now
                line.working.append(item)
                order = self._orders[rank] + DONE
                arguments = (self.epoch, rank, line, line.epoch, item)
                heappush(self.heap, (now + takes, order, line.thread, next(self._counter), self._done, arguments))
            if stage.limit is not None:
                self.room_made(stage, rank, station, now)

    def _done(self, now: int, epoch: int, rank: int, line: ThreadLine, line_epoch: int, item: EventTuple) -> None:
        if epoch != self.epoch or line_epoch != line.epoch:
            return
        stage = self.stages[rank]
        if not stage.passing:
            line.working.remove(item)
            stage.busy[line.station] += now - max(item.started, self.window)
        stage.counts[line.station].processed += 1
        if not stage.end or self._deliver(stage, item):
            stage.times.append(now)
            stage.born.append(item.born)
            if len(stage.times) >= FLUSH:
                self.flush_stage(stage)
        if stage.simple:
            sent = self._send_one(stage, rank, line, item, now)
        else:
            item.held = self._results(stage, line.station, item)
            sent = self._send(stage, rank, line, item, now)
        if sent:
            line.free += 1
            if not stage.passing:
                self.start(stage, rank, line, now)
        self._leave(item, now)

    def _send_one(self, stage: EventStage, rank: int, line: ThreadLine, item: EventTuple, now: int) -> bool:
        """The same as `_results` and `_send`, for the common case of one result."""
        lane = stage.outputs[0]
        target = lane.dealer.next_target(line.station)
        stage.sent += 1
        self.inside += 1
        root = item.root
        if root is not None:
            root.open += 1
        receiver = self.stages[lane.receiver]
        if receiver.limit is not None:
            item.held = [(0, target)]
            return self._send(stage, rank, line, item, now)
        station = receiver.station_of[target] if receiver.threaded else target
        self._dispatch(rank, 0, lane, line.station, station, target, EventTuple(item.born, root), now)
        return True

    def _results(self, stage: EventStage, station: int, item: EventTuple) -> list[tuple[int, int]]:
        """Return the targets of the results of a tuple, as (output, target), last first."""
        places = []
        for output, lane in enumerate(stage.outputs):
            amount = 1
            if lane.route.selectivity != 1.0:
                before = stage.selected[output]
                stage.selected[output] = before + 1
                q = lane.route.selectivity
                amount = math.floor((before + 1) * q + TOLERANCE) - math.floor(before * q + TOLERANCE)
            for _ in range(amount):
                if lane.dealer.every:
                    places += [(output, target) for target in lane.dealer.all_targets()]
                else:
                    places.append((output, lane.dealer.next_target(station)))
        stage.sent += len(places)
        self.inside += len(places)
        if item.root is not None:
            item.root.open += len(places)
        places.reverse()
        return places

    def _send(self, stage: EventStage, rank: int, line: ThreadLine, item: EventTuple, now: int) -> bool:
        """Sends results on while there is room; False: the thread waits with the rest."""
        held = item.held
        while held:
            output, target = held[-1]
            lane = stage.outputs[output]
            receiver = self.stages[lane.receiver]
            station = receiver.station_of[target] if receiver.threaded else target
            if not receiver.has_room(station):
                line.blocked.append(item)
                receiver.senders[station].append((rank, line, item))
                return False
            held.pop()
            self._dispatch(rank, output, lane, line.station, station, target, EventTuple(item.born, item.root), now)
        return True

    def _dispatch(
        self, rank: int, output: int, lane: Lane, sender: int, station: int, target: int, item: EventTuple, now: int
    ) -> None:
        self.stages[lane.receiver].room[station] += 1
        time = now + self._delays[rank][output][sender][station]
        if self._bytes and lane.route.bytes > 0:
            here, there = self._nodes[rank][sender], self._nodes[lane.receiver][station]
            if here != there:
                who = (self.pipeline.name, lane.route.sender)
                time += self.links.carry(0, here, now, lane.route.bytes, who) - now
                self._push(time, lane.receiver, INCOMING, 0, self._incoming, lane, there, target, item)
                return
        order = self._orders[lane.receiver]
        arguments = (self.epoch, lane.receiver, target, item)
        heappush(self.heap, (time, order, lane.entry, next(self._counter), self.arrive, arguments))

    def _incoming(self, now: int, epoch: int, lane: Lane, node: int, target: int, item: EventTuple) -> None:
        done = self.links.carry(1, node, now, lane.route.bytes, (self.pipeline.name, lane.route.sender))
        if epoch == self.epoch:
            self._push(done, lane.receiver, ARRIVE, lane.entry, self.arrive, lane.receiver, target, item)

    def room_made(self, stage: EventStage, rank: int, station: int, now: int) -> None:
        """Note that a tuple left the queue of a station: senders that wait for room continue, first come first."""
        senders = stage.senders[station]
        while senders and stage.has_room(station):
            sender_rank, line, item = senders.popleft()
            if item.held is None:
                continue
            line.blocked.remove(item)
            sender = self.stages[sender_rank]
            if self._send(sender, sender_rank, line, item, now) and not sender.down[line.station]:
                line.free += 1
                self.start(sender, sender_rank, line, now)
        if stage.source:
            self.emit(self._source_of[rank], now)

    # --------------------------------------------------------------------------------------------- ending

    def _deliver(self, stage: EventStage, item: EventTuple) -> bool:
        """An end has processed a tuple; False: it had it before."""
        self.counters.arrived += 1
        root = item.root
        if root is not None:
            name = stage.stage.name
            if root.delivered is None:
                root.delivered = {}
            times_seen = root.delivered[name] = root.delivered.get(name, 0) + 1
            if root.before is not None and times_seen <= root.before.get(name, 0):
                self.counters.duplicated += 1
                return False
        return True

    def _leave(self, item: EventTuple, now: int) -> None:
        """A tuple is processed, or lost."""
        self.inside -= 1
        root = item.root
        if root is not None:
            root.open -= 1
            if not root.open:
                self._acknowledge(root, now)
        elif self.inside == self.scenario.most_waiting - 1:
            self.emit_all(now)

    def _acknowledge(self, root: Root, now: int) -> None:
        """Complete a source's tuple of which nothing is left on its way. If a part was lost, it is emitted again."""
        again = self.pipeline.replay_seconds
        if root.failed and again is not None:
            rank = self.layout.sources[root.source]
            when = max(now, root.emitted + nanoseconds(again))
            entry = (when, self._orders[rank], 0, next(self._counter), self._replay, (self.epoch, root))
            heappush(self.heap, entry)
            return
        self.in_flight[root.source] -= 1
        self.emit(root.source, now)

    def _replay(self, now: int, epoch: int, root: Root) -> None:
        """Emitted again. What its ends got before they will get twice."""
        known, since = root.before or {}, root.delivered or {}
        before = {name: max(known.get(name, 0), since.get(name, 0)) for name in {*known, *since}}
        fresh = Root(root.source, root.due, now, before=before)
        self.counters.replayed += 1
        source = root.source
        target = self.entries[source].next_target(0)
        self.enter(self.layout.sources[source], target, EventTuple(root.due, fresh), now)

    def lose(self, operator: str, item: EventTuple, now: int) -> None:
        """A tuple that some operator has or should have got is gone."""
        if self.pipeline.replay_seconds is None:
            self.counters.note_lost(operator, 1, now)
        if item.root is not None:
            item.root.failed = True
        self._leave(item, now)

    # --------------------------------------------------------------------------------------------- ticking

    def _schedule_tick(self, position: int, output: int, lane: Lane, number: int) -> None:
        time = round(number * lane.constant_gap)
        if time < self.length:
            self._push(time, position, TICK, output, self._tick, position, output, number)

    def _tick(self, now: int, epoch: int, position: int, output: int, number: int) -> None:
        """A tuple a stream carries by itself."""
        if epoch != self.epoch:
            return
        stage = self.stages[position]
        lane = stage.outputs[output]
        self._schedule_tick(position, output, lane, number + 1)
        if self.paused:
            return
        sender = number % len(stage.stage.stations)
        targets = lane.dealer.all_targets() if lane.dealer.every else [lane.dealer.next_target(sender)]
        receiver = self.stages[lane.receiver]
        for target in targets:
            self.inside += 1
            stage.sent += 1
            station = receiver.station_of[target] if receiver.threaded else target
            self._dispatch(position, output, lane, sender, station, target, EventTuple(-1 - now, None), now)
