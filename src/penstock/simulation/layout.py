"""A pipeline as arrays: operators in topological order, their stations and threads, and how streams join them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.cluster.topology import Distance
from penstock.dataflow.pipeline import Grouping
from penstock.simulation.checks import in_order
from penstock.simulation.dealing import StreamDealer
from penstock.simulation.system import BY_THREAD, NANOSECONDS, Service, SimulatedRoute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster
    from penstock.simulation.system import Network, Scenario, SimulatedPipeline, Station

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
    """Of each station."""
    bases: Ints
    """The first thread of each station."""
    station_of: Ints
    """Of each thread."""
    service: Ints
    """Nanoseconds of each station."""
    by_thread: bool
    """Every thread has its own queue."""
    random: bool
    """Service times are drawn."""
    passing: bool
    """It takes no time, and waits for no batch."""
    gate: int
    """Tuples wait for a multiple of so many nanoseconds; 0: they do not."""
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
        """Who deals what is due to the stations of each source: evenly by threads, from the first."""
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
        """Tuples/s that every station gets at a rate of the sources, stage by stage; None where that depends on more
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
    """`number` is the pipeline's place in the scenario: with the scenario's seed it seeds what is drawn."""
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
