"""Random pipelines, models, clusters and requests for the property tests."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hypothesis import assume
from hypothesis import strategies as st

from penstock.cluster.topology import CPU, MEMORY, Catalogue, Cluster, Node, find_catalogue
from penstock.dataflow.pipeline import KEYED, Grouping, Kind, Operator, Pipeline, Stream, gains
from penstock.modelling.library import ModelLibrary, demands_of
from penstock.modelling.model import Model, Point
from penstock.modelling.task_profile import Bound, TaskProfile
from penstock.planning.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_THREADS = 400
"""Requests for more are not tried: they take long and show nothing new."""


def amounts(low: float, high: float) -> st.SearchStrategy[float]:
    """Finite numbers; what is next to nothing becomes nothing (`test_amounts_next_to_nothing` tries those)."""
    return st.floats(low, high, allow_nan=False, allow_infinity=False).map(
        lambda amount: amount if amount >= 1e-6 else low
    )


shares = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), amounts(0, 1))


@st.composite
def models(draw: Callable[..., Any], name: str) -> Model:
    """One to five points of rising threads; rates, cpu and memory may rise or fall."""
    steps = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    steps[0] = min(steps[0], 3)
    points = []
    threads = 0
    for step in steps:
        threads += step
        rate = draw(st.one_of(st.integers(5, 300).map(float), amounts(5, 300)))
        points.append(Point(threads=threads, rate=rate, cpu=draw(shares), memory=draw(shares)))
    return Model(name, tuple(points))


@st.composite
def profiles(draw: Callable[..., Any], name: str) -> TaskProfile:
    """Costs of a tuple, some of them nothing; what binds a thread is said now and then, and then costs something."""
    costs = {
        Bound.SOJOURN: draw(st.one_of(st.just(0.0), amounts(0.001, 0.2))),
        Bound.CPU: draw(st.one_of(st.just(0.0), amounts(0.01, 2))),
        Bound.IO: draw(st.one_of(st.just(0.0), amounts(0.001, 0.5))),
        Bound.MEMORY: draw(st.one_of(st.just(0.0), amounts(0.01, 4))),
    }
    assume(any(costs.values()))
    bounds = [None, *(bound for bound, cost in costs.items() if cost)]
    return TaskProfile(
        name=name,
        sojourn_seconds=costs[Bound.SOJOURN],
        processing_cpu=costs[Bound.CPU],
        moving_cpu=costs[Bound.IO],
        memory_mb=costs[Bound.MEMORY],
        bound=draw(st.sampled_from(bounds)),
    )


selectivities = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]), amounts(0, 2))
constants = st.one_of(st.just(0.0), st.just(0.0), amounts(0, 50))


@st.composite
def pipelines(draw: Callable[..., Any]) -> Pipeline:
    """One to three sources, up to five operators, up to two sinks, each reading from one or two declared before it."""
    sources = [f"s{number}" for number in range(draw(st.integers(1, 3)))]
    inner = [f"o{number}" for number in range(draw(st.integers(0, 5)))]
    sinks = [f"k{number}" for number in range(draw(st.integers(0, 2)))]
    operators = [Operator(name=name, kind=Kind.SOURCE, model=name if draw(st.booleans()) else None) for name in sources]
    for name in inner:
        if draw(st.integers(0, 4)):
            operators.append(Operator(name=name, model=name))
        else:
            threads, cpu, memory = draw(st.tuples(st.integers(1, 5), amounts(0, 100), amounts(0, 2048)))
            operators.append(Operator(name=name, threads=threads, cpu=cpu, memory_mb=memory))
    operators += [Operator(name=name, kind=Kind.SINK) for name in sinks]
    streams = []
    for position, name in enumerate([*inner, *sinks]):
        before = [*sources, *inner[:position]]
        for sender in draw(st.lists(st.sampled_from(before), min_size=1, max_size=2)):
            grouping = draw(st.sampled_from(Grouping))
            streams.append(
                Stream(
                    sender=sender,
                    receiver=name,
                    selectivity=draw(selectivities),
                    constant=draw(constants),
                    grouping=grouping,
                    key="k" if grouping in KEYED else None,
                )
            )
    return Pipeline.of("random", draw(st.permutations(operators)), draw(st.permutations(streams)))


@st.composite
def clusters(draw: Callable[..., Any]) -> Cluster:
    """One to six nodes of one to eight slots in up to three racks, slots of different memory."""
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        slots = draw(st.integers(1, 8))
        memory = slots * draw(st.sampled_from([2048.0, 3584.0, 8192.0]))
        capacity = MappingProxyType({CPU: 100.0 * slots, MEMORY: memory})
        nodes.append(Node(f"n{number}", draw(st.sampled_from(["r1", "r2", "r3"])), slots, capacity))
    return Cluster(tuple(nodes))


@dataclass(frozen=True)
class Asked:
    """A request for a plan."""

    pipeline: Pipeline
    library: ModelLibrary
    offer: Cluster | Catalogue
    rate: float

    def planner(self) -> Planner:
        """A fresh one, that remembers nothing."""
        return Planner(self.pipeline, self.library, self.offer)


@st.composite
def requests(draw: Callable[..., Any]) -> Asked:
    pipeline = draw(pipelines())
    named = [operator.model for operator in pipeline.operators.values() if operator.model is not None]
    kinds = {name: draw(st.sampled_from(["model", "model", "model", "profile", "both"])) for name in named}
    library = ModelLibrary.of(
        [draw(models(name)) for name, kind in kinds.items() if kind != "profile"],
        [draw(profiles(name)) for name, kind in kinds.items() if kind != "model"],
    )
    rate = draw(st.one_of(st.integers(1, 200).map(float), amounts(0.5, 200)))
    found = gains(pipeline)
    known = {name: demand for name, demand in demands_of(pipeline, library).items() if isinstance(demand, Model)}
    assume(sum(found[name].at(rate) / model.rate(1) for name, model in known.items()) <= MOST_THREADS)
    offer = draw(st.one_of(clusters(), st.just(find_catalogue("azure-d"))))
    return Asked(pipeline, library, offer, rate)
