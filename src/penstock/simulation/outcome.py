"""The outcome of a simulation, and the report made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.report.report import LEAST_TAKEN_IN, STABLE_SLOPE, Audit, Moment, OperatorObservation, Report
from penstock.simulation.scenario import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Slot
    from penstock.simulation.counters import Counters
    from penstock.simulation.scenario import Scenario, SimulatedPipeline

    Floats = NDArray[np.float64]


PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The station that limits an unstable pipeline, or the link (`operator` is then the sender) of its node."""

    operator: str
    slot: Slot
    utilisation: float
    """Used share of its threads' time, or of the link's."""
    why: str
    """"service", "cpu" (its slot or node is short of CPU) or "network"."""

    def __str__(self) -> str:
        return f"'{self.operator}' on {self.slot} ({self.why}, {self.utilisation:.0%} busy)"


@dataclass(frozen=True, slots=True)
class StationOutcome:
    """Counts are of the whole time; `busy_seconds` and `utilisation` of the time past the warm-up.

    `received = processed + queued + lost`.
    """

    operator: str
    slot: Slot
    threads: int
    received: int
    processed: int
    queued: int
    """Waiting or worked on at the end."""
    lost: int
    busy_seconds: float
    utilisation: float
    """Used share of its threads' time."""


@dataclass(frozen=True, slots=True)
class OperatorOutcome:
    """The sums over its stations; `sent` is over all its streams."""

    received: int
    processed: int
    sent: int
    queued: int
    lost: int
    busy_seconds: float
    utilisation: float


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds from when a tuple of the source was due until a descendant was processed by an end, past the warm-up.

    `sample` holds all of them, or a random sample if there are very many.
    """

    count: int
    mean: float
    largest: float
    sample: Floats

    def quantile(self, part: float) -> float | None:
        return float(np.quantile(self.sample, part)) if len(self.sample) else None

    @property
    def milliseconds(self) -> dict[str, float]:
        """Return p50, p95 and p99; empty if nothing was completed."""
        quantiles = {name: self.quantile(part) for name, part in PERCENTILES.items()}
        return {name: 1000 * seconds for name, seconds in quantiles.items() if seconds is not None}


@dataclass(frozen=True, slots=True)
class LoadTimeline:
    """A row of equal spells; `seconds` is when each ends. Tuples are tuples of the source, counted in each spell."""

    seconds: Floats
    offered: Floats
    emitted: Floats
    completed: Floats
    backlog: Floats
    """Due but not completed nor lost, at the end of each spell."""
    latency_mean: Floats
    """Seconds; NaN if nothing was completed. So are the percentiles, exact to 3 %."""
    latency_p50: Floats
    latency_p95: Floats

    @property
    def degree(self) -> Floats:
        """Return the fairness degree from the start to each point: the completed part of the need, `sum of
        min(completed, needed) / sum of needed`; a spell needs the tuples offered in it."""
        served = np.minimum(np.cumsum(self.completed), np.cumsum(self.offered))
        needed = np.cumsum(self.offered)
        return np.divide(served, needed, out=np.ones_like(served), where=needed > 0)


@dataclass(frozen=True, slots=True)
class PipelineOutcome:
    """Rates in tuples/s of one source (every source emits the load), past the warm-up. Counts are of the whole time.

    A tuple of a source is completed when every operator has processed all tuples it causes: the min over operators of
    `(tuples processed) / (tuples it gets per tuple of a source)`. So the slower of two branches counts.
    """

    name: str
    offered: int
    """Tuples due, of all sources."""
    emitted: int
    waiting: int
    """Due, but not emitted: the loop is closed, queues are full, or sources stand still."""
    completed: float
    """Tuples of all sources."""
    arrived: int
    """Tuples processed by ends, whatever they come from."""
    queued: int
    """Tuples inside at the end: waiting, worked on, or travelling."""
    travelling: int
    """Part of `queued`: between stations."""
    lost: int
    """Tuples lost in outages and switches, at stations or on their way."""
    replayed: int
    """Emitted again."""
    duplicated: int
    """Processed by an end again because of that."""
    offered_rate: float
    sustained_rate: float
    latency: Latencies
    latency_slope: float
    """Seconds a second, past the warm-up."""
    falling_behind: float
    """Seconds a second, past the warm-up: how much longer the queue of the worst station takes to be worked off."""
    timeline: LoadTimeline
    operators: Mapping[str, OperatorOutcome]
    stations: tuple[StationOutcome, ...]
    busiest: Bottleneck | None
    """The station or link with the least spare capacity; None if nothing takes any time."""
    drained: tuple[tuple[float, float], ...] = ()
    """For every switch: the times at which sources stopped and continued."""

    @property
    def stable(self) -> bool:
        """Whether it kept the offered rate, as `Report.stable`, or at least latency does not rise. Also no station may
        fall behind: if a few are too slow, most tuples may not be affected."""
        if self.falling_behind > STABLE_SLOPE:
            return False
        if self.sustained_rate >= (1 - STABLE_SLOPE) * self.offered_rate:
            return True
        return self.sustained_rate >= LEAST_TAKEN_IN * self.offered_rate and self.latency_slope <= STABLE_SLOPE

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The station or link that limits it, if it is not stable."""
        return None if self.stable else self.busiest


