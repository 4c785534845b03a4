"""The input of a simulation, free of plans: stations and routes on a cluster, and events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, nearest
from penstock.dataflow.pipeline import Grouping

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.cluster.topology import Cluster, Distance, Slot
    from penstock.dataflow.load import Load


NANOSECONDS = 1_000_000_000
"""Nanoseconds of a second. All times inside the engines are whole nanoseconds."""

BY_THREAD = frozenset({Grouping.FIELDS, Grouping.PARTIAL_KEY, Grouping.DIRECT})
"""Groupings that choose the thread, not just the slot: its threads then have a queue each."""

DEFAULT_WINDOW_SECONDS = 0.5
DEFAULT_MOST_WAITING = 1_000_000


class Service(StrEnum):
    """Distribution of the time a tuple takes a thread."""

    CONSTANT = "constant"
    """All the same."""
    EXPONENTIAL = "exponential"
    """At random round the mean."""


class Arrivals(StrEnum):
    """When sources emit."""

    CONSTANT = "constant"
    """Exactly the service time."""
    POISSON = "poisson"
    """At random, at the load's rate: gaps of the running count of the load are exponential with mean 1."""


@dataclass(frozen=True, slots=True)
class Station:
    """The threads of one operator on one slot."""

    operator: str
    slot: Slot
    threads: int
    service_seconds: float
    """Seconds a tuple takes one of the threads, `k / I(k)` over the node's speed; 0: no limit."""
    cpu_seconds: float = 0.0
    """Seconds of a core for one tuple."""
    idle_cpu: float = 0.0
    """Cores it takes whatever it does."""
    memory_mb: tuple[float, float] = (0.0, 0.0)
    """Memory without work, and at the peak rate."""
    service: Service = Service.CONSTANT
    batched: bool = False
    """Its tuples wait for the next batch if the scenario has an interval."""

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
    """Bytes of one tuple; matters between nodes. 0: moving it takes no bandwidth."""
    skew: float = 0.0
    """Zipf's exponent of the keys: the n-th most frequent has a share in proportion to `n ** -skew`. 0: all threads get
    the same."""
    keys: int = 1000
    """Number of different keys, if they are skewed."""

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
    """Load of every source."""
    arrivals: Arrivals = Arrivals.CONSTANT
    in_flight: int | None = None
    """The most tuples of one source that may be on their way with all their descendants (a closed loop)."""
    queue_limit: int | None = None
    """Max tuples waiting at a station. If it is full, its senders' threads wait with theirs: back-pressure."""
    replay_seconds: float | None = None
    """Seconds after which a tuple of a source with a lost descendant is emitted again; None: it is lost."""

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(station.operator for station in self.stations))


@dataclass(frozen=True, slots=True)
class Network:
    """Milliseconds of one hop by distance, and how much the nodes' links carry."""

    same_slot_ms: float = 0.0
    same_node_ms: float = 0.05
    same_rack_ms: float = 0.5
    other_rack_ms: float = 1.0
    bandwidth_mbps: float | None = None
    """Bandwidth of every node, out and in; None: that of the cluster. A link carries one tuple after the other."""

    def hop_ms(self, distance: Distance) -> float:
        return (self.same_slot_ms, self.same_node_ms, self.same_rack_ms, self.other_rack_ms)[distance]


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that fails, and may return. Tuples that wait or are in work there are lost, and so are tuples sent there
    meanwhile.

    Sources there emit nothing meanwhile: their tuples wait outside.
    """

    node: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """Another placement of a pipeline from a moment on.

    With `drain` its sources stop, everything on its way is finished, and the new stations begin `pause_seconds` later:
    nothing is lost. Without it, tuples on their way are lost. Tuples due meanwhile wait outside.
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
    """Seconds after which the processor is shared anew."""
    outages: tuple[Outage, ...] = ()
    switches: tuple[Switch, ...] = ()
    points: int = 60
    """Number of points of a timeline."""
    most_waiting: int = DEFAULT_MOST_WAITING
    """Max tuples of one pipeline held in memory. Above it, sources wait outside."""


