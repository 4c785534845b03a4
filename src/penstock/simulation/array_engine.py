"""The engine without events: one operator after the other, a window of time at once.

In the window [t0, t1) an operator knows all its arrivals before t1, because its senders were simulated before it. It
starts the tuples that can start before t1, and sends on those that are done before t1; the rest waits for the next
window. So a window may be of any length, and memory holds only the tuples inside the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.simulation import queueing as serving
from penstock.simulation.array_stage import NEVER, StageRun, Tuples
from penstock.simulation.counters import Counters, full_note
from penstock.simulation.layout import emissions_of, layout, nanoseconds, processors_of, window_ends
from penstock.simulation.outcome import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.cluster.topology import Slot
    from penstock.simulation import contention
    from penstock.simulation.layout import Lane, StageLayout
    from penstock.simulation.outcome import PipelineOutcome, SimulationOutcome
    from penstock.simulation.scenario import Scenario, SimulatedPipeline, Switch


# One pipeline while it is simulated without events: its sources, its operators in order, its streams.


class PipelineRun:
    """`window` moves everything inside forward to the end of a window."""

    def __init__(
        self,
        scenario: Scenario,
        pipeline: SimulatedPipeline,
        first_layout: StageLayout,
        number: int,
        processors: contention.Processors | None,
    ) -> None:
        self.scenario = scenario
        self.pipeline = pipeline
        self.processors = processors
        self._number = number
        self.counters = Counters(scenario, pipeline, number)
        self._emissions = emissions_of(scenario, pipeline, number)
        self._switches = sorted(
            (switch for switch in scenario.switches if switch.pipeline == pipeline.name), key=lambda switch: switch.at
        )
        self._draining: Switch | None = None
        self._open_from = 0
        self._stopped = 0
        self._last = 0
        self._full = False
        self._begin(first_layout, 0)

    def _begin(self, new_layout: StageLayout, at: int) -> None:
        self._layout = new_layout
        rows = self.counters.use(new_layout, at)
        self._rows = rows
        self._stages = [
            StageRun(stage, row, (self.scenario.seed, self._number, 3, position))
            for position, (stage, row) in enumerate(zip(new_layout.stages, rows, strict=True))
        ]
        self._entries = new_layout.entries()
        self._sent = {id(lane): 0 for stage in new_layout.stages for lane in stage.outputs}
        self._ticks = {
            id(lane): int(at // lane.constant_gap) if lane.constant_gap else 0
            for stage in new_layout.stages
            for lane in stage.outputs
        }
        self._speeds = [self.processors.enter(stage.stations) for stage in new_layout.stages] if self.processors else []
        for outage in self.scenario.outages:
            until = NEVER if outage.end is None else nanoseconds(outage.end)
            if nanoseconds(outage.start) <= at < until:
                self._fail(outage.node, at, until)

    def _end(self, at: int) -> None:
        """The stations of this layout stop."""
        for run in self._stages:
            run.flush()
        if self.processors is not None:
            for where in self._speeds:
                self.processors.leave(where)
        self.counters.retire(self._rows, at)

    @property
    def inside(self) -> int:
        return sum(run.inside for run in self._stages)

    def window(self, start: int, end: int) -> None:
        """Everything that happens in [start, end). Outages and switches happen only at the start of windows."""
        self._happen(start)
        if start == self.counters.warm_up:
            self.counters.begin_measuring(self._queued())
        self._move(start, end, emitting=self._draining is None)
        while self._draining is not None and self.inside == self._stuck():
            if not self._resume(end):
                return
            self._move(self._open_from, end, emitting=True)

    def _happen(self, start: int) -> None:
        busy = self._draining is not None and self.inside != self._stuck()
        for outage in self.scenario.outages:
            until = NEVER if outage.end is None else nanoseconds(outage.end)
            if nanoseconds(outage.start) == start:
                self._fail(outage.node, start, until)
            if until == start:
                for run in self._stages:
                    back = [n for n, station in enumerate(run.stage.stations) if station.slot.node == outage.node]
                    run.recover(np.array(back, dtype=np.int64), start)
        if busy:
            self._last = max(self._last, start)
        while self._switches and nanoseconds(self._switches[0].at) <= start and self._draining is None:
            self._draining = self._switches.pop(0)
            self._last = start
            self._stopped = start
            if not self._draining.drain:
                self._drop_everything(start)

    def _fail(self, node: str, at: int, until: int) -> None:
        for run in self._stages:
            there = [n for n, station in enumerate(run.stage.stations) if station.slot.node == node]
            if there:
                self.counters.note_lost(run.stage.name, int(run.fail(np.array(there), until).sum()), at)

    def _drop_everything(self, at: int) -> None:
        for run in self._stages:
            self.counters.lose_on_the_way(run.stage.name, run.travelling, at)
            run.coming = [[] for _ in run.coming]
            run.lost += run.queued()
            self.counters.note_lost(run.stage.name, int(run.queued().sum()), at)
            run.queue, run.done = Tuples.none(), Tuples.none()
            run.work = run.work[:0]

    def _resume(self, end: int) -> bool:
        """The new stations begin when everything is done and the pause is over; not in this window: False."""
        switch = self._draining
        if switch is None:
            return False
        ready = max(self._last, self._stopped) + nanoseconds(switch.pause_seconds)
        if ready >= end:
            return False
        stuck = [self._stages[position].take_stuck() for position in self._layout.sources]
        self._end(ready)
        self._draining = None
        self._open_from = ready
        self._begin(layout(self.pipeline, switch.stations, self.scenario, self._number), ready)
        for born, entry, position in zip(stuck, self._entries, self._layout.sources, strict=True):
            held = Tuples(np.full(len(born), ready), born, entry.many(len(born)))
            self._stages[position].coming[0].append(held)
        self.counters.drained.append((self._stopped / 1e9, ready / 1e9))
        return True

    def _stuck(self) -> int:
        """Tuples that wait at sources which are down: they are no reason to wait with a switch."""
        return sum(self._stages[position].stuck for position in self._layout.sources)

    def _move(self, start: int, end: int, *, emitting: bool) -> None:
        warm = start >= self.counters.warm_up
        if emitting:
            self._emit(max(start, self._open_from), end)
        for position, run in enumerate(self._stages):
            speed = self.processors.speed[self._speeds[position]] if self.processors is not None else None
            lost = run.lost.sum()
            ready = run.advance(end, speed, warm=warm)
            if run.down.any() and run.lost.sum() > lost:
                self.counters.note_lost(run.stage.name, int(run.lost.sum() - lost), start)
                self._last = max(self._last, run.last_lost)
            if self.processors is not None:
                self.processors.has(self._speeds[position], run.available)
            if len(ready):
                self._last = max(self._last, int(ready.time[-1]))
                if not run.stage.source:
                    self.counters.hops += len(ready)
                self.counters.process(run.stage.name, ready.time, ready.born, end=run.stage.end)
                self.counters.arrived += len(ready) if run.stage.end else 0
            for lane in run.stage.outputs:
                self._send(lane, ready, end, ticking=emitting)

    def _emit(self, start: int, end: int) -> None:
        room = max(0, self.scenario.most_waiting - self.inside)
        for emission, entry, position in zip(self._emissions, self._entries, self._layout.sources, strict=True):
            due = emission.take(end, room // len(self._emissions))
            self._full = self._full or len(due) >= room // len(self._emissions)
            if not len(due):
                continue
            self.counters.offered += self.counters.by_spell(due)
            times = np.maximum(due, start)
            self.counters.emitted += self.counters.by_spell(times)
            self._stages[position].coming[0].append(Tuples(times, due, entry.many(len(due))))

    def _send(self, lane: Lane, ready: Tuples, end: int, *, ticking: bool) -> None:
        """Deal the tuples that the sender of a stream has done, and put them on their way."""
        selectivity = lane.route.selectivity
        out = ready
        if selectivity != 1.0:
            before = self._sent[id(lane)]
            self._sent[id(lane)] = before + len(ready)
            amounts = serving.copies(before, len(ready), selectivity)
            out = ready.repeated(amounts)
        if lane.constant_gap:
            out = self._with_constant(lane, out, end, ticking=ticking)
        if not len(out):
            return
        dealer = lane.dealer
        targets = dealer.many(len(out), out.place if dealer.needs_senders else None)
        if dealer.every:
            out = out.repeated(dealer.copies)
        receiver = self._stages[lane.receiver]
        if lane.delay is not None:
            arrives = out.time + lane.delay if lane.delay else out.time
        else:
            stations = receiver.stage.station_of[targets] if receiver.stage.by_thread else targets
            arrives = out.time + lane.delays[out.place, stations]
        receiver.coming[lane.entry].append(Tuples(arrives, out.born, targets))
        self.counters.sent[self._stages[lane.sender].stage.name] += len(out)

    def _with_constant(self, lane: Lane, out: Tuples, end: int, *, ticking: bool) -> Tuples:
        """Tuples the stream carries by itself: number n (from 1) at `n / constant` seconds, from station n mod S."""
        first = self._ticks[id(lane)]
        last = int(end / lane.constant_gap)
        numbers = np.arange(first + 1, last + 2)
        times = np.rint(numbers * lane.constant_gap).astype(np.int64)
        numbers, times = numbers[times < end], times[times < end]
        self._ticks[id(lane)] = first + len(numbers)
        if not ticking or not len(times):
            return out
        size = len(self._stages[lane.sender].stage.stations)
        both = Tuples(
            np.concatenate((out.time, times)),
            np.concatenate((out.born, -1 - times)),
            np.concatenate((out.place, numbers % size)),
        )
        return both.pick(serving.in_time(both.time))

    def finish(self) -> PipelineOutcome:
        """Count the tuples still outside and inside, and return the sums."""
        for emission in self._emissions:
            self.counters.offered += emission.rest(self.counters.edges)
        for run in self._stages:
            run.flush()
        travelling = sum(run.travelling for run in self._stages)
        return self.counters.outcome(self._queued(), travelling, [])

    @property
    def notes(self) -> tuple[str, ...]:
        return (full_note(self.pipeline.name, self.scenario.most_waiting),) if self._full else ()

    def _queued(self) -> dict[str, dict[Slot, int]]:
        return {
            run.stage.name: {
                station.slot: amount for station, amount in zip(run.stage.stations, run.queued().tolist(), strict=True)
            }
            for run in self._stages
        }


def simulate_arrays(scenario: Scenario, progress: Callable[[float], None] | None = None) -> SimulationOutcome:
    layouts = [
        layout(pipeline, pipeline.stations, scenario, number) for number, pipeline in enumerate(scenario.pipelines)
    ]
    processors = processors_of(scenario, layouts)
    runs = [
        PipelineRun(scenario, pipeline, own_layout, number, processors)
        for number, (pipeline, own_layout) in enumerate(zip(scenario.pipelines, layouts, strict=True))
    ]
    for start, end in window_ends(scenario, shared_out=processors is not None):
        for run in runs:
            run.window(start, end)
        if processors is not None:
            processors.next_window(end - start)
        if progress is not None:
            progress(end / (scenario.seconds * 1e9))
    return outcome_of("arrays", scenario, runs)
