"""From the worked cases in `vectors/` to our types, and short ways to say a pipeline, a model or a cluster.

The cases count in percent of a slot; the code counts in slots, so cpu and memory are divided by 100.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cluster.topology import CPU, MEMORY, Cluster, Node, Slot
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.modelling.library import ModelLibrary
from penstock.modelling.model import FixedDemand, Model, Point
from penstock.modelling.task_profile import Bound, TaskProfile, Traffic, memory, thread_cpu_range
from penstock.planning.placement.contract import OperatorRequest, Placement, PlacementRequest, Room

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _pytest.mark import ParameterSet

    from penstock.planning.allocation.contract import ThreadBundle

SLOT_MEMORY_MB = 3584.0
VECTORS = Path(os.environ.get("PENSTOCK_VECTORS") or Path(__file__).parent / "vectors")
"""Other cases of the same form can be tried: PENSTOCK_VECTORS=folder pytest -k vectors."""

Given = dict[str, Any]
"""The `input` of a case."""


def cases(algorithm: str) -> list[ParameterSet]:
    """(input, expected) of every case of a file, named as in the file; none where other cases are tried and have no
    such file."""
    if "PENSTOCK_VECTORS" in os.environ and not (VECTORS / f"{algorithm}.json").exists():
        return []
    document = json.loads((VECTORS / f"{algorithm}.json").read_text("utf-8"))
    return [pytest.param(case["input"], case["expected"], id=case["name"]) for case in document["cases"]]


def close(expected: Any) -> Any:
    """Equal to the four decimals the cases are worked to."""
    return pytest.approx(expected, abs=1e-4, rel=1e-6)


def model(name: str, *points: Sequence[float], percent: bool = False) -> Model:
    """Points as (threads, rate, cpu, memory)."""
    unit = 100 if percent else 1
    return Model(
        name,
        tuple(
            Point(threads=int(threads), rate=rate, cpu=cpu / unit, memory=memory / unit)
            for threads, rate, cpu, memory in points
        ),
    )


def demands(given: Given) -> dict[str, Model | FixedDemand | None]:
    """The `models` of a case: measured points, or {"static": [cpu, memory]}."""
    table: dict[str, Model | FixedDemand | None] = {}
    for name, found in given["models"].items():
        if isinstance(found, dict):
            cpu, memory = found["static"]
            table[name] = FixedDemand(cpu / 100, memory / 100)
        else:
            table[name] = model(name, *found, percent=True)
    return table


def library(given: Given) -> ModelLibrary:
    return ModelLibrary.of(found for found in demands(given).values() if isinstance(found, Model))


def pipeline(given: Given) -> Pipeline:
    """The graph of a case: tasks into which no edge leads are its sources."""
    receivers = {receiver for _, receiver, _ in given["edges"]}
    return Pipeline.of(
        "case",
        [Operator(name=name, kind=Kind.OPERATOR if name in receivers else Kind.SOURCE) for name in given["tasks"]],
        [
            Stream(sender=sender, receiver=receiver, selectivity=selectivity)
            for sender, receiver, selectivity in given["edges"]
        ],
    )


def chain(*operators: Operator, **stream: Any) -> Pipeline:
    """Operators one after the other, every stream with the same fields."""
    names = [operator.name for operator in operators]
    streams = [Stream(sender=sender, receiver=receiver, **stream) for sender, receiver in pairwise(names)]
    return Pipeline.of("chain", operators, streams)


def source(name: str = "source", **fields: Any) -> Operator:
    return Operator(name=name, kind=Kind.SOURCE, **fields)


def sink(name: str = "sink", **fields: Any) -> Operator:
    return Operator(name=name, kind=Kind.SINK, **fields)


def declared(**fields: Any) -> Pipeline:
    """A source, the operator A with these fields, and a sink."""
    return chain(source(), Operator(name="A", **fields), sink())


def cluster(slots: Sequence[int], racks: Sequence[object] | None = None) -> Cluster:
    """Nodes v0, v1, ... with so many slots each, in one rack unless said."""
    nodes = []
    for position, count in enumerate(slots):
        capacity = MappingProxyType({CPU: 100.0 * count, MEMORY: SLOT_MEMORY_MB * count})
        rack = f"r{racks[position]}" if racks else "r0"
        nodes.append(Node(f"v{position}", rack, count, capacity))
    return Cluster(tuple(nodes))


def room(slots: Sequence[int], racks: Sequence[object] | None = None) -> Room:
    return Room(cluster(slots, racks), slot_memory_shared=True)


def slot(name: str) -> Slot:
    """ "v2s1" is slot 1 of node v2."""
    node, _, index = name.partition("s")
    return Slot(node, int(index))


def by_slot(mapping: Mapping[str, Mapping[str, int]]) -> dict[Slot, Mapping[str, int]]:
    return {slot(name): threads for name, threads in mapping.items()}


def operator_request(name: str, *bundles: tuple[int, ThreadBundle]) -> OperatorRequest:
    """An operator of counted bundles; the demand of one thread is the average, as the planner gives it."""
    threads = sum(count * bundle.threads for count, bundle in bundles)
    cpu = sum(count * bundle.cpu for count, bundle in bundles) / threads
    memory = sum(count * bundle.memory for count, bundle in bundles) / threads
    return OperatorRequest(name, threads, (100 * cpu, SLOT_MEMORY_MB * memory), bundles)


def request(operators: Sequence[OperatorRequest], edges: Sequence[tuple[str, str, float]] = ()) -> PlacementRequest:
    position = {operator.name: index for index, operator in enumerate(operators)}
    streams = tuple((position[sender], position[receiver]) for sender, receiver, _ in edges)
    receivers = {receiver for _, receiver in streams}
    sources = tuple(index for index in range(len(operators)) if index not in receivers)
    return PlacementRequest("case", tuple(operators), streams, sources)


def profile(given: Mapping[str, Any]) -> TaskProfile:
    """An operator of a P-Deployer case; kind "auto" leaves what binds it to be found."""
    kind = given.get("kind", "auto")
    return TaskProfile(
        name=given.get("name", "case"),
        sojourn_seconds=given.get("tsoj", 0),
        processing_cpu=given["cp"],
        moving_cpu=given["ct"],
        memory_mb=given["mpt"],
        bound=None if kind == "auto" else Bound(kind),
    )


def traffic(app: Mapping[str, Any], operator: str) -> Traffic:
    """What an operator of a P-Deployer case takes in and sends on."""
    return Traffic(
        app.get("ingest", {}).get(operator, 0),
        tuple(size for _, receiver, size in app["streams"] if receiver == operator),
        tuple(size for sender, _, size in app["streams"] if sender == operator),
    )


def packing_request(given: Given) -> PlacementRequest:
    """The threads of a P-Deployer case, with CPU as if nothing were co-located."""
    app, threads = given["app"], given["P"]
    operators = []
    for entry in app["operators"]:
        name, count = entry["name"], threads[entry["name"]]
        least, most = thread_cpu_range(profile(entry), count, traffic(app, name))
        demand = (most, memory(profile(entry), traffic(app, name), count))
        operators.append(OperatorRequest(name, count, demand, local_cpu=least, moving_cpu=entry["ct"]))
    position = {operator.name: index for index, operator in enumerate(operators)}
    streams = tuple((position[sender], position[receiver]) for sender, receiver, _ in app["streams"])
    sources = tuple(position[name] for name in app["ingest"])
    return PlacementRequest(
        "case", tuple(operators), streams, sources, rates=tuple(size for _, _, size in app["streams"])
    )


def packing_room(given: Given) -> Room:
    """As many equal machines as there are threads; one slot may take all of a machine's memory."""
    capacity = MappingProxyType({CPU: float(given["Wc"]), MEMORY: float(given["Wm"])})
    nodes = (Node(f"m{number}", "r0", 1, capacity) for number in range(sum(given["P"].values())))
    return Room(Cluster(tuple(nodes)), slot_memory_shared=False)


def numbered(placement: Placement) -> dict[str, list[str]]:
    """{"v0s0": ["A#1", "B#1"]}: the threads of every slot, in the order they were placed."""
    table: dict[str, list[str]] = {}
    done: dict[str, int] = {}
    for operator, threads, where, _ in placement.bundles:
        row = table.setdefault(f"{where.node}s{where.number}", [])
        for _ in range(threads):
            done[operator] = done.get(operator, 0) + 1
            row.append(f"{operator}#{done[operator]}")
    return table
