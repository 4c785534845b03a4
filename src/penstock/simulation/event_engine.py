"""The engine with a heap of events, for everything that feeds back: closed loops, bounded queues, links, replays."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cluster.topology import BYTES_PER_MEGABIT, Slot
from penstock.simulation import contention
from penstock.simulation.counters import full_note
from penstock.simulation.event_flow import EventFlow, EventTuple
from penstock.simulation.layout import layout, nanoseconds, processors_of, window_ends
from penstock.simulation.outcome import Bottleneck, outcome_of
from penstock.simulation.scenario import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.simulation.contention import Processors
    from penstock.simulation.event_flow import EventStage
    from penstock.simulation.outcome import PipelineOutcome, SimulationOutcome
    from penstock.simulation.scenario import Scenario, Switch


# Events of one pipeline between windows, and its outcome.


class EventPipeline(EventFlow):
    """Failing, recovering, switching, summing up."""

    def fail(self, node: str, now: int) -> None:
        """Take a node down: its stations lose tuples in work, and waiting ones except at sources."""
        for rank, stage in enumerate(self.stages):
            for station, placed in enumerate(stage.stage.stations):
                if placed.slot.node == node and not stage.down[station]:
                    stage.down[station] = True
                    self._fail_station(stage, rank, station, now)

    def _fail_station(self, stage: EventStage, rank: int, station: int, now: int) -> None:
        name = stage.stage.name
        waited: list[EventTuple] = []
        gone: list[EventTuple] = []
        if not stage.source:
            waited += stage.gated[station].values()
            stage.gated[station].clear()
        for line in stage.lines[station]:
            line.epoch += 1
            line.free = 0
            gone += line.working
            line.working.clear()
            if not stage.source:
                waited += line.waiting
                line.waiting.clear()
        stage.queued[station] -= len(waited)
        stage.room[station] -= len(waited)
        for item in (*gone, *waited):
            stage.counts[station].lost += 1
            self.lose(name, item, now)
        for line in stage.lines[station]:
            for item in line.blocked:
                for _ in item.held or ():
                    self.counters.lost_travelling += 1
                    self.lose(name, EventTuple(item.born, item.root), now)
                item.held = None
            line.blocked.clear()
        if stage.limit is not None:
            self.room_made(stage, rank, station, now)

    def recover(self, node: str, now: int) -> None:
        for rank, stage in enumerate(self.stages):
            for station, placed in enumerate(stage.stage.stations):
                if placed.slot.node != node or not stage.down[station]:
                    continue
                stage.down[station] = False
                for line in stage.lines[station]:
                    threads = int(stage.stage.threads[station])
                    line.free = threads // len(stage.lines[station])
                    self.start(stage, rank, line, now)

    @property
    def stuck(self) -> int:
        """Tuples that wait at sources which are down: they are no reason to wait with a switch."""
        return sum(
            amount
            for stage in self.stages
            if stage.source and any(stage.down)
            for amount, down in zip(stage.queued, stage.down, strict=True)
            if down
        )

    def take_stuck(self) -> list[list[EventTuple]]:
        """Those tuples, source by source in the order they were due; they leave."""
        rows: list[list[EventTuple]] = []
        for rank in self.layout.sources:
            stage = self.stages[rank]
            row: list[EventTuple] = []
            for station, down in enumerate(stage.down):
                if not down:
                    continue
                row += stage.gated[station].values()
                for line in stage.lines[station]:
                    row += line.waiting
                stage.counts[station].received -= stage.queued[station]
            self.inside -= len(row)
            rows.append(sorted(row, key=lambda item: item.born))
        return rows

    def put_back(self, rows: list[list[EventTuple]], now: int) -> None:
        """They are with the sources of a new placement."""
        for source, row in enumerate(rows):
            for item in row:
                target = self.entries[source].next_target(0)
                rank = self.layout.sources[source]
                self.inside += 1
                self.stages[rank].room[target] += 1
                self.arrive(now, self.epoch, rank, target, item)

    def drop_everything(self, now: int) -> None:
        """Switch without a drain: all tuples inside are lost."""
        for stage in self.stages:
            for station, counts in enumerate(stage.counts):
                amount = stage.queued[station] + sum(len(line.working) for line in stage.lines[station])
                counts.lost += amount
                self.counters.note_lost(stage.stage.name, amount, now)
                self.inside -= amount
                stage.queued[station] = 0
                stage.gated[station].clear()
                for line in stage.lines[station]:
                    line.waiting.clear()
                    line.working.clear()
        self.counters.lost_travelling += self.inside
        self.inside = 0
        self.in_flight = [0] * len(self.in_flight)
        self.epoch += 1

    # --------------------------------------------------------------------------------------------- summing

    def finish(self) -> PipelineOutcome:
        self.flush()
        for stage in self.stages:
            self.flush_stage(stage)
        for emission in self.emissions:
            self.counters.offered += emission.rest(self.counters.edges)
        sources = self.pipeline.sources
        counted = self.counters.stations.items()
        self.counters.hops = sum(counts.processed for (name, _), counts in counted if name not in sources)
        queued = self.queued()
        inside = sum(amount for row in queued.values() for amount in row.values())
        return self.counters.outcome(queued, self.inside - inside, self.links.bottlenecks(self.pipeline.name))

    def queued(self) -> dict[str, dict[Slot, int]]:
        """Waiting or worked on, by operator and slot."""
        return {
            stage.stage.name: {
                placed.slot: stage.queued[station] + sum(len(line.working) for line in stage.lines[station])
                for station, placed in enumerate(stage.stage.stations)
            }
            for stage in self.stages
        }

    @property
    def notes(self) -> tuple[str, ...]:
        return (full_note(self.pipeline.name, self.scenario.most_waiting),) if self.full else ()

    def note_drained(self, at: int, until: int) -> None:
        self.counters.drained.append((at / NANOSECONDS, until / NANOSECONDS))


class Links:
    """When every link is free, and how long it was busy past the warm-up."""

    def __init__(self, scenario: Scenario, warm_up: int, length: int) -> None:
        own = scenario.network.bandwidth_mbps
        self._nanoseconds_per_byte = [
            NANOSECONDS / ((node.bandwidth_mbps if own is None else own) * BYTES_PER_MEGABIT)
            for node in scenario.cluster.nodes
        ]
        self._names = [node.name for node in scenario.cluster.nodes]
        size = len(self._names)
        self._free = [[0] * size, [0] * size]
        self._busy = [[0] * size, [0] * size]
        self._by_sender: list[dict[tuple[str, str], int]] = [{} for _ in self._names]
        self._warm_up = warm_up
        self._length = length

    def carry(self, direction: int, node: int, now: int, size: float, who: tuple[str, str]) -> int:
        """Return the time at which a tuple of `size` bytes, which reaches the link of a node now, is through it, out
        (0) or in (1).

        `done = max(now, free) + bytes / bandwidth`. `who` is the pipeline and operator that sends it.
        """
        takes = round(size * self._nanoseconds_per_byte[node])
        free = self._free[direction]
        done = max(now, free[node]) + takes
        free[node] = done
        if now >= self._warm_up:
            self._busy[direction][node] += takes
            row = self._by_sender[node]
            row[who] = row.get(who, 0) + takes
        return done

    def bottlenecks(self, pipeline: str) -> list[Bottleneck]:
        """Every link the pipeline uses, with the operator of it that uses it most."""
        span = self._length - self._warm_up
        used = []
        for node, row in enumerate(self._by_sender):
            mine = {operator: takes for (of, operator), takes in row.items() if of == pipeline}
            if mine:
                busy = max(self._busy[0][node], self._busy[1][node])
                operator = max(mine, key=lambda name: mine[name])
                slot = Slot(self._names[node], 0)
                used.append(Bottleneck(operator, slot, min(1.0, busy / span), "network"))
        return used


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
        return outcome_of("events", scenario, self._runs)

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
        """Check for drained pipelines: nothing is inside but tuples waiting at sources that are down. If that changes
        during the pause (such a source returns), the drain starts anew."""
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