# Check a scenario before it is simulated.


def check_scenario(scenario: Scenario) -> None:
    """Raise a `BadInputError` that names the fault, if there is one."""
    _above_zero("seconds", scenario.seconds)
    _above_zero("window_seconds", scenario.window_seconds)
    if not 0 <= scenario.warm_up < scenario.seconds:
        raise BadInputError(
            f"warm-up: expected at least 0 and less than the {scenario.seconds:g} s simulated, "
            f"found {scenario.warm_up:g}"
        )
    if scenario.batch_interval_ms is not None:
        _above_zero("batch interval", scenario.batch_interval_ms)
    if scenario.slot_cores is not None:
        _above_zero("slot_cores", scenario.slot_cores)
    for what, value in (("points", scenario.points), ("most_waiting", scenario.most_waiting)):
        if value < 1:
            raise BadInputError(f"{what}: expected at least 1, found {value}")
    _check_network(scenario.network)
    if not scenario.pipelines:
        raise BadInputError("simulation: expected at least one pipeline")
    names = [pipeline.name for pipeline in scenario.pipelines]
    for name in names:
        if names.count(name) > 1:
            raise BadInputError(f"pipeline '{name}' is given twice")
    for pipeline in scenario.pipelines:
        check_pipeline(pipeline, scenario)
    _check_outages(scenario)
    _check_switches(scenario, names)


def _check_outages(scenario: Scenario) -> None:
    for outage in scenario.outages:
        if scenario.cluster.find(outage.node) is None:
            known = nearest(outage.node, [node.name for node in scenario.cluster.nodes])
            raise BadInputError(f"outage: unknown node '{outage.node}'; {known}")
        if not 0 <= outage.start < math.inf or (outage.end is not None and not outage.end > outage.start):
            raise BadInputError(f"outage of '{outage.node}': expected a start of at least 0 and an end after it")


def _check_switches(scenario: Scenario, names: Sequence[str]) -> None:
    for switch in scenario.switches:
        if switch.pipeline not in names:
            raise BadInputError(f"switch: unknown pipeline '{switch.pipeline}'; {nearest(switch.pipeline, names)}")
        if not 0 <= switch.at < math.inf or not 0 <= switch.pause_seconds < math.inf:
            raise BadInputError(f"switch of '{switch.pipeline}': expected a time and a pause of at least 0")
        pipeline = scenario.pipelines[names.index(switch.pipeline)]
        _check_stations(switch.stations, f"switch of '{switch.pipeline}'", scenario)
        there = {station.operator for station in switch.stations}
        for name in pipeline.operators:
            if name not in there:
                raise BadInputError(f"switch of '{switch.pipeline}': operator '{name}' has no station")
        for name in there:
            if name not in pipeline.operators:
                known = nearest(name, pipeline.operators)
                raise BadInputError(f"switch of '{switch.pipeline}': unknown operator '{name}'; {known}")


def check_pipeline(pipeline: SimulatedPipeline, scenario: Scenario) -> None:
    where = f"pipeline '{pipeline.name}'"
    if not pipeline.stations:
        raise BadInputError(f"{where}: expected at least one station")
    if not pipeline.sources:
        raise BadInputError(f"{where}: expected at least one source")
    for what, limit in (("in_flight", pipeline.in_flight), ("queue_limit", pipeline.queue_limit)):
        if limit is not None and limit < 1:
            raise BadInputError(f"{where}: {what}: expected at least 1, found {limit}")
    if pipeline.replay_seconds is not None:
        _above_zero(f"{where}: replay_seconds", pipeline.replay_seconds)
    _check_stations(pipeline.stations, where, scenario)
    operators = pipeline.operators
    for name in pipeline.sources:
        if name not in operators:
            raise BadInputError(f"{where}: source '{name}' has no station; {nearest(name, operators)}")
    for route in pipeline.routes:
        _check_route(route, pipeline, where)
    received = {route.receiver for route in pipeline.routes}
    for name in operators:
        if name not in received and name not in pipeline.sources:
            raise BadInputError(f"{where}: operator '{name}' receives no stream and is not a source")
    in_order(pipeline)


