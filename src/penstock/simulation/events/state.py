"""What one pipeline has and is at, event by event: its counters, its stages, what is due. Nothing moves here."""

from __future__ import annotations

from collections import deque
from heapq import heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.simulation.counters import Counters
from penstock.simulation.events.stage_run import EventStage
from penstock.simulation.layout import nanoseconds
from penstock.simulation.sources import emissions_of

if TYPE_CHECKING:
    from penstock.simulation.arrays.contention import Processors
    from penstock.simulation.events.links import Links
    from penstock.simulation.layout import StageLayout
    from penstock.simulation.system import Scenario, SimulatedPipeline


class EventState:
    """`heap` is everybody's; entries are (time, order, first tie, second tie, method, arguments)."""

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
