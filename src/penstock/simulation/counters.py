"""Counts of one pipeline while it is simulated, in memory that does not grow, and the outcome made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.report.report import slope
from penstock.simulation.layout import nanoseconds
from penstock.simulation.outcome import (
    Bottleneck,
    Latencies,
    LoadTimeline,
    OperatorOutcome,
    PipelineOutcome,
    StationOutcome,
)
from penstock.simulation.scenario import NANOSECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.simulation.layout import StageLayout
    from penstock.simulation.scenario import Scenario, SimulatedPipeline, Station

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

SAMPLE = 400_000
"""Max latencies kept; of more, this number is drawn at random."""

BUCKETS_PER_DECADE = 78
"""`10 ** (1/78)` is 1.03: percentiles over time are good to 3 %."""
SHORTEST = 1e-7
BUCKETS = 12 * BUCKETS_PER_DECADE


def full_note(pipeline: str, most: int) -> str:
    return f"pipeline '{pipeline}': {most} tuples were inside; its sources waited until there was room"


class LatencySample:
    """All latencies while they are few; then each with the same chance."""

    def __init__(self, draws: np.random.Generator) -> None:
        self._draws = draws
        self._chance = 1.0
        self._kept: list[Floats] = []
        self._size = 0

    def add(self, values: Floats) -> None:
        if self._chance < 1:
            values = values[self._draws.random(len(values)) < self._chance]
        self._kept.append(values)
        self._size += len(values)
        while self._size > SAMPLE:
            everything = np.concatenate(self._kept)
            self._kept = [everything[self._draws.random(len(everything)) < 0.5]]
            self._size = len(self._kept[0])
            self._chance /= 2

    def values(self) -> Floats:
        return np.concatenate(self._kept) if self._kept else np.empty(0)


@dataclass(slots=True)
class Counts:
    """Counts of one station, over all placements of the pipeline that have it."""

    station: Station
    received: int = 0
    processed: int = 0
    lost: int = 0
    busy: int = 0
    """Nanoseconds of its threads, past the warm-up."""
    slowed: int = 0
    """Part of `busy` that is owed to a lack of CPU."""
    worked: int = 0
    """Tuples started past the warm-up."""
    span: int = 0
    """Nanoseconds it was part of the pipeline, past the warm-up."""


@dataclass(slots=True)
class Counters:
    scenario: Scenario
    pipeline: SimulatedPipeline
    number: int
    """Position of the pipeline in the scenario."""
    length: int = field(init=False)
    """Nanoseconds simulated."""
    warm_up: int = field(init=False)
    stations: dict[tuple[str, Slot], Counts] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    edges: Ints = field(init=False)
    """Starts and ends of the spells."""
    offered: Ints = field(init=False)
    emitted: Ints = field(init=False)
    lost_parts: Floats = field(init=False)
    """Lost tuples in tuples of a source, by spell."""
    done: dict[str, Ints] = field(default_factory=dict)
    """Tuples caused by sources that operators processed, by spell; only operators that get any."""
    factors: dict[str, float] = field(default_factory=dict)
    past: dict[str, int] = field(default_factory=dict)
    """The same past the warm-up."""
    latency_sum: Floats = field(init=False)
    latency_count: Ints = field(init=False)
    buckets: Ints = field(init=False)
    largest: float = 0.0
    total: float = 0.0
    count: int = 0
    arrived: int = 0
    lost_travelling: int = 0
    hops: int = 0
    replayed: int = 0
    duplicated: int = 0
    at_warm_up: dict[tuple[str, Slot], int] = field(default_factory=dict)
    """Tuples at every station when the measuring began."""
    drained: list[tuple[float, float]] = field(default_factory=list)
    sample: LatencySample = field(init=False)

    def __post_init__(self) -> None:
        self.length, self.warm_up = nanoseconds(self.scenario.seconds), nanoseconds(self.scenario.warm_up)
        points = self.scenario.points
        self.edges = np.rint(np.linspace(0, self.length, points + 1)).astype(np.int64)
        self.offered = np.zeros(points, dtype=np.int64)
        self.emitted = np.zeros(points, dtype=np.int64)
        self.lost_parts = np.zeros(points)
        self.latency_sum = np.zeros(points)
        self.latency_count = np.zeros(points, dtype=np.int64)
        self.buckets = np.zeros((points, BUCKETS), dtype=np.int64)
        self.sample = LatencySample(np.random.default_rng([self.scenario.seed, self.number, 2]))

    def use(self, new_layout: StageLayout, since: int) -> list[list[Counts]]:
        """The counts of a layout's stations, stage by stage, that runs from `since` on."""
        self.factors = {stage.name: stage.factor for stage in new_layout.stages}
        rows = []
        for stage in new_layout.stages:
            self.sent.setdefault(stage.name, 0)
            if stage.factor > 0:
                self.done.setdefault(stage.name, np.zeros(len(self.offered), dtype=np.int64))
                self.past.setdefault(stage.name, 0)
            row = []
            for station in stage.stations:
                counts = self.stations.setdefault((station.operator, station.slot), Counts(station))
                counts.station = station
                counts.span += self.length - max(since, self.warm_up)
                row.append(counts)
            rows.append(row)
        return rows

    def retire(self, rows: list[list[Counts]], at: int) -> None:
        """The layout with these counts ends."""
        for row in rows:
            for counts in row:
                counts.span -= self.length - max(at, self.warm_up)

    def by_spell(self, times: Ints) -> Ints:
        """Return how many of rising times are in each spell; times after the last belong to none."""
        return np.diff(np.searchsorted(times, self.edges, side="left"))

    def spell(self, time: int) -> int:
        return min(int(np.searchsorted(self.edges, time, side="right")) - 1, len(self.offered) - 1)

    def note_lost(self, operator: str, amount: int, time: int) -> None:
        """Tuples that an operator had received; its stations count them."""
        factor = self.factors[operator]
        if factor > 0:
            self.lost_parts[self.spell(time)] += amount / factor

    def lose_on_the_way(self, operator: str, amount: int, time: int) -> None:
        """Tuples on their way to an operator."""
        self.lost_travelling += amount
        self.note_lost(operator, amount, time)

    def process(self, name: str, times: Ints, born: Ints, *, end: bool) -> None:
        """Tuples an operator processed, by rising time. What no source caused was born at a time below 0."""
        if name not in self.done or not len(times):
            return
        if born.min() < 0:
            times, born = times[born >= 0], born[born >= 0]
        bounds = np.searchsorted(times, self.edges, side="left")
        self.done[name] += np.diff(bounds)
        warm = int(np.searchsorted(times, self.warm_up, side="left"))
        self.past[name] += len(times) - warm
        if end and len(times):
            self._latencies(times, born, bounds, warm)

    def _latencies(self, times: Ints, born: Ints, bounds: Ints, warm: int) -> None:
        seconds = (times - born) / NANOSECONDS
        late = seconds[warm:]
        if len(late):
            self.count += len(late)
            self.total += float(late.sum())
            self.largest = max(self.largest, float(late.max()))
            self.sample.add(late)
        bucket = (np.log10(np.maximum(seconds, SHORTEST)) - np.log10(SHORTEST)) * BUCKETS_PER_DECADE
        bucket = np.minimum(bucket, BUCKETS - 1).astype(np.int64)
        for spell in np.flatnonzero(np.diff(bounds)):
            part = slice(bounds[spell], bounds[spell + 1])
            self.latency_sum[spell] += seconds[part].sum()
            self.latency_count[spell] += bounds[spell + 1] - bounds[spell]
            self.buckets[spell] += np.bincount(bucket[part], minlength=BUCKETS)

    def outcome(self, queued: dict[str, dict[Slot, int]], travelling: int, links: list[Bottleneck]) -> PipelineOutcome:
        """`queued` at every station by operator, `travelling` between them, at the end."""
        sources = len(self.pipeline.sources)
        span = (self.length - self.warm_up) / NANOSECONDS
        done = self._completed()
        offered = int(self.offered.sum())
        offered_rate = self.pipeline.load.rate_between(self.warm_up / NANOSECONDS, self.length / NANOSECONDS)
        sustained = min(amount / self.factors[name] for name, amount in self.past.items()) / span
        timeline = self._timeline(done * sources)
        stations = tuple(
            self._station(counts, queued.get(operator, {}).get(slot, 0))
            for (operator, slot), counts in self.stations.items()
        )
        warm = (timeline.seconds > self.warm_up / NANOSECONDS) & np.isfinite(timeline.latency_mean)
        return PipelineOutcome(
            name=self.pipeline.name,
            offered=offered,
            emitted=int(self.emitted.sum()),
            waiting=offered - int(self.emitted.sum()) + self.replayed,
            completed=float(done.sum()) * sources,
            arrived=self.arrived,
            queued=travelling + sum(station.queued for station in stations),
            travelling=travelling,
            lost=self.lost_travelling + sum(station.lost for station in stations),
            replayed=self.replayed,
            duplicated=self.duplicated,
            offered_rate=offered_rate,
            sustained_rate=sustained,
            latency=Latencies(
                self.count, self.total / self.count if self.count else 0.0, self.largest, self.sample.values()
            ),
            latency_slope=slope(timeline.seconds[warm], timeline.latency_mean[warm]),
            falling_behind=self._falling_behind(stations, span),
            timeline=timeline,
            operators={name: self._operator(name, stations) for name in self.sent},
            stations=stations,
            busiest=self._busiest(stations, links),
            drained=tuple(self.drained),
        )

    def _completed(self) -> Floats:
        """Tuples of one source by spell: as the operator counts that is furthest behind."""
        running = np.min([np.cumsum(row) / self.factors[name] for name, row in self.done.items()], axis=0)
        return np.diff(running, prepend=0.0)

    def _timeline(self, completed: Floats) -> LoadTimeline:
        offered, emitted = self.offered.astype(float), self.emitted.astype(float)
        left = np.cumsum(offered - completed - self.lost_parts * len(self.pipeline.sources))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self.latency_sum / self.latency_count
        return LoadTimeline(
            seconds=self.edges[1:] / NANOSECONDS,
            offered=offered,
            emitted=emitted,
            completed=completed,
            backlog=np.maximum(left, 0.0),
            latency_mean=mean,
            latency_p50=self._percentile(0.50),
            latency_p95=self._percentile(0.95),
        )

    def _percentile(self, part: float) -> Floats:
        """The middle of the bucket in which that part is reached, spell by spell."""
        running = np.cumsum(self.buckets, axis=1)
        wanted = np.ceil(part * running[:, -1:])
        position = np.argmax(running >= wanted, axis=1)
        middles: Floats = SHORTEST * 10 ** ((position + 0.5) / BUCKETS_PER_DECADE)
        middles[running[:, -1] == 0] = np.nan
        return middles

    def begin_measuring(self, queued: dict[str, dict[Slot, int]]) -> None:
        self.at_warm_up = {(name, slot): amount for name, row in queued.items() for slot, amount in row.items()}

    def _falling_behind(self, stations: tuple[StationOutcome, ...], span: float) -> float:
        """Return the max over stations of `(waiting at the end - at first) * service / threads`, by the seconds
        between.

        Tuples beyond one for every thread are waiting.
        """
        worst = 0.0
        for seen in stations:
            station = self.stations[seen.operator, seen.slot].station
            first = self.at_warm_up.get((seen.operator, seen.slot), 0)
            more = max(0, seen.queued - seen.threads) - max(0, first - seen.threads)
            worst = max(worst, more * station.service_seconds / seen.threads / span)
        return worst

    def _station(self, counts: Counts, queued: int) -> StationOutcome:
        station = counts.station
        room = counts.span * station.threads
        return StationOutcome(
            station.operator,
            station.slot,
            station.threads,
            counts.received,
            counts.processed,
            queued,
            counts.lost,
            counts.busy / NANOSECONDS,
            counts.busy / room if room > 0 else 0.0,
        )

    def _operator(self, name: str, stations: tuple[StationOutcome, ...]) -> OperatorOutcome:
        own = [station for station in stations if station.operator == name]
        room = sum(counts.span * counts.station.threads for (of, _), counts in self.stations.items() if of == name)
        busy = sum(station.busy_seconds for station in own)
        return OperatorOutcome(
            sum(station.received for station in own),
            sum(station.processed for station in own),
            self.sent[name],
            sum(station.queued for station in own),
            sum(station.lost for station in own),
            busy,
            busy * NANOSECONDS / room if room > 0 else 0.0,
        )

    def _busiest(self, stations: tuple[StationOutcome, ...], links: list[Bottleneck]) -> Bottleneck | None:
        """The highest utilisation to a thousandth; of equals the one with the most work waiting."""
        best: tuple[float, float] = (0.0, -1.0)
        busiest: Bottleneck | None = None
        for seen in stations:
            counts = self.stations[seen.operator, seen.slot]
            rank = (round(seen.utilisation, 3), seen.queued * counts.station.service_seconds / seen.threads)
            if counts.station.service_seconds > 0 and rank > best:
                short = counts.slowed > 0.01 * counts.busy
                best = rank
                busiest = Bottleneck(seen.operator, seen.slot, seen.utilisation, "cpu" if short else "service")
        for link in links:
            if (round(link.utilisation, 3), 0.0) > best:
                best, busiest = (round(link.utilisation, 3), 0.0), link
        return busiest
