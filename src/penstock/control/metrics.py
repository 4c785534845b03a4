"""The one list of metrics: what pipelines and nodes report, what the store keeps, REST answers and Prometheus shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a reading is of."""

    PIPELINE = "pipeline"
    OPERATOR = "operator"
    THREAD = "thread"
    """The threads of one operator on one slot; `threads` says how many."""
    PARTITION = "partition"
    """Of a topic the pipeline reads."""
    NODE = "node"


class Metric(StrEnum):
    OFFERED_RATE = "offered_rate"
    RATE = "rate"
    BACKLOG = "backlog"
    LAG = "lag"
    LATENCY_MS = "latency_ms"
    BUSY = "busy"
    CPU = "cpu"
    MEMORY_MB = "memory_mb"
    NEEDED = "needed"
    HELD = "held"
    FAIRNESS = "fairness"
    PRIORITY = "priority"
    DEATHS = "deaths"
    RATE_IN = "rate_in"
    RATE_OUT = "rate_out"
    THREADS = "threads"
    SLOTS_USED = "slots_used"
    BATCH_COST_S = "batch_cost_s"


@dataclass(frozen=True, slots=True)
class Meaning:
    unit: str
    about: str
    scopes: tuple[Scope, ...] = (Scope.PIPELINE,)


_PARTS = (Scope.OPERATOR, Scope.THREAD)

MEANINGS = {
    Metric.OFFERED_RATE: Meaning("tuples/s", "Tuples that arrive at the sources."),
    Metric.RATE: Meaning("tuples/s", "Tuples the pipeline has processed."),
    Metric.BACKLOG: Meaning("tuples", "Tuples that have arrived and are not processed yet."),
    Metric.LAG: Meaning("messages", "Messages that wait in the topics it reads.", (Scope.PIPELINE, Scope.PARTITION)),
    Metric.LATENCY_MS: Meaning("ms", "From arrival to the sink, 95th percentile of the last window."),
    Metric.BUSY: Meaning(
        "share", "Part of what its slots or threads can do that is used; 1 is all.", (Scope.PIPELINE, *_PARTS)
    ),
    Metric.NEEDED: Meaning("units", "Units the target needs by the models."),
    Metric.HELD: Meaning("units", "Units its executors are on."),
    Metric.FAIRNESS: Meaning("share", "Integral of held over integral of desired; 1 is all it desired."),
    Metric.PRIORITY: Meaning("level", "Priority level; 1 is the highest."),
    Metric.DEATHS: Meaning("count", "Deaths of its driver in a row."),
    Metric.RATE_IN: Meaning("tuples/s", "Tuples that come to the operator.", _PARTS),
    Metric.RATE_OUT: Meaning("tuples/s", "Tuples the operator sends on.", _PARTS),
    Metric.THREADS: Meaning("count", "Threads of the operator.", _PARTS),
    Metric.CPU: Meaning("cores", "CPU its executors use; 1 is one core all the time.", (Scope.PIPELINE, Scope.NODE)),
    Metric.MEMORY_MB: Meaning("MB", "Memory its executors hold.", (Scope.PIPELINE, Scope.NODE)),
    Metric.BATCH_COST_S: Meaning("s", "What a batch takes besides the work in it: its fixed cost."),
    Metric.SLOTS_USED: Meaning("slots", "Slots executors are on.", (Scope.NODE,)),
}
"""Every metric has one name and one unit, wherever it is seen."""

WINDOW_SECONDS = 10.0
"""Statistics are kept in windows of so long."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row of statistics is about."""

    scope: Scope
    pipeline: str | None = None
    operator: str | None = None
    node: str | None = None
    slot: int | None = None
    topic: str | None = None
    partition: str | None = None
    """Its number; that of a second source on the same topic has #2 behind it."""

    @classmethod
    def of(cls, path: str) -> Subject:
        """PIPELINE, PIPELINE/OPERATOR, PIPELINE/TOPIC/PARTITION, PIPELINE/OPERATOR/NODE/SLOT or /NODE: names hold no
        slash."""
        first, *rest = path.split("/")
        if not first:
            return cls(Scope.NODE, node=rest[0])
        if len(rest) == 3:
            return cls(Scope.THREAD, first, rest[0], rest[1], int(rest[2]))
        if len(rest) == 2:
            return cls(Scope.PARTITION, first, topic=rest[0], partition=rest[1])
        return cls(Scope.OPERATOR, first, rest[0]) if rest else cls(Scope.PIPELINE, first)
