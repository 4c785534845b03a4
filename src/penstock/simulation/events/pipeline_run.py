"""What happens to one pipeline between windows, event by event, and what it tells in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.simulation.counters import full_note
from penstock.simulation.events.flow import EventFlow
from penstock.simulation.events.stage_run import EventTuple
from penstock.simulation.system import NANOSECONDS

if TYPE_CHECKING:
    from penstock.cluster.topology import Slot
    from penstock.simulation.events.stage_run import EventStage
    from penstock.simulation.outcome import PipelineOutcome


class EventPipeline(EventFlow):
    """Failing, recovering, switching, summing up."""

    def fail(self, node: str, now: int) -> None:
        """Stations on a node lose what they work on, and what waits except at sources."""
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
        """A switch without a drain: what is inside is lost, whatever waits for what."""
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
