"""One operator simulated without events: tuples on their way to it, waiting, and in work."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify
from typing import TYPE_CHECKING

import numpy as np

from penstock.simulation import contention
from penstock.simulation import queueing as serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.simulation.counters import Counts
    from penstock.simulation.layout import SimulatedStage

    Ints = NDArray[np.int64]

NEVER = 1 << 60


@dataclass(slots=True)
class Tuples:
    """When they come or are done, when the tuple of the source was due that caused them (below 0: none did), and who
    has them: the station they go to, the thread they wait for, or the station they come from."""

    time: Ints
    born: Ints
    place: Ints

    @classmethod
    def none(cls) -> Tuples:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty)

    def __len__(self) -> int:
        return len(self.time)

    def pick(self, which: Ints | NDArray[np.bool_] | None) -> Tuples:
        if which is None:
            return self
        return Tuples(self.time[which], self.born[which], self.place[which])

    def repeated(self, amounts: Ints | int) -> Tuples:
        return Tuples(np.repeat(self.time, amounts), np.repeat(self.born, amounts), np.repeat(self.place, amounts))

    def at(self, time: Ints) -> Tuples:
        return Tuples(time, self.born, self.place)

    def to(self, place: Ints) -> Tuples:
        return Tuples(self.time, self.born, place)


def joined(parts: Sequence[Tuples]) -> Tuples:
    filled = [part for part in parts if part.time.size]
    if len(filled) == 1:
        return filled[0]
    if not filled:
        return Tuples.none()
    return Tuples(
        np.concatenate([part.time for part in filled]),
        np.concatenate([part.born for part in filled]),
        np.concatenate([part.place for part in filled]),
    )


class StageRun:
    """Simulation of a stage: `advance` takes all arrivals before the end of a window and returns the tuples done before
    it."""

    def __init__(self, stage: SimulatedStage, counts: list[Counts], seeds: Sequence[int]) -> None:
        self.stage = stage
        self.counts = counts
        self.coming: list[list[Tuples]] = [[] for _ in range(max(1, stage.inputs))]
        self.queue = Tuples.none()
        self.work = np.empty(0, dtype=np.int64)
        """Work of the waiting tuples, if it is drawn."""
        self.done = Tuples.none()
        self.free: Ints = np.zeros(int(stage.threads.sum()), dtype=np.int64)
        self.turns: Ints = np.zeros(len(stage.stations), dtype=np.int64)
        self.down: NDArray[np.bool_] = np.zeros(len(stage.stations), dtype=bool)
        size = len(stage.stations)
        self.received, self.processed, self.lost = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self.worked, self.busy, self.slowed = (np.zeros(size, dtype=np.int64) for _ in range(3))
        self.last_lost = 0
        self.available: Ints = np.zeros(size, dtype=np.int64)
        self._one_each = bool((stage.threads == 1).all())
        self._shared = stage.random and not stage.by_thread and not self._one_each
        self._draws = [np.random.default_rng([*seeds, station]) for station in range(size)] if stage.random else []

    @property
    def inside(self) -> int:
        coming = sum(len(part) for parts in self.coming for part in parts)
        return coming + len(self.queue) + len(self.done)

    @property
    def travelling(self) -> int:
        return sum(len(part) for parts in self.coming for part in parts)

    def advance(self, end: int, speed: NDArray[np.float64] | None, *, warm: bool) -> Tuples:
        """Return the tuples done before `end`, by time, with the stations they come from."""
        new = self._arrived(end)
        if self.stage.passing:
            return self._pass(new, warm=warm)
        if self._shared:
            self._serve_shared(new, end, speed, warm=warm)
        else:
            self._serve(new, end, speed, warm=warm)
        return self._released(end)

    def _arrived(self, end: int) -> Tuples:
        """Return arrivals before `end`, by time; ties in the order of the inputs."""
        parts = []
        for entry, held in enumerate(self.coming):
            if not held:
                continue
            whole = joined(held)
            if len(whole) and int(whole.time.max()) >= end:
                soon = whole.time < end
                self.coming[entry] = [whole.pick(~soon)]
                whole = whole.pick(soon)
            else:
                self.coming[entry] = []
            parts.append(whole)
        new = joined(parts)
        new = new.pick(serving.in_time(new.time))
        stations = self._stations(new.place)
        self.received += np.bincount(stations, minlength=len(self.received))
        if self.down.any() and not self.stage.source:
            gone = self.down[stations]
            self.lost += np.bincount(stations[gone], minlength=len(self.lost))
            self.last_lost = int(new.time[gone].max(initial=self.last_lost))
            new = new.pick(~gone)
        if self.stage.gate:
            new = new.at(-(-new.time // self.stage.gate) * self.stage.gate)
        return new

    def _stations(self, places: Ints) -> Ints:
        return self.stage.station_of[places] if self.stage.by_thread else places

    def _pass(self, new: Tuples, *, warm: bool) -> Tuples:
        if self.stage.by_thread:
            new = new.to(self.stage.station_of[new.place])
        if self.down.any():
            waits = self.down[new.place]
            self.queue = joined((self.queue, new.pick(waits)))
            new = new.pick(~waits)
        if len(self.queue):
            new = joined((self._back(), new))
        amounts = np.bincount(new.place, minlength=len(self.received))
        self.available = amounts
        self.processed += amounts
        if warm:
            self.worked += amounts
        return new

    def _back(self) -> Tuples:
        """Return tuples that waited for their station to return, station by station."""
        back = ~self.down[self.queue.place]
        held, self.queue = self.queue.pick(back), self.queue.pick(~back)
        held = held.pick(serving.by_group(held.place, len(self.down)))
        return held.at(np.maximum(held.time, self.free[self.stage.bases[held.place]]))

    def _lined_up(self, new: Tuples) -> Tuples:
        """Stations become threads: tuple n of a station is for its thread n mod k."""
        stage = self.stage
        if stage.by_thread or self._one_each:
            return new
        order = serving.by_group(new.place, len(stage.stations))
        grouped = new.pick(order)
        amounts = np.bincount(new.place, minlength=len(self.turns))
        turns = serving.ranks(grouped.place, amounts)
        if len(stage.stations) == 1:
            turns += self.turns[0]
            turns %= int(stage.threads[0])
        else:
            turns += np.repeat(self.turns, amounts)
            turns %= np.repeat(stage.threads, amounts)
            turns += np.repeat(stage.bases, amounts)
        self.turns = (self.turns + amounts) % stage.threads
        return grouped.to(turns)

    def _serve(self, new: Tuples, end: int, speed: NDArray[np.float64] | None, *, warm: bool) -> None:
        """Every thread takes its own tuples in their order."""
        stage = self.stage
        drawn = self._drawn(new)
        both = joined((self.queue, self._lined_up(new)))
        if stage.random:
            drawn = np.concatenate((self.work, drawn))
        if not len(both):
            self.available = np.zeros_like(self.received)
            return
        order = serving.by_group(both.place, len(self.free))
        both = both.pick(order)
        service = stage.service if speed is None else contention.slowed(stage.service, speed)
        station = stage.station_of[both.place]
        if not stage.random:
            work = service[station]
        else:
            drawn = drawn if order is None else drawn[order]
            work = drawn if speed is None else np.rint(drawn / speed[station]).astype(np.int64)
        done = serving.completions(both.time, work, both.place, self.free)
        self.available = np.bincount(station, minlength=len(self.received))
        started = done - work < end
        if bool(started.all()):
            self.queue, self.work = Tuples.none(), np.empty(0, dtype=np.int64)
        else:
            self.queue = both.pick(~started)
            both, done, station, work = both.pick(started), done[started], station[started], work[started]
            if stage.random:
                self.work = drawn[~started]
        if len(done):
            self.free[both.place] = done  # the last of each thread stays
        self._account(station, work, service if not stage.random else drawn[started], warm=warm)
        self._add_done(both.at(done))

    def _serve_shared(self, new: Tuples, end: int, speed: NDArray[np.float64] | None, *, warm: bool) -> None:
        """The thread that is free first takes the next tuple, station by station."""
        stage = self.stage
        drawn = np.concatenate((self.work, self._drawn(new)))
        both = joined((self.queue, new))
        self.available = np.bincount(both.place, minlength=len(self.received))
        kept, kept_work, finished = [], [], []
        for station in np.flatnonzero(self.available):
            mine = np.flatnonzero(both.place == station)
            work = drawn[mine] if speed is None else np.rint(drawn[mine] / speed[station]).astype(np.int64)
            threads = slice(stage.bases[station], stage.bases[station] + stage.threads[station])
            heap = self.free[threads].tolist()
            heapify(heap)
            done, heap = serving.shared_completions(both.time[mine], work, heap, end)
            self.free[threads] = heap
            began, later = mine[: len(done)], mine[len(done) :]
            kept.append(both.pick(later))
            kept_work.append(drawn[later])
            place = np.full(len(done), stage.bases[station])
            finished.append(Tuples(done, both.born[began], place))
            began_work = drawn[began]
            self._account(np.full(len(done), station), work[: len(done)], began_work, warm=warm)
        self.queue = joined(kept)
        self.work = np.concatenate(kept_work) if kept_work else np.empty(0, dtype=np.int64)
        order = serving.in_time(self.queue.time)
        self.queue, self.work = self.queue.pick(order), self.work if order is None else self.work[order]
        self._add_done(joined(finished))

    def _drawn(self, new: Tuples) -> Ints:
        """Exponential service times, drawn station by station in the order of arrival."""
        times = np.zeros(len(new), dtype=np.int64)
        if not self.stage.random:
            return times
        stations = self._stations(new.place)
        for station in np.flatnonzero(np.bincount(stations, minlength=len(self._draws))):
            mine = stations == station
            mean = float(self.stage.service[station])
            times[mine] = np.rint(mean * self._draws[station].exponential(size=int(mine.sum())))
        return times

    def _account(self, stations: Ints, work: Ints, unslowed: Ints, *, warm: bool) -> None:
        """Account for work after the warm-up. `unslowed` is the work at full speed if it is drawn, else the present
        service of each station."""
        if not warm or not len(stations):
            return
        size = len(self.worked)
        amounts = np.bincount(stations, minlength=size)
        self.worked += amounts
        if self.stage.random:
            self.busy += np.bincount(stations, weights=work, minlength=size).astype(np.int64)
            self.slowed += np.bincount(stations, weights=work - unslowed, minlength=size).astype(np.int64)
        else:
            self.busy += amounts * unslowed
            self.slowed += amounts * (unslowed - self.stage.service)

    def _add_done(self, more: Tuples) -> None:
        """Kept thread by thread, so that of equal times the first thread comes first."""
        if not len(self.done):
            self.done = more
        elif len(more):
            where = np.searchsorted(more.place, self.done.place, side="left")
            held = self.done
            self.done = Tuples(
                np.insert(more.time, where, held.time),
                np.insert(more.born, where, held.born),
                np.insert(more.place, where, held.place),
            )

    def _released(self, end: int) -> Tuples:
        ready = self.done
        soon = ready.time < end
        if bool(soon.all()):
            self.done = Tuples.none()
        else:
            self.done, ready = ready.pick(~soon), ready.pick(soon)
        ready = ready.pick(serving.in_time(ready.time))
        ready = ready.to(self.stage.station_of[ready.place])
        self.processed += np.bincount(ready.place, minlength=len(self.processed))
        return ready

    def fail(self, stations: Ints, until: int) -> Ints:
        """Take stations down; return how many tuples each loses. A source loses only tuples in work, and continues with
        the waiting ones at `until`."""
        self.down[stations] = True
        before = self.lost.copy()
        held = self.down[self.stage.station_of[self.done.place]]
        self.lost += np.bincount(self.stage.station_of[self.done.place[held]], minlength=len(self.lost))
        self.done = self.done.pick(~held)
        threads = self.down[self.stage.station_of]
        if not self.stage.source:
            waiting = self._waiting_stations()
            gone = self.down[waiting]
            self.lost += np.bincount(waiting[gone], minlength=len(self.lost))
            self.queue = self.queue.pick(~gone)
            if self.stage.random:
                self.work = self.work[~gone]
        self.free[threads] = until
        return self.lost - before

    def recover(self, stations: Ints, at: int) -> None:
        self.down[stations] = False
        back = np.isin(self.stage.station_of, stations)
        self.free[back] = at

    def _waiting_stations(self) -> Ints:
        whole = self._shared or self.stage.passing
        return self.queue.place if whole else self.stage.station_of[self.queue.place]

    @property
    def stuck(self) -> int:
        """Tuples that wait for stations which are down."""
        return int(np.count_nonzero(self.down[self._waiting_stations()])) if self.down.any() else 0

    def take_stuck(self) -> Ints:
        """When those tuples were born, in order; they leave."""
        stations = self._waiting_stations()
        held = self.down[stations]
        self.received -= np.bincount(stations[held], minlength=len(self.received))
        born = np.sort(self.queue.born[held])
        self.queue = self.queue.pick(~held)
        if self.stage.random:
            self.work = self.work[~held]
        return born

    def queued(self) -> Ints:
        """Waiting or worked on, by station."""
        waiting = self._waiting_stations()
        return np.bincount(waiting, minlength=len(self.lost)) + np.bincount(
            self.stage.station_of[self.done.place], minlength=len(self.lost)
        )

    def flush(self) -> None:
        """Hands its counts over."""
        columns = (self.received, self.processed, self.lost, self.worked, self.busy, self.slowed)
        for counts, row in zip(self.counts, zip(*(column.tolist() for column in columns), strict=True), strict=True):
            received, processed, lost, worked, busy, slowed = row
            counts.received += received
            counts.processed += processed
            counts.lost += lost
            counts.worked += worked
            counts.busy += busy
            counts.slowed += slowed