def _check_route(route: SimulatedRoute, pipeline: SimulatedPipeline, where: str) -> None:
    for end in (route.sender, route.receiver):
        if end not in pipeline.operators:
            known = nearest(end, pipeline.operators)
            raise BadInputError(f"{where}: stream {route}: '{end}' has no station; {known}")
    if route.receiver in pipeline.sources:
        raise BadInputError(f"{where}: stream {route}: a source has no input")
    for what, value in (
        ("selectivity", route.selectivity),
        ("constant", route.constant),
        ("bytes", route.bytes),
        ("skew", route.skew),
    ):
        if not 0 <= value < math.inf:
            raise BadInputError(f"{where}: stream {route}: {what}: expected at least 0, found {value:g}")
    if route.keys < 1:
        raise BadInputError(f"{where}: stream {route}: keys: expected at least 1, found {route.keys}")


def in_order(pipeline: SimulatedPipeline) -> tuple[str, ...]:
    """Operators so that every stream goes forward, ties in declared order."""
    sorter: TopologicalSorter[str] = TopologicalSorter({name: [] for name in pipeline.operators})
    for route in pipeline.routes:
        sorter.add(route.receiver, route.sender)
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        cycle = " -> ".join(f"'{name}'" for name in error.args[1])
        raise BadInputError(f"pipeline '{pipeline.name}': a simulation needs no cycles, found {cycle}") from error


def _check_stations(stations: Iterable[Station], where: str, scenario: Scenario) -> None:
    seen: set[tuple[str, object]] = set()
    for station in stations:
        position = scenario.cluster.find(station.slot.node)
        if position is None:
            known = nearest(station.slot.node, [node.name for node in scenario.cluster.nodes])
            raise BadInputError(f"{where}: station {station}: unknown node '{station.slot.node}'; {known}")
        slots = scenario.cluster.nodes[position].slots
        if not 0 <= station.slot.number < slots:
            raise BadInputError(f"{where}: station {station}: the node has slots 0 to {slots - 1}")
        if (station.operator, station.slot) in seen:
            raise BadInputError(f"{where}: station {station} is given twice")
        seen.add((station.operator, station.slot))
        if station.threads < 1:
            raise BadInputError(f"{where}: station {station}: expected at least 1 thread, found {station.threads}")
        for what, value in (
            ("service_seconds", station.service_seconds),
            ("cpu_seconds", station.cpu_seconds),
            ("idle_cpu", station.idle_cpu),
        ):
            if not 0 <= value < math.inf:
                raise BadInputError(f"{where}: station {station}: {what}: expected at least 0, found {value:g}")


def _check_network(network: Network) -> None:
    for what in ("same_slot_ms", "same_node_ms", "same_rack_ms", "other_rack_ms"):
        value = getattr(network, what)
        if not 0 <= value < math.inf:
            raise BadInputError(f"network: {what}: expected at least 0, found {value:g}")
    if network.bandwidth_mbps is not None:
        _above_zero("network: bandwidth_mbps", network.bandwidth_mbps)


