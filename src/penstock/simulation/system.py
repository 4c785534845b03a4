"""What is simulated, free of plans: stations and routes on a cluster, and what happens to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Grouping

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster, Distance, Slot
    from penstock.dataflow.load import Load

NANOSECONDS = 1_000_000_000
"""Of a second. All times inside the engines are whole nanoseconds."""

BY_THREAD = frozenset({Grouping.FIELDS, Grouping.PARTIAL_KEY, Grouping.DIRECT})
"""Groupings that choose the thread, not just the slot: its threads then have a queue each."""

DEFAULT_WINDOW_SECONDS = 0.5
DEFAULT_MOST_WAITING = 1_000_000


class Service(StrEnum):
    """How long tuples take a thread."""

    CONSTANT = "constant"
    """All the same."""
    EXPONENTIAL = "exponential"
    """At random round the mean."""


class Arrivals(StrEnum):
    """When sources emit."""

    CONSTANT = "constant"
    """Exactly as the load says."""
    POISSON = "poisson"
    """At random, at the load's rate: gaps of the running count of the load are exponential with mean 1."""


@dataclass(frozen=True, slots=True)
class Station:
    """The threads of one operator on one slot."""

    operator: str
    slot: Slot
    threads: int
    service_seconds: float
    """A tuple takes one of the threads so long, `k / I(k)` over the node's speed; 0: it limits nothing."""
    cpu_seconds: float = 0.0
    """Of a core, for one tuple."""
    idle_cpu: float = 0.0
    """Cores it takes whatever it does."""
    memory_mb: tuple[float, float] = (0.0, 0.0)
    """Without work, and at its peak rate."""
    service: Service = Service.CONSTANT
    batched: bool = False
    """Its tuples wait for the next batch where the scenario has an interval."""

    @property
    def rate(self) -> float:
        """The most tuples/s it does."""
        return self.threads / self.service_seconds if self.service_seconds > 0 else math.inf

    def __str__(self) -> str:
        return f"'{self.operator}' on {self.slot}"


@dataclass(frozen=True, slots=True)
class SimulatedRoute:
    """A stream: for n tuples its sender processed it carries `floor(n * selectivity)`, and `constant` tuples/s more.

    The stream's weight is in both already.
    """

    sender: str
    receiver: str
    grouping: Grouping = Grouping.SHUFFLE
    selectivity: float = 1.0
    constant: float = 0.0
    bytes: float = 0.0
    """Of one tuple; matters between nodes. 0: moving it takes no bandwidth."""
    skew: float = 0.0
    """Zipf's exponent of the keys: the n-th most frequent has a share in proportion to `n ** -skew`. 0: keys are so
    many and so even that all threads get the same."""
    keys: int = 1000
    """Different keys, where they are skewed."""

    def __str__(self) -> str:
        return f"'{self.sender}' -> '{self.receiver}'"


@dataclass(frozen=True)
class SimulatedPipeline:
    """Stations and routes of one pipeline. Operators are in the order their first stations are declared."""

    name: str
    stations: tuple[Station, ...]
    routes: tuple[SimulatedRoute, ...]
    sources: tuple[str, ...]
    load: Load
    """Of every source."""
    arrivals: Arrivals = Arrivals.CONSTANT
    in_flight: int | None = None
    """The most tuples of one source that may be on their way with all their descendants (a closed loop)."""
    queue_limit: int | None = None
    """The most tuples that wait at a station. Where it is full its senders' threads wait with theirs: back-pressure."""
    replay_seconds: float | None = None
    """A tuple of a source with a lost descendant is emitted again so long after it was emitted; None: it is lost."""

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(station.operator for station in self.stations))

    @property
    def last_operators(self) -> tuple[str, ...]:
        """Operators that send nothing: sinks, and others like them."""
        senders = {route.sender for route in self.routes}
        return tuple(name for name in self.operators if name not in senders)


@dataclass(frozen=True, slots=True)
class Network:
    """Milliseconds of one hop by distance, and how much the nodes' links carry."""

    same_slot_ms: float = 0.0
    same_node_ms: float = 0.05
    same_rack_ms: float = 0.5
    other_rack_ms: float = 1.0
    bandwidth_mbps: float | None = None
    """Of every node, out and in; None: as the cluster says. A link carries one tuple after the other."""

    def hop_ms(self, distance: Distance) -> float:
        return (self.same_slot_ms, self.same_node_ms, self.same_rack_ms, self.other_rack_ms)[distance]


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that fails, and may return. What waits or is worked on there is lost, and what is sent there meanwhile.

    Sources there emit nothing meanwhile: their tuples wait outside.
    """

    node: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """Another placement of a pipeline from a moment on.

    With `drain` its sources stop, everything on its way is finished, and the new stations begin `pause_seconds` later:
    nothing is lost. Without, what is on its way is lost. Tuples due meanwhile wait outside.
    """

    at: float
    pipeline: str
    stations: tuple[Station, ...]
    drain: bool = True
    pause_seconds: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """Everything a simulation depends on. Seconds count from the start of the load."""

    cluster: Cluster
    pipelines: tuple[SimulatedPipeline, ...]
    seconds: float
    warm_up: float = 0.0
    """Rates, latencies and use are measured from then on."""
    seed: int = 0
    network: Network = field(default_factory=Network)
    batch_interval_ms: float | None = None
    """Tuples wait at stations that are `batched` for the next multiple of this."""
    contention: bool = True
    """Slots and nodes that are asked for more CPU than they have slow down."""
    slot_cores: float | None = 1.0
    """Cores of a slot; None: a slot is a process that may take all of its node."""
    window_seconds: float = DEFAULT_WINDOW_SECONDS
    """How often the processor is shared out anew."""
    outages: tuple[Outage, ...] = ()
    switches: tuple[Switch, ...] = ()
    points: int = 60
    """Of what is told over time."""
    most_waiting: int = DEFAULT_MOST_WAITING
    """Tuples of one pipeline that are held in memory. Where there are more, sources wait outside until there are
    fewer."""
