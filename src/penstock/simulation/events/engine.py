"""The engine with a heap of events, for everything that feeds back: closed loops, bounded queues, links, replays."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.simulation.arrays import contention
from penstock.simulation.events.links import Links
from penstock.simulation.events.pipeline_run import EventPipeline
from penstock.simulation.layout import layout, nanoseconds
from penstock.simulation.outcome import SimulationOutcome
from penstock.simulation.uses import uses_of
from penstock.simulation.windows import processors_of, window_ends

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.simulation.arrays.contention import Processors
    from penstock.simulation.system import Scenario, Switch

BEFORE_ALL = -1
"""The order of what happens between windows: before everything else at that time."""


def simulate_events(scenario: Scenario, progress: Callable[[float], None] | None = None) -> SimulationOutcome:
    return _Events(scenario, progress).run()


class _Events:
    def __init__(self, scenario: Scenario, progress: Callable[[float], None] | None) -> None:
        self._scenario = scenario
        self._progress = progress
        self._length = nanoseconds(scenario.seconds)
        self._heap: list[Any] = []
        layouts = [
            layout(pipeline, pipeline.stations, scenario, number) for number, pipeline in enumerate(scenario.pipelines)
        ]
        self._processors: Processors | None = processors_of(scenario, layouts)
        self._loops = any(
            pipeline.in_flight is not None or pipeline.queue_limit is not None for pipeline in scenario.pipelines
        )
        """Whether slow threads keep tuples from arriving."""
        links = Links(scenario, nanoseconds(scenario.warm_up), self._length)
        self._runs = [
            EventPipeline(scenario, pipeline, own_layout, number, self._heap, links, self._processors)
            for number, (pipeline, own_layout) in enumerate(zip(scenario.pipelines, layouts, strict=True))
        ]
        self._switches: list[list[Switch]] = [
            sorted((s for s in scenario.switches if s.pipeline == run.pipeline.name), key=lambda switch: switch.at)
            for run in self._runs
        ]
        self._draining: list[tuple[Switch, int] | None] = [None for _ in self._runs]
        self._resumes: list[int | None] = [None for _ in self._runs]

    def run(self) -> SimulationOutcome:
        scenario, heap = self._scenario, self._heap
        for start, _ in window_ends(scenario, shared_out=self._processors is not None):
            heappush(heap, (start, BEFORE_ALL, 0, 0, self._between, ()))
        self._window = 0
        draining = bool(scenario.switches)
        while heap:
            time, _, _, _, method, arguments = heappop(heap)
            if time >= self._length:
                break
            method(time, *arguments)
            if draining:
                self._look_for_drained(time)
        outcomes = {run.pipeline.name: run.finish() for run in self._runs}
        slots, nodes = uses_of(scenario, [run.counters for run in self._runs])
        return SimulationOutcome(
            engine="events",
            seconds=scenario.seconds,
            warm_up=scenario.warm_up,
            pipelines=outcomes,
            slots=slots,
            nodes=nodes,
            hops=sum(run.counters.hops for run in self._runs),
            notes=tuple(note for run in self._runs for note in run.notes),
        )

    def _between(self, now: int) -> None:
        """A window begins: speeds, outages, switches."""
        if self._processors is not None and now > self._window:
            self._share_out(self._processors, self._window, now)
        self._window = now
        for run in self._runs:
            run.window = now
        for outage in self._scenario.outages:
            if nanoseconds(outage.start) == now:
                for run in self._runs:
                    run.fail(outage.node, now)
            if outage.end is not None and nanoseconds(outage.end) == now:
                for run in self._runs:
                    run.recover(outage.node, now)
        for number, run in enumerate(self._runs):
            row = self._switches[number]
            while row and nanoseconds(row[0].at) <= now and self._draining[number] is None:
                switch = row.pop(0)
                self._draining[number] = (switch, now)
                run.paused = True
                if not switch.drain:
                    run.drop_everything(now)
            if now == run.warm_up:
                run.counters.begin_measuring(run.queued())
            run.emit_all(now)
        if self._progress is not None:
            self._progress(now / self._length)

    def _share_out(self, processors: Processors, start: int, end: int) -> None:
        if self._loops:
            busy = np.zeros(len(processors.speed))
            for run in self._runs:
                for stage, where in zip(run.stages, run.speeds, strict=True):
                    busy[where] = stage.busy_threads(start, end)
            processors.next_window_of(busy)
        else:
            for run in self._runs:
                for stage, where in zip(run.stages, run.speeds, strict=True):
                    processors.has(where, stage.had)
            processors.next_window(end - start)
        for run in self._runs:
            for stage, where in zip(run.stages, run.speeds, strict=True):
                speed = processors.speed[where]
                stage.speed = speed.tolist()
                stage.service = contention.slowed(stage.stage.service, speed).tolist()
                stage.had = list(stage.queued)

    def _look_for_drained(self, now: int) -> None:
        """A pipeline is drained when nothing is inside but what waits at sources that are down. Where that changes
        during the pause (such a source returns), it starts anew."""
        for number, run in enumerate(self._runs):
            draining = self._draining[number]
            if draining is None:
                continue
            if run.inside and run.inside > run.stuck:
                self._resumes[number] = None
            elif self._resumes[number] is None:
                ready = now + nanoseconds(draining[0].pause_seconds)
                self._resumes[number] = ready
                if ready == now:
                    self._resume(now, number, ready)
                else:
                    heappush(self._heap, (ready, BEFORE_ALL, 1, number, self._resume, (number, ready)))

    def _resume(self, now: int, number: int, ready: int) -> None:
        draining = self._draining[number]
        if draining is None or self._resumes[number] != ready:
            return
        switch, stopped = draining
        self._draining[number] = self._resumes[number] = None
        run = self._runs[number]
        stuck = run.take_stuck()
        run.end_placement(now)
        run.begin(layout(run.pipeline, switch.stations, self._scenario, number), now)
        for outage in self._scenario.outages:
            down = nanoseconds(outage.start) <= now and (outage.end is None or now < nanoseconds(outage.end))
            if down:
                run.fail(outage.node, now)
        run.note_drained(stopped, now)
        run.put_back(stuck, now)
        run.paused = False
        run.emit_all(now)