@dataclass(frozen=True, slots=True)
class Use:
    """CPU in cores and memory in MB, past the warm-up."""

    cpu: float
    memory_mb: float


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Everything a simulation saw."""

    engine: str
    """"arrays" or "events"."""
    seconds: float
    warm_up: float
    pipelines: Mapping[str, PipelineOutcome]
    slots: Mapping[Slot, Use]
    nodes: Mapping[str, Use]
    hops: int
    """Tuples processed by operators other than sources, over all pipelines."""
    notes: tuple[str, ...] = field(default=())

    @property
    def fairness(self) -> Floats:
        """Fairness of the cluster over time: the mean of its pipelines' degrees at each point of the timelines."""
        degrees = np.array([pipeline.timeline.degree for pipeline in self.pipelines.values()])
        means: Floats = degrees.mean(axis=0)
        return means


class FinishedRun(Protocol):
    """A pipeline whose simulation has ended, in either engine."""

    @property
    def pipeline(self) -> SimulatedPipeline: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def finish(self) -> PipelineOutcome:
        """Count the tuples still outside and inside, and return the sums."""


def outcome_of(engine: str, scenario: Scenario, runs: Sequence[FinishedRun]) -> SimulationOutcome:
    """Return everything that the runs of a scenario saw."""
    outcomes = {run.pipeline.name: run.finish() for run in runs}
    slots, nodes = _uses_of(scenario, [run.counters for run in runs])
    return SimulationOutcome(
        engine=engine,
        seconds=scenario.seconds,
        warm_up=scenario.warm_up,
        pipelines=outcomes,
        slots=slots,
        nodes=nodes,
        hops=sum(run.counters.hops for run in runs),
        notes=tuple(note for run in runs for note in run.notes),
    )


# CPU and memory of slots and nodes, from the work of their stations.


def _uses_of(scenario: Scenario, counters: Sequence[Counters]) -> tuple[dict[Slot, Use], dict[str, Use]]:
    """Past the warm-up: CPU over the time, memory of a station `idle + (peak - idle) * min(1, rate / peak rate)`.

    Stations that were there part of the time count for their part.
    """
    cpu: dict[Slot, float] = {}
    memory: dict[Slot, float] = {}
    for run in counters:
        span = run.length - run.warm_up
        for counts in run.stations.values():
            station = counts.station
            there = counts.span / span
            idle, peak = station.memory_mb
            worked = counts.worked * station.service_seconds * NANOSECONDS
            load = min(1.0, worked / (counts.span * station.threads)) if counts.span else 0.0
            cpu[station.slot] = cpu.get(station.slot, 0.0) + (
                counts.worked * station.cpu_seconds * NANOSECONDS / span + station.idle_cpu * there
            )
            memory[station.slot] = memory.get(station.slot, 0.0) + there * (idle + (peak - idle) * load)
    order = sorted(cpu, key=lambda slot: (scenario.cluster.position(slot.node), slot.number))
    slots = {slot: Use(cpu[slot], memory[slot]) for slot in order}
    nodes: dict[str, Use] = {}
    for slot, use in slots.items():
        before = nodes.get(slot.node, Use(0.0, 0.0))
        nodes[slot.node] = Use(before.cpu + use.cpu, before.memory_mb + use.memory_mb)
    return slots, nodes


# The outcome as the report of a run: the same figures under the same names.


def report_of(outcome: SimulationOutcome, pipeline: str) -> Report:
    """Return the report of one of the pipelines, after the warm-up. Slots are those it has threads on, with all that
    runs there.

    Points of its timeline stand for batches. The backlog is the tuples that are due and not done.
    """
    seen = outcome.pipelines[pipeline]
    own = {station.slot for station in seen.stations}
    slots = [slot for slot in outcome.slots if slot in own]
    return Report(
        offered_rate=seen.offered_rate,
        sustained_rate=seen.sustained_rate,
        latency_slope=seen.latency_slope,
        seconds=outcome.seconds - outcome.warm_up,
        latency_ms=seen.latency.milliseconds,
        backlog=round(float(seen.timeline.backlog[-1])) if len(seen.timeline.backlog) else 0,
        operators={
            name: OperatorObservation(operator.processed, operator.sent, 0, 0, operator.busy_seconds)
            for name, operator in seen.operators.items()
        },
        slots={slot: (outcome.slots[slot].cpu, outcome.slots[slot].memory_mb) for slot in slots},
        audit=Audit(seen.emitted, seen.lost, seen.duplicated, 0, 0),
        batches=int((seen.timeline.seconds > outcome.warm_up).sum()),
        notes=_notes(seen),
        history=moments(seen.timeline),
    )


def moments(timeline: LoadTimeline) -> tuple[Moment, ...]:
    lengths = np.diff(timeline.seconds, prepend=0.0)
    rows = zip(
        timeline.seconds.tolist(),
        np.divide(timeline.completed, lengths, out=np.zeros_like(lengths), where=lengths > 0).tolist(),
        timeline.backlog.tolist(),
        timeline.latency_p50.tolist(),
        timeline.latency_p95.tolist(),
        strict=True,
    )
    return tuple(
        Moment(seconds, rate, round(backlog), None if math.isnan(p50) else p50, None if math.isnan(p95) else p95)
        for seconds, rate, backlog, p50, p95 in rows
    )


def _notes(seen: PipelineOutcome) -> tuple[str, ...]:
    notes = [
        f"sources stood still from {stopped:.2f} to {went_on:.2f} s: a switch" for stopped, went_on in seen.drained
    ]
    if seen.replayed:
        notes.append(f"{seen.replayed:,} tuples were emitted again after an outage")
    return tuple(notes)
