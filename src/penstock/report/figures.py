"""The present state of a run: figures of its last batches."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from penstock.report.report import arrived_rate, weighted_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.cluster.topology import Slot
    from penstock.dataflow.load import Load
    from penstock.report.report import BatchObservation, OperatorObservation


LAST_BATCHES = 20
"""Latency, busy times and CPU are those of so many batches."""
ARRIVAL_SECONDS = 2.0
"""What arrives is that of the batches of so long, at least one."""


@dataclass(frozen=True, slots=True)
class OperatorFlow:
    """Tuples/s that came and went, and how much it was at work: 1.0 = one thread all the time."""

    received: float
    sent: float
    busy: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates in tuples/s, latency in milliseconds, busy, cpu: 1.0 = one core all the time."""

    seconds: float
    """So long it has run."""
    of_seconds: float | None
    """So long it is to run; None: without end."""
    offered: float
    sustained: float
    backlog: int
    latency_ms: Mapping[str, float]
    busy: Mapping[str, float]
    slots: Mapping[str, tuple[float, float]]
    """cpu and memory in MB, by slot."""
    dead: int = 0
    """Dead letters of late."""
    recent: float | None = None
    """Tuples/s of late, where `sustained` is of the whole run."""
    operators: Mapping[str, OperatorFlow] = field(default_factory=dict)
    on_slots: Mapping[tuple[str, str], OperatorFlow] = field(default_factory=dict)
    """By operator and slot, where that is known."""
    batch_seconds: float | None = None
    """How long a batch takes, where batches are timed."""
    batches_per_second: float = 0.0
    lag: Mapping[str, int] = field(default_factory=dict)
    """Messages that wait in topics, by topic/partition."""


@dataclass
class RecentBatches:
    """The last batches of a run to which `load` is offered for `seconds`, and the figures they give. Without a load
    what came is what was offered; without seconds the run has no end."""

    load: Load | None
    seconds: float | None
    _first: float | None = None
    """When the first batch finished."""
    _tuples: int = 0
    _recent: deque[BatchObservation] = field(default_factory=lambda: deque(maxlen=LAST_BATCHES + 1))

    def add(self, batch: BatchObservation) -> None:
        if self._first is None:
            self._first = batch.finished
        else:
            self._tuples += batch.tuples
        self._recent.append(batch)

    def figures(self) -> Figures | None:
        """None before the second batch: a rate needs two ends."""
        recent = list(self._recent)
        if self._first is None or len(recent) < 2:
            return None
        last = recent[-1]
        passed, window = last.finished - self._first, last.finished - recent[0].finished
        if passed <= 0 or window <= 0:
            return None
        counted = recent[1:]
        latencies = np.concatenate([batch.latencies for batch in counted])
        busy: dict[str, float] = {}
        cpu: dict[Slot, float] = {}
        memory: dict[Slot, float] = {}
        for batch in counted:
            for name, seen in batch.operators.items():
                busy[name] = busy.get(name, 0.0) + seen.busy_seconds / window
            for slot in batch.slots:
                cpu[slot.where] = cpu.get(slot.where, 0.0) + slot.cpu_seconds / window
                memory[slot.where] = slot.memory_mb
        weights = np.concatenate([np.full(len(batch.latencies), batch.latency_weight) for batch in counted])
        came = sum(batch.tuples for batch in counted) / window
        timed = [batch.seconds for batch in counted if batch.seconds > 0]
        return Figures(
            seconds=passed,
            of_seconds=self.seconds,
            offered=self._offered(recent, passed),
            sustained=self._tuples / passed,
            backlog=last.backlog,
            latency_ms={
                name: 1000 * weighted_quantile(latencies, weights, part)
                for name, part in (("p50", 0.50), ("p95", 0.95))
                if len(latencies)
            },
            busy=busy,
            slots={str(slot): (cpu[slot], memory[slot]) for slot in sorted(cpu)},
            dead=sum(seen.dead for batch in counted for seen in batch.operators.values()),
            recent=came,
            operators=flows(((name, seen) for batch in counted for name, seen in batch.operators.items()), window),
            on_slots=flows(
                (
                    ((name, str(slot.where)), seen)
                    for batch in counted
                    for slot in batch.slots
                    for name, seen in slot.operators.items()
                ),
                window,
            ),
            batch_seconds=sum(timed) / len(timed) if timed else None,
            batches_per_second=len(timed) / window,
            lag=last.lag,
        )

    def _offered(self, recent: list[BatchObservation], passed: float) -> float:
        """Tuples/s that arrived of late: who follows a load must see a jump before it is an average. Without a load,
        what was taken in and what was left waiting."""
        last = recent[-1]
        begin = next(
            (batch for batch in reversed(recent) if last.finished - batch.finished >= ARRIVAL_SECONDS), recent[0]
        )
        window = last.finished - begin.finished
        if self.load is not None:
            return self.load.rate_between(max(0.0, passed - window), passed)
        taken = sum(batch.tuples for batch in recent if batch.finished > begin.finished)
        return arrived_rate(taken, begin.backlog, last.backlog, window)


K = TypeVar("K")


def flows(seen: Iterable[tuple[K, OperatorObservation]], seconds: float) -> dict[K, OperatorFlow]:
    """Observations of the same thing added up, per second."""
    sums: dict[K, tuple[float, float, float]] = {}
    for key, observation in seen:
        received, sent, busy = sums.get(key, (0.0, 0.0, 0.0))
        sums[key] = (received + observation.received, sent + observation.sent, busy + observation.busy_seconds)
    return {key: OperatorFlow(*(value / seconds for value in values)) for key, values in sums.items()}


# Backlog of topics, by topic/partition, for reports, figures and statistics.


def kept_apart(lags: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What waits for each source, by topic/partition, as one. Sources that read the same topic are each at a place of
    their own: the second of them has `topic/partition#2`."""
    joined: dict[str, int] = {}
    readers: Counter[str] = Counter()
    for lag in lags:
        for where, count in lag.items():
            readers[where] += 1
            joined[where if readers[where] == 1 else f"{where}#{readers[where]}"] = count
    return joined


def by_source(lag: Mapping[str, int]) -> dict[str, int]:
    """The same from what is kept by source/topic/partition."""
    sources = dict.fromkeys(key.partition("/")[0] for key in lag)
    return kept_apart(
        {key.partition("/")[2]: count for key, count in lag.items() if key.partition("/")[0] == source}
        for source in sources
    )


def gone_notes(gone: Mapping[str, int]) -> list[str]:
    """Of messages that retention took before they were read."""
    return [f"topic and partition {where}: {count:,} messages were gone unread" for where, count in gone.items()]


def waiting_notes(lag: Mapping[str, int]) -> list[str]:
    return [f"topic and partition {where}: {count:,} messages wait" for where, count in lag.items() if count]
