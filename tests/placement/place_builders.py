"""Short ways to say clusters and pipelines to place, and random ones for properties."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from penstock.base.errors import Refusal
from penstock.cluster.topology import DEFAULT_DIMENSIONS, Cluster, Dimension, Node
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pytest.mark import ParameterSet

    from penstock.planning.placement.contract import Placer

BENCH = Path(__file__).parents[2] / "bench"


def cases(algorithm: str) -> list[ParameterSet]:
    """(input, expected) of every worked case of a file, named as in the file; PENSTOCK_VECTORS as in `adapters`."""
    vectors = Path(os.environ.get("PENSTOCK_VECTORS") or Path(__file__).parent / "vectors")
    if "PENSTOCK_VECTORS" in os.environ and not (vectors / f"{algorithm}.json").exists():
        return []
    document = json.loads((vectors / f"{algorithm}.json").read_text("utf-8"))
    return [pytest.param(case["input"], case["expected"], id=case["name"]) for case in document["cases"]]


def bench_module(name: str) -> Any:
    """As it is when it runs: modules beside it can be imported."""
    if str(BENCH) not in sys.path:
        sys.path.append(str(BENCH))
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def node(name: str, rack: str = "r1", *, cpu: float = 400, memory: float = 4000, slots: int = 4) -> Node:
    return Node(name, rack, slots, {"cpu": cpu, "memory_mb": memory})


def pipeline(
    operators: Sequence[tuple[int, float, float]],
    streams: Sequence[tuple[int, int]] = (),
    *,
    name: str = "p",
    slot_memory: float | None = None,
) -> PlacementRequest:
    """Operators as (threads, cpu, memory) of one thread, named o0, o1, ...; those nobody sends to are sources."""
    receivers = {receiver for _, receiver in streams}
    return PlacementRequest(
        name,
        tuple(OperatorRequest(f"o{i}", threads, (cpu, memory)) for i, (threads, cpu, memory) in enumerate(operators)),
        tuple(streams),
        tuple(i for i in range(len(operators)) if i not in receivers),
        slot_memory,
    )


def whole(cluster: Cluster) -> Room:
    """The room of `place`: a slot may take all of its node's memory."""
    return Room(cluster, slot_memory_shared=False)


def placed(placer: Placer, request: PlacementRequest, room: Room) -> Placement:
    answer = placer.place(request, room)
    assert isinstance(answer, Placement), answer
    return answer


def refused(placer: Placer, request: PlacementRequest, room: Room) -> Refusal:
    answer = placer.place(request, room)
    assert isinstance(answer, Refusal), answer
    return answer


def by_node(placement: Placement) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = {}
    for bundle in placement.bundles:
        table.setdefault(bundle.slot.node, Counter())[bundle.operator] += bundle.threads
    return {name: dict(counts) for name, counts in table.items()}


@st.composite
def clusters(draw: st.DrawFn, *, most: int = 7) -> Cluster:
    """Small clusters; a third dimension, hard or soft, now and then."""
    third = draw(st.sampled_from([None, None, True, False]))
    dimensions = DEFAULT_DIMENSIONS if third is None else (*DEFAULT_DIMENSIONS, Dimension("gpu", third, 1.0))
    nodes = []
    for index in range(draw(st.integers(1, most))):
        capacity = {
            "cpu": float(draw(st.sampled_from([100, 150, 400]))),
            "memory_mb": float(draw(st.sampled_from([500, 1000, 4000]))),
        }
        if third is not None:
            capacity["gpu"] = float(draw(st.integers(0, 3)))
        rack = f"r{draw(st.integers(0, 2))}"
        nodes.append(Node(f"n{index}", rack, draw(st.integers(0, 4)), capacity))
    return Cluster(tuple(nodes), dimensions)


@st.composite
def pipelines(draw: st.DrawFn, dimensions: int, name: str = "p") -> PlacementRequest:
    """Small pipelines with any streams: parallel ones, cycles, loops, operators nobody reaches."""
    count = draw(st.integers(1, 6))
    operators = []
    for index in range(count):
        demand = (
            draw(st.sampled_from([0.0, 5.0, 12.5, 40.0, 100.0, 130.0])),
            draw(st.sampled_from([0.0, 33.3, 100.0, 250.0, 600.0])),
            float(draw(st.integers(0, 1))),
        )
        operators.append(OperatorRequest(f"o{index}", draw(st.integers(1, 9)), demand[:dimensions]))
    position = st.integers(0, count - 1)
    streams = draw(st.lists(st.tuples(position, position), max_size=8))
    sources = draw(st.lists(position, unique=True, max_size=2))
    slot_memory = draw(st.sampled_from([None, 300.0, 700.0]))
    return PlacementRequest(name, tuple(operators), tuple(streams), tuple(sources), slot_memory)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Cluster, list[tuple[PlacementRequest, int]]]:
    """A cluster and some pipelines with priorities."""
    cluster = draw(clusters())
    dimensions = len(cluster.dimensions)
    count = draw(st.integers(1, 3))
    return cluster, [(draw(pipelines(dimensions, f"p{i}")), draw(st.integers(1, 3))) for i in range(count)]
