"""One operator while it is simulated event by event."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.simulation.counters import Counts
    from penstock.simulation.layout import SimulatedStage


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
    """A tuple at a station. `born` is when its source's tuple was due, below 0 where no source caused it."""

    born: int
    root: Root | None
    work: int = 0
    """Nanoseconds it takes at full speed, where that is drawn."""
    started: int = 0
    """When a thread took it."""
    held: list[tuple[int, int]] | None = None
    """While its thread waits for room: where its results still have to go, as (output, target)."""


@dataclass(slots=True, eq=False)
class ThreadLine:
    """A queue and the threads that take from it: one thread, or all of a station (where they share it, or need no
    time)."""

    station: int
    thread: int
    """The first of its threads."""
    free: int
    waiting: deque[EventTuple] = field(default_factory=deque)
    epoch: int = 0
    """Rises when its node fails: what was worked on before never gets done."""
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
        """Nanoseconds of threads at each station, of what was done in the window."""
        self.gated: list[dict[int, EventTuple]] = [{} for _ in range(size)]
        """Part of those that wait: for the next batch, at each station."""
        self.senders: list[deque[tuple[int, ThreadLine, EventTuple]]] = [deque() for _ in range(size)]
        """Who waits for room at each station."""
        self.selected = [0] * len(stage.outputs)
        """Tuples each output has counted for its selectivity."""
        self.times: list[int] = []
        """When tuples were processed, not told yet, and when they were born."""
        self.born: list[int] = []
        self.station_of: list[int] = stage.station_of.tolist()
        self._draws = [np.random.default_rng([*seeds, station]) for station in range(size)] if stage.random else []
        self._ready: list[list[float]] = [[] for _ in range(size)]

    def busy_threads(self, start: int, end: int) -> list[float]:
        """Of every station, on average over a window that is then over."""
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
        """Where an arriving tuple queues: its thread's line, or the next of its station's."""
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
