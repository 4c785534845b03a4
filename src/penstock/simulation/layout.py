"""A pipeline as arrays: operators in topological order, their stations and threads, and how streams join them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.cluster.topology import Distance
from penstock.dataflow.pipeline import Grouping
from penstock.simulation import contention
from penstock.simulation.dealing import StreamDealer
from penstock.simulation.scenario import BY_THREAD, NANOSECONDS, Arrivals, Service, SimulatedRoute, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster
    from penstock.dataflow.load import Load
    from penstock.simulation.scenario import Network, Scenario, SimulatedPipeline, Station

    Ints = NDArray[np.int64]


def nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


@dataclass(slots=True)
class Lane:
    """A route, from stage to stage."""

    route: SimulatedRoute
    sender: int
    receiver: int
    """Positions of stages."""
    entry: int
    """Its position among the inputs of the receiver."""
    dealer: StreamDealer
    delays: Ints
    """Nanoseconds from every station of the sender to every station of the receiver."""
    delay: int | None
    """The same everywhere; None: it depends."""
    plain: bool
    """It carries exactly one tuple to one target for every tuple processed."""
    constant_gap: float
    """Nanoseconds between the tuples it carries by itself; 0: none."""


@dataclass(slots=True)
class SimulatedStage:
    """An operator. Its threads are numbered through, station by station."""

    name: str
    stations: tuple[Station, ...]
    threads: Ints
    """Threads of each station."""
    bases: Ints
    """The first thread of each station."""
    station_of: Ints
    """Station of each thread."""
    service: Ints
    """Nanoseconds of each station."""
    by_thread: bool
    """Every thread has its own queue."""
    random: bool
    """Service times are drawn."""
    passing: bool
    """It takes no time, and waits for no batch."""
    gate: int
    """Tuples wait for a multiple of this number of nanoseconds; 0: they do not wait."""
    source: bool
    factor: float
    """Tuples it gets per tuple of one source."""
    inputs: int
    outputs: list[Lane]
    end: bool
    """It sends nothing on: latencies are measured here."""


@dataclass(slots=True)
class StageLayout:
    stages: list[SimulatedStage]
    sources: tuple[int, ...]

    def entries(self) -> list[StreamDealer]:
        """Return the dealers of due tuples to the stations of each source: evenly by threads, from the first."""
        return [
            StreamDealer(
                SimulatedRoute("", self.stages[position].name, Grouping.SHUFFLE),
                (),
                self.stages[position].stations,
                by_thread=False,
                draws=np.random.default_rng(0),
            )
            for position in self.sources
        ]

    def station_rates(self, rate: float) -> list[NDArray[np.float64]] | None:
        """Return the tuples/s of every station at a rate of the sources, stage by stage; None if that depends on more
        than shares."""
        rates = [np.zeros(len(stage.stations)) for stage in self.stages]
        totals = [0.0] * len(self.stages)
        for position, stage in enumerate(self.stages):
            if stage.source:
                rates[position] = rate * stage.threads / stage.threads.sum()
                totals[position] = rate
            for lane in stage.outputs:
                shares = lane.dealer.shares()
                if shares is None:
                    return None
                receiver = self.stages[lane.receiver]
                carried = totals[position] * lane.route.selectivity + lane.route.constant
                if receiver.by_thread:
                    shares = np.bincount(receiver.station_of, weights=shares).astype(float)
                rates[lane.receiver] += carried * shares
                totals[lane.receiver] += carried * float(shares.sum())
        return rates


def layout(pipeline: SimulatedPipeline, stations: Sequence[Station], scenario: Scenario, number: int) -> StageLayout:
    """Return the layout of a pipeline. `number` is its position in the scenario: with the scenario's seed it seeds
    random draws."""
    order = in_order(pipeline)
    place = {name: position for position, name in enumerate(order)}
    keyed = {route.receiver for route in pipeline.routes if route.grouping in BY_THREAD}
    by_name: dict[str, list[Station]] = {name: [] for name in order}
    for station in stations:
        by_name[station.operator].append(station)
    factors = dict.fromkeys(order, 0.0)
    factors.update(dict.fromkeys(pipeline.sources, 1.0))
    stages = [
        _stage(name, by_name[name], scenario, by_thread=name in keyed, source=name in pipeline.sources)
        for name in order
    ]
    for name in order:
        for index, route in enumerate(pipeline.routes):
            if route.sender != name:
                continue
            sender, receiver = stages[place[route.sender]], stages[place[route.receiver]]
            dealer = StreamDealer(
                route,
                sender.stations,
                receiver.stations,
                by_thread=receiver.by_thread,
                draws=np.random.default_rng([scenario.seed, number, 1, index]),
            )
            delays = hop_delays(sender.stations, receiver.stations, scenario.cluster, scenario.network)
            sender.outputs.append(
                Lane(
                    route,
                    place[route.sender],
                    place[route.receiver],
                    receiver.inputs,
                    dealer,
                    delays,
                    int(delays.flat[0]) if delays.min() == delays.max() else None,
                    route.selectivity == 1.0 and not dealer.every,
                    NANOSECONDS / route.constant if route.constant > 0 else 0.0,
                )
            )
            receiver.inputs += 1
            factors[route.receiver] += factors[name] * route.selectivity * dealer.copies
    for stage in stages:
        stage.factor = factors[stage.name]
        stage.end = not any(lane.route.selectivity > 0 for lane in stage.outputs)
    return StageLayout(stages, tuple(place[name] for name in pipeline.sources))


def _stage(
    name: str, stations: Sequence[Station], scenario: Scenario, *, by_thread: bool, source: bool
) -> SimulatedStage:
    threads = np.array([station.threads for station in stations], dtype=np.int64)
    service = np.array([nanoseconds(station.service_seconds) for station in stations], dtype=np.int64)
    interval = scenario.batch_interval_ms
    batched = any(station.batched for station in stations)
    gate = nanoseconds(interval / 1000) if interval is not None and batched else 0
    return SimulatedStage(
        name=name,
        stations=tuple(stations),
        threads=threads,
        bases=np.cumsum(threads) - threads,
        station_of=np.repeat(np.arange(len(stations)), threads),
        service=service,
        by_thread=by_thread,
        random=any(station.service is Service.EXPONENTIAL for station in stations) and bool(service.any()),
        passing=not service.any() and not gate,
        gate=gate,
        source=source,
        factor=0.0,
        inputs=0,
        outputs=[],
        end=False,
    )


def hop_delays(senders: Sequence[Station], receivers: Sequence[Station], cluster: Cluster, network: Network) -> Ints:
    """Nanoseconds by distance, for every pair."""
    racks = {rack: position for position, rack in enumerate(dict.fromkeys(node.rack for node in cluster.nodes))}

    def places(stations: Sequence[Station]) -> tuple[Ints, Ints, Ints]:
        nodes = np.array([cluster.position(station.slot.node) for station in stations])
        numbers = np.array([station.slot.number for station in stations])
        rack = np.array([racks[cluster.nodes[position].rack] for position in nodes])
        return rack, nodes, numbers

    ours, theirs = places(senders), places(receivers)
    same_rack, same_node, same_number = (a[:, None] == b[None, :] for a, b in zip(ours, theirs, strict=True))
    delays = np.full(same_rack.shape, nanoseconds(network.hop_ms(Distance.OTHER_RACK) / 1000), dtype=np.int64)
    delays[same_rack] = nanoseconds(network.hop_ms(Distance.SAME_RACK) / 1000)
    delays[same_node] = nanoseconds(network.hop_ms(Distance.SAME_NODE) / 1000)
    delays[same_node & same_number] = nanoseconds(network.hop_ms(Distance.SAME_SLOT) / 1000)
    return delays


# Due times of a source's tuples, block by block.


BLOCK = 8192


class Emission:
    """Due times of one source in nanoseconds, rising, taken from the front."""

    def __init__(self, load: Load, arrivals: Arrivals, draws: np.random.Generator, until: int) -> None:
        """`until`: nothing later is ever asked for."""
        self._load = load
        self._draws = draws if arrivals is Arrivals.POISSON else None
        self._made = 0
        self._position = 0.0
        self._most = load.expected(until / NANOSECONDS)
        self._ready: Ints = np.empty(0, dtype=np.int64)
        self._ended = False
        self.taken = 0

    def take(self, before: int, most: int) -> Ints:
        """Return the next tuples due before a time, at most `most`."""
        blocks = [self._ready]
        amount = len(self._ready)
        while not self._ended and amount < most and (not len(blocks[-1]) or blocks[-1][-1] < before):
            blocks.append(self._block())
            amount += len(blocks[-1])
        ready = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        cut = min(int(np.searchsorted(ready, before, side="left")), max(most, 0))
        self._ready = ready[cut:]
        self.taken += cut
        return ready[:cut]

    def _block(self) -> Ints:
        """Return the next BLOCK tuples; blocks are the same for every caller, so random ones are too."""
        if self._draws is not None:
            wanted = self._position + np.cumsum(self._draws.exponential(size=BLOCK))
            self._position = float(wanted[-1])
        else:
            wanted = np.arange(self._made + 1, self._made + BLOCK + 1, dtype=float)
            self._made += BLOCK
        if wanted[-1] > self._most + TOLERANCE:
            self._ended = True
            wanted = wanted[wanted <= self._most + TOLERANCE]
        if not len(wanted):
            return np.empty(0, dtype=np.int64)
        wanted = np.minimum(wanted, self._most) if self._most > 0 else wanted
        return np.rint(self._load.reached(wanted) * NANOSECONDS).astype(np.int64)

    def rest(self, edges: Ints) -> Ints:
        """Return how many remaining tuples are due in each spell between edges, without making them one by one.

        For a Poisson process the rest is a Poisson number for every spell, with the mean the load has in it.
        """
        due: Ints = np.diff(np.searchsorted(self._ready, edges, side="left"))
        if self._ended:
            return due
        counts = np.array([self._load.expected(edge / NANOSECONDS) for edge in edges.tolist()])
        if self._draws is not None:
            due = due + self._draws.poisson(np.diff(np.maximum(counts, self._position)))
        else:
            whole = np.floor(counts + TOLERANCE).astype(np.int64)
            due = due + np.diff(np.maximum(whole, self._made))
        return due


def emissions_of(scenario: Scenario, pipeline: SimulatedPipeline, number: int) -> list[Emission]:
    """One for every source of a pipeline, each with draws of its own."""
    until = nanoseconds(scenario.seconds)
    return [
        Emission(pipeline.load, pipeline.arrivals, np.random.default_rng([scenario.seed, number, 0, index]), until)
        for index in range(len(pipeline.sources))
    ]


# Windows of time, the same for both engines.


TUPLES_A_WINDOW = 100_000
"""Tuples of a window if the processor need not be shared: they stay in the cache."""

MOST_WINDOWS = 5000
"""Max windows if the processor need not be shared: windows are longer instead."""


def processors_of(scenario: Scenario, layouts: Sequence[StageLayout]) -> contention.Processors | None:
    """Return the processors of all slots that are ever used; None if none can be short of CPU."""
    if not contention.may_be_short(scenario, layouts):
        return None
    stations = [station for pipeline in scenario.pipelines for station in pipeline.stations]
    stations += [station for switch in scenario.switches for station in switch.stations]
    return contention.Processors(scenario, (station.slot for station in stations))


def window_ends(scenario: Scenario, *, shared_out: bool) -> Iterator[tuple[int, int]]:
    """(start, end) of every window: as long as the processor is shared out for, or as there are enough tuples for;
    shorter where something happens or the measuring begins."""
    length = nanoseconds(scenario.seconds)
    cuts = cut_times(scenario, length)
    step = _step(scenario) if not shared_out else max(1, nanoseconds(scenario.window_seconds))
    start = 0
    for cut in cuts:
        while start < cut:
            end = min(start - start % step + step, cut)
            yield start, end
            start = end


def cut_times(scenario: Scenario, length: int) -> list[int]:
    """When a window must end whatever its length."""
    moments = {length, nanoseconds(scenario.warm_up)}
    for outage in scenario.outages:
        moments |= {nanoseconds(moment) for moment in (outage.start, outage.end) if moment is not None}
    moments |= {nanoseconds(switch.at) for switch in scenario.switches}
    return sorted(moment for moment in moments if moment <= length)


def _step(scenario: Scenario) -> int:
    busiest = max(pipeline.load.peak_rate * len(pipeline.sources) for pipeline in scenario.pipelines)
    return max(1, nanoseconds(TUPLES_A_WINDOW / busiest), nanoseconds(scenario.seconds) // MOST_WINDOWS)
