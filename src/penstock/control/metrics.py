"""The one list of metrics: what pipelines and nodes report, what the store keeps, REST answers and Prometheus shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Scope(StrEnum):
    """What a reading is of."""

    PIPELINE = "pipeline"
    OPERATOR = "operator"
    THREAD = "thread"
    """The threads of one operator on one slot; `threads` says how many."""
    PARTITION = "partition"
    """Of a topic the pipeline reads."""
    NODE = "node"


_PARTS = (Scope.OPERATOR, Scope.THREAD)


class Metric(StrEnum):
    """Every metric has one name, unit and help, wherever it is seen: this is the only place that declares them."""

    unit: str
    help: str
    scopes: tuple[Scope, ...]

    # with defaults, because a member is also looked up by its name: Metric("rate")
    def __new__(cls, name: str, unit: str = "", text: str = "", scopes: tuple[Scope, ...] = (Scope.PIPELINE,)) -> Self:
        metric = str.__new__(cls, name)
        metric._value_ = name
        metric.unit, metric.help, metric.scopes = unit, text, scopes
        return metric

    OFFERED_RATE = "offered_rate", "tuples/s", "Tuples that arrive at the sources."
    RATE = "rate", "tuples/s", "Tuples the pipeline has processed."
    BACKLOG = "backlog", "tuples", "Tuples that have arrived and are not processed yet."
    LAG = "lag", "messages", "Messages that wait in the topics it reads.", (Scope.PIPELINE, Scope.PARTITION)
    LATENCY_MS = "latency_ms", "ms", "From arrival to the sink, 95th percentile of the last window."
    BUSY = (
        "busy",
        "share",
        "Part of what its slots or threads can do that is used; 1 is all.",
        (Scope.PIPELINE, *_PARTS),
    )
    NEEDED = "needed", "units", "Units the target needs by the models."
    HELD = "held", "units", "Units its executors are on."
    FAIRNESS = "fairness", "share", "Integral of held over integral of needed; 1 is all it needed."
    PRIORITY = "priority", "level", "Priority level; 1 is the highest."
    DEATHS = "deaths", "count", "Deaths of its driver in a row."
    RATE_IN = "rate_in", "tuples/s", "Tuples that come to the operator.", _PARTS
    RATE_OUT = "rate_out", "tuples/s", "Tuples the operator sends on.", _PARTS
    THREADS = "threads", "count", "Threads of the operator.", _PARTS
    CPU = "cpu", "cores", "CPU its executors use; 1 is one core all the time.", (Scope.PIPELINE, Scope.NODE)
    MEMORY_MB = "memory_mb", "MB", "Memory its executors hold.", (Scope.PIPELINE, Scope.NODE)
    BATCH_COST_S = "batch_cost_s", "s", "What a batch takes besides the work in it: its fixed cost."
    SLOTS_USED = "slots_used", "slots", "Slots executors are on.", (Scope.NODE,)

    @property
    def families(self) -> dict[Scope, str]:
        """The names it has at `/metrics`, by scope."""
        return {scope: f"penstock_{scope}_{self}" for scope in self.scopes}


class ClusterGauge(StrEnum):
    """What `/metrics` shows of the whole cluster besides."""

    help: str

    def __new__(cls, name: str, text: str) -> Self:
        gauge = str.__new__(cls, name)
        gauge._value_ = name
        gauge.help = text
        return gauge

    PIPELINES = "penstock_pipelines", "Pipelines by state."
    NODES = "penstock_nodes", "Nodes by state."
    UNITS = "penstock_units", "Units of all nodes that are alive."


def exposed_names() -> set[str]:
    """Return every name at `/metrics`."""
    return {name for metric in Metric for name in metric.families.values()} | {str(gauge) for gauge in ClusterGauge}


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
