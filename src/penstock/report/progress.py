"""Where a run stands while it goes on: figures of the last few batches, for whoever looks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.load import Load
    from penstock.report.report import BatchObservation

LAST_BATCHES = 20
"""Latency, busy times and CPU are those of so many batches."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates in tuples/s, latency in milliseconds, busy, cpu: 1.0 = one core all the time."""

    seconds: float
    """Since the first batch finished."""
    offered: float
    sustained: float
    backlog: int
    latency_ms: Mapping[str, float]
    busy: Mapping[str, float]
    slots: Mapping[int, tuple[float, float]]
    """cpu and memory in MB, by slot."""


@dataclass
class Progress:
    """Hears of a run. `saying` is what is going on before the first batch, and between trials."""

    saying: str = "starting Spark"
    load: Load | None = None
    seconds: float = 0.0
    """How long the run is to take past its first batch."""
    first: float | None = None
    """When the first batch finished."""
    _tuples: int = 0
    _recent: deque[BatchObservation] = field(default_factory=lambda: deque(maxlen=LAST_BATCHES + 1))

    def say(self, text: str) -> None:
        self.saying = text

    def begin(self, load: Load, seconds: float) -> None:
        """A run begins: what was seen of another is forgotten."""
        self.load, self.seconds, self.first, self._tuples = load, seconds, None, 0
        self._recent.clear()

    def add(self, batch: BatchObservation) -> None:
        if self.first is None:
            self.first = batch.finished
        else:
            self._tuples += batch.tuples
        self._recent.append(batch)

    def figures(self) -> Figures | None:
        """None before the second batch: a rate needs two ends."""
        recent = list(self._recent)
        if self.first is None or self.load is None or len(recent) < 2:
            return None
        last = recent[-1]
        passed, window = last.finished - self.first, last.finished - recent[0].finished
        if passed <= 0 or window <= 0:
            return None
        counted = recent[1:]
        latencies = np.concatenate([batch.latencies for batch in counted])
        busy: dict[str, float] = {}
        cpu: dict[int, float] = {}
        memory: dict[int, float] = {}
        for batch in counted:
            for name, seen in batch.operators.items():
                busy[name] = busy.get(name, 0.0) + seen.busy_seconds / window
            for slot in batch.slots:
                cpu[slot.slot] = cpu.get(slot.slot, 0.0) + slot.cpu_seconds / window
                memory[slot.slot] = slot.memory_mb
        return Figures(
            seconds=passed,
            offered=self.load.rate_between(max(0.0, passed - window), passed),
            sustained=self._tuples / passed,
            backlog=last.backlog,
            latency_ms={
                name: 1000 * float(np.quantile(latencies, part))
                for name, part in (("p50", 0.50), ("p95", 0.95))
                if len(latencies)
            },
            busy=busy,
            slots={slot: (cpu[slot], memory[slot]) for slot in sorted(cpu)},
        )
