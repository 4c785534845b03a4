"""Small systems for the tests of the simulation, by hand and at random."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from penstock.cluster.topology import CPU, MEMORY, Cluster, Node, Slot
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Grouping
from penstock.simulation.scenario import (
    Arrivals,
    Network,
    Outage,
    Scenario,
    Service,
    SimulatedPipeline,
    SimulatedRoute,
    Station,
    Switch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NO_DELAY = Network(0.0, 0.0, 0.0, 0.0)


def cluster(nodes: int = 3, slots: int = 4, racks: int = 2) -> Cluster:
    capacity = MappingProxyType({CPU: 100.0 * slots, MEMORY: 2048.0 * slots})
    return Cluster(tuple(Node(f"n{number}", f"r{number % racks}", slots, capacity) for number in range(nodes)))


def station(
    operator: str, node: int = 0, slot: int = 0, threads: int = 1, seconds: float = 0.0, **more: Any
) -> Station:
    return Station(operator, Slot(f"n{node}", slot), threads, seconds, **more)


def queue(rate: float, seconds: float, threads: int = 1, **more: Any) -> SimulatedPipeline:
    """source -> work -> sink, `work` taking so many seconds."""
    service = more.pop("service", Service.CONSTANT)
    return SimulatedPipeline(
        name=more.pop("name", "queue"),
        stations=(
            station("source"),
            station("work", slot=1, threads=threads, seconds=seconds, service=service),
            station("sink", slot=2),
        ),
        routes=(SimulatedRoute("source", "work"), SimulatedRoute("work", "sink")),
        sources=("source",),
        load=Load.constant(rate),
        **more,
    )


def alone(pipeline: SimulatedPipeline, seconds: float, **more: Any) -> Scenario:
    more.setdefault("network", NO_DELAY)
    return Scenario(more.pop("cluster", cluster()), (pipeline,), seconds, **more)


# -------------------------------------------------------------------------------------------- at random


@st.composite
def placements(
    draw: Callable[..., Any], operators: list[str], *, timeless: set[str], random: bool
) -> tuple[Station, ...]:
    found = []
    for name in operators:
        slots = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=3, unique=True))
        for node, slot in slots:
            found.append(
                station(
                    name,
                    node,
                    slot,
                    threads=draw(st.integers(1, 3)),
                    seconds=0.0 if name in timeless else draw(st.sampled_from([0.01, 0.02, 0.05])),
                    cpu_seconds=0.0 if name in timeless else draw(st.sampled_from([0.0, 0.01, 0.02])),
                    idle_cpu=draw(st.sampled_from([0.0, 0.1])),
                    service=Service.EXPONENTIAL if random else Service.CONSTANT,
                    batched=name == operators[0],
                )
            )
    return tuple(found)


@st.composite
def loads(draw: Callable[..., Any]) -> Load:
    rate = draw(st.sampled_from([10.0, 37.0, 100.0, 150.0]))
    kind = draw(st.sampled_from(["constant", "steps", "on-off"]))
    if kind == "constant":
        return Load.constant(rate)
    return Load(((1.0, rate), (0.5, rate / 2)), repeats=kind == "on-off")


@st.composite
def pipelines(draw: Callable[..., Any], name: str = "p") -> SimulatedPipeline:
    sources = ["s0", "s1"][: draw(st.integers(1, 2))]
    inner = [f"o{number}" for number in range(draw(st.integers(0, 3)))]
    ends = ["k0", "k1"][: draw(st.integers(1, 2))]
    routes = []
    for position, receiver in enumerate([*inner, *ends]):
        before = [*sources, *inner[:position]]
        for sender in draw(st.lists(st.sampled_from(before), min_size=1, max_size=2)):
            grouping = draw(st.sampled_from(Grouping))
            routes.append(
                SimulatedRoute(
                    sender,
                    receiver,
                    grouping,
                    selectivity=draw(st.sampled_from([1.0, 1.0, 0.5, 0.3, 1.7, 0.0])),
                    constant=draw(st.sampled_from([0.0, 0.0, 5.0])),
                    skew=draw(st.sampled_from([0.0, 1.2])),
                    keys=20,
                )
            )
    timeless = {*sources, *draw(st.sets(st.sampled_from(ends)))}
    random = draw(st.booleans())
    return SimulatedPipeline(
        name=name,
        stations=draw(placements([*sources, *inner, *ends], timeless=timeless, random=random)),
        routes=tuple(routes),
        sources=tuple(sources),
        load=draw(loads()),
        arrivals=draw(st.sampled_from(Arrivals)),
    )


@st.composite
def scenarios(draw: Callable[..., Any]) -> Scenario:
    """Systems both engines can do; some far too slow for their load."""
    first = draw(pipelines("p0"))
    names = list(first.operators)
    more = (draw(pipelines("p1")),) if draw(st.booleans()) else ()
    random = any(one.service is Service.EXPONENTIAL for one in first.stations)
    timeless = {name for name in names if all(s.service_seconds == 0 for s in first.stations if s.operator == name)}
    switches: tuple[Switch, ...] = ()
    if draw(st.booleans()):
        switches = (
            Switch(
                draw(st.sampled_from([0.7, 1.5])),
                "p0",
                draw(placements(names, timeless=timeless, random=random)),
                drain=draw(st.booleans()),
                pause_seconds=draw(st.sampled_from([0.0, 0.25])),
            ),
        )
    outages: tuple[Outage, ...] = ()
    if draw(st.booleans()):
        start = draw(st.sampled_from([0.5, 1.0]))
        outages = (Outage("n1", start, draw(st.sampled_from([None, start + 0.8]))),)
    return Scenario(
        cluster(),
        (first, *more),
        seconds=3.0,
        warm_up=draw(st.sampled_from([0.0, 0.5])),
        seed=draw(st.integers(0, 5)),
        network=draw(st.sampled_from([NO_DELAY, Network()])),
        batch_interval_ms=draw(st.sampled_from([None, 100.0])),
        contention=draw(st.booleans()),
        window_seconds=draw(st.sampled_from([0.5, 0.3])),
        outages=outages,
        switches=switches,
        points=7,
    )
