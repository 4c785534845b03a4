"""Pipelines as the documents' evaluations declare them: threads with costs and demands, no models.

A placer of whole clusters puts them on nodes (a slot is a worker process), and a placement becomes a pipeline of a
simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock import Arrivals, BadInputError, Cluster, Grouping, Node, Refusal, Service
from penstock.plugins import CPU, CPU_POINTS_PER_SLOT, MEMORY, PLACERS, OperatorRequest, PlacementRequest, Room
from penstock.simulation.scenario import SimulatedPipeline, SimulatedRoute, Station

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock import Load, Slot
    from penstock.plugins import Placement

EVEN_SKEW, MANY_KEYS = 1e-6, 24_000
"""Keys drawn at random, so many and so even that every thread gets its share."""
WORKERS_PER_NODE = 4
"""Worker processes of a node, as Storm ships."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One operator: its threads, what a tuple costs one of them, and what a thread is declared to need."""

    name: str
    threads: int
    service_ms: float
    """A tuple takes a thread so long."""
    cpu_share: float = 1.0
    """Of that time, on the processor."""
    cpu: float = 10.0
    """Points a thread is declared to need."""
    memory_mb: float = 128.0


@dataclass(frozen=True, slots=True)
class Topology:
    """Operators and streams (sender, receiver), with the bytes of a tuple and the tuples/s demands are for."""

    name: str
    operators: tuple[Declared, ...]
    streams: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    tuple_bytes: tuple[float, ...] | float = 100.0
    """Bytes of a tuple of every stream, or one number for all."""
    rate: float = 1.0

    def position(self, name: str) -> int:
        return next(position for position, operator in enumerate(self.operators) if operator.name == name)

    @property
    def stream_bytes(self) -> tuple[float, ...]:
        """Bytes of a tuple of every stream."""
        one = self.tuple_bytes
        return one if isinstance(one, tuple) else (one,) * len(self.streams)


def chain(*names: str) -> tuple[tuple[str, str], ...]:
    """Streams from each to the next."""
    return tuple(pairwise(names))


def racked_cluster(
    nodes: int, racks: int, cores: float, memory_mb: float, bandwidth_mbps: float, slots: int = WORKERS_PER_NODE
) -> Cluster:
    """Equal nodes, rack after rack."""
    per_rack = -(-nodes // racks)
    return Cluster(
        tuple(
            Node(
                f"node{number + 1}",
                f"rack{number // per_rack + 1}",
                slots,
                {CPU: CPU_POINTS_PER_SLOT * cores, MEMORY: memory_mb},
                bandwidth_mbps=bandwidth_mbps,
            )
            for number in range(nodes)
        )
    )


def request_of(topology: Topology) -> PlacementRequest:
    """Every stream carries the topology's rate times the sources its sender hears of."""
    rates = stream_rates(topology)
    return PlacementRequest(
        topology.name,
        tuple(
            OperatorRequest(operator.name, operator.threads, (operator.cpu, operator.memory_mb))
            for operator in topology.operators
        ),
        tuple((topology.position(sender), topology.position(receiver)) for sender, receiver in topology.streams),
        tuple(topology.position(source) for source in topology.sources),
        rates=rates,
        traffic=tuple(rate * size for rate, size in zip(rates, topology.stream_bytes, strict=True)),
    )


def stream_rates(topology: Topology) -> tuple[float, ...]:
    """`w_j = sum over streams (i, j) of w_i`, sources emitting the topology's rate; operators stand in flow order."""
    rate = {
        operator.name: topology.rate if operator.name in topology.sources else 0.0 for operator in topology.operators
    }
    for operator in topology.operators:
        for sender, receiver in topology.streams:
            if receiver == operator.name:
                rate[receiver] += rate[sender]
    return tuple(rate[sender] for sender, _ in topology.streams)


def placed_together(topologies: Sequence[Topology], cluster: Cluster, placer: str) -> list[Placement]:
    """One after the other, each on what the earlier ones left. A refusal is an error: nothing could be simulated."""
    room = Room(cluster, slot_memory_shared=False)
    policy = PLACERS.create(placer)
    placements: list[Placement] = []
    for topology in topologies:
        request = request_of(topology)
        answer = policy.place(request, room)
        if isinstance(answer, Refusal):
            raise BadInputError(f"{topology.name} by {placer}: {answer}")
        room.take(answer, {operator.name: operator.demand for operator in request.operators})
        placements.append(answer)
    return placements


def simulated(
    topology: Topology,
    placement: Placement,
    load: Load,
    *,
    in_flight: int | None = None,
    arrivals: Arrivals = Arrivals.CONSTANT,
    service: Service = Service.CONSTANT,
    subgraphs: bool = False,
) -> SimulatedPipeline:
    """Return a placement as a pipeline of a simulation.

    Streams are dealt to threads at random, as Storm's shuffle does: dealt in turn, tuple n of every operator would
    meet thread n of the next, and round robin would look as if it kept tuples on their nodes. With `subgraphs` a stream
    stays on its slot if both of its ends have the same threads on the same slots: they are one vertex then.
    """
    threads = threads_by_slot(topology, placement)
    return SimulatedPipeline(
        topology.name,
        tuple(
            Station(
                operator.name,
                slot,
                count,
                operator.service_ms / 1000,
                operator.cpu_share * operator.service_ms / 1000,
                memory_mb=(count * operator.memory_mb, count * operator.memory_mb),
                service=service,
            )
            for operator in topology.operators
            for slot, count in threads[operator.name].items()
        ),
        tuple(
            SimulatedRoute(sender, receiver, Grouping.LOCAL_OR_SHUFFLE, bytes=size)
            if subgraphs and threads[sender] == threads[receiver]
            else SimulatedRoute(sender, receiver, Grouping.FIELDS, bytes=size, skew=EVEN_SKEW, keys=MANY_KEYS)
            for (sender, receiver), size in zip(topology.streams, topology.stream_bytes, strict=True)
        ),
        topology.sources,
        load,
        arrivals=arrivals,
        in_flight=in_flight,
    )


def threads_by_slot(topology: Topology, placement: Placement) -> dict[str, dict[Slot, int]]:
    """Return the threads of every operator on every slot."""
    threads: dict[str, dict[Slot, int]] = {operator.name: {} for operator in topology.operators}
    for name, count, slot, _ in placement.bundles:
        threads[name][slot] = threads[name].get(slot, 0) + count
    return threads


def nodes_used(placements: Iterable[Placement]) -> int:
    return len({bundle.slot.node for placement in placements for bundle in placement.bundles})


def most_declared_cpu(topologies: Sequence[Topology], placements: Sequence[Placement]) -> float:
    """Points of the node that is asked for most."""
    points: dict[str, float] = {}
    for topology, placement in zip(topologies, placements, strict=True):
        declared = {each.name: each.cpu for each in topology.operators}
        for operator, count, slot, _ in placement.bundles:
            points[slot.node] = points.get(slot.node, 0.0) + count * declared[operator]
    return max(points.values(), default=0.0)