def _above_zero(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise BadInputError(f"{what}: expected a finite number above 0, found {value:g}")


# Limits of a simulation. Within them it ends: in seconds mostly, in minutes at the worst.


LEAST_SECONDS = 1e-3
MOST_SECONDS = 1e6
"""Simulated in one go: eleven days."""
LONGEST_SECONDS = 1e9
"""Any other length of time. Nanoseconds of it are whole numbers that a computer word holds."""
MOST_TUPLES = 50_000_000
"""That sources emit, where operators are gone through one after the other: about two million a second."""
MOST_EVENT_TUPLES = 5_000_000
"""The same where every tuple is an event, which takes a hundred times as long."""
MOST_THREADS = 1_000_000
MOST_KEYS = 10_000_000
MOST_SKEW = 100.0
MOST_RESULTS = 100_000
"""Tuples that one tuple becomes: they are made at once."""
LEAST_INTERVAL_MS = 1e-3
MOST_WINDOWS = 4_000_000


def within(what: str, value: float, least: float, most: float, unit: str = "") -> None:
    """Raise a one-line error with the limit if `value` is outside it, or NaN."""
    if not least <= value <= most:
        raise BadInputError(f"{what}: expected {least:g} to {most:g}{unit}, found {value:g}")


def check_limits(scenario: Scenario, *, events: bool) -> None:
    """`events`: whether tuples are simulated one by one."""
    within("seconds", scenario.seconds, LEAST_SECONDS, MOST_SECONDS, " s to simulate")
    within("simulation windows", scenario.seconds / scenario.window_seconds, 0, MOST_WINDOWS)
    if scenario.batch_interval_ms is not None:
        within("batch interval", scenario.batch_interval_ms, LEAST_INTERVAL_MS, 1000 * LONGEST_SECONDS, " ms")
    for hop in ("same_slot_ms", "same_node_ms", "same_rack_ms", "other_rack_ms"):
        within(f"network: {hop}", getattr(scenario.network, hop), 0, 1000 * LONGEST_SECONDS)
    for outage in scenario.outages:
        for moment in (outage.start, outage.end):
            within(f"outage of '{outage.node}'", moment or 0.0, 0, LONGEST_SECONDS, " s")
    for switch in scenario.switches:
        within(f"switch of '{switch.pipeline}'", switch.at, 0, LONGEST_SECONDS, " s")
        within(f"pause of '{switch.pipeline}'", switch.pause_seconds, 0, LONGEST_SECONDS, " s")
    for pipeline in scenario.pipelines:
        _check_pipeline(pipeline)
    emitted = sum(_tuples(pipeline, scenario) for pipeline in scenario.pipelines)
    most = MOST_EVENT_TUPLES if events else MOST_TUPLES
    if emitted > most:
        how = " one by one, as bounded queues, loops, links and replays need" if events else ""
        raise BadInputError(
            f"simulation: {emitted:,.3g} tuples in {scenario.seconds:g} s, expected at most {most:,}{how}; "
            "simulate fewer seconds or a lower load"
        )


def _tuples(pipeline: SimulatedPipeline, scenario: Scenario) -> float:
    """Return the max number of tuples of its sources that enter: the due ones, or those the slowest operator processes
    and those that may wait before it. The others stay outside, and cost nothing. Streams may carry a constant number
    more in any case."""
    gains = dict.fromkeys(pipeline.sources, 1.0)
    for name in in_order(pipeline):
        for route in pipeline.routes:
            if route.sender == name:
                gains[route.receiver] = gains.get(route.receiver, 0.0) + gains.get(name, 0.0) * route.selectivity
    supported = math.inf
    for name in pipeline.operators:
        if (gain := gains.get(name, 0.0)) > 0:
            rate = sum(station.rate for station in pipeline.stations if station.operator == name)
            supported = min(supported, rate / gain)
    due = pipeline.load.expected(scenario.seconds)
    constant = sum(route.constant for route in pipeline.routes) * scenario.seconds
    return len(pipeline.sources) * min(due, supported * scenario.seconds + scenario.most_waiting) + constant


def _check_pipeline(pipeline: SimulatedPipeline) -> None:
    where = f"pipeline '{pipeline.name}'"
    within(f"{where}: threads", sum(station.threads for station in pipeline.stations), 1, MOST_THREADS)
    if pipeline.replay_seconds is not None:
        within(f"{where}: replay_seconds", pipeline.replay_seconds, LEAST_SECONDS, LONGEST_SECONDS, " s")
    for station in pipeline.stations:
        within(f"{where}: station {station}: service_seconds", station.service_seconds, 0, LONGEST_SECONDS, " s")
    for route in pipeline.routes:
        within(f"{where}: stream {route}: selectivity", route.selectivity, 0, MOST_RESULTS)
        within(f"{where}: stream {route}: skew", route.skew, 0, MOST_SKEW)
        within(f"{where}: stream {route}: keys", route.keys, 1, MOST_KEYS)
