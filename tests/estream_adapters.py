"""From the worked cases of E-Stream to our types.

A case has vertices with `instr` (work), `alpha` and `beta` (what leaves for what arrives) and `instances`, edges with
`data`, `bandwidth` and `weight`, and nodes with `power`, `used` and `idle`. `load` says by vertex what of a node's
power it takes, shared out among its instances; where it does not, the power left does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.dataflow.task_graph import Edge, kahn_order
from penstock.planning.placement.placers.eft_schedule import (
    Instances,
    Machines,
    Queue,
    Rules,
    Tasks,
    Transfer,
    schedule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from adapters import Given
    from penstock.planning.placement.placers.eft_schedule import Schedule, Shortfall

PROBE = " out"
"""Behind a vertex's name: an operator that receives all the vertex sends, so that its output rate can be read."""


def names(given: Given) -> list[str]:
    return [vertex["name"] for vertex in given["graph"]["vertices"]]


def pipeline(given: Given) -> Pipeline:
    """`beta` counts once for every input stream (the stream from outside, for a source), or once in all."""
    graph = given["graph"]
    readers = [edge["to"] for edge in graph["edges"]]
    operators, streams = [], []
    for vertex in graph["vertices"]:
        name = vertex["name"]
        kind = Kind.OPERATOR if name in readers else Kind.SOURCE
        inputs = 1 if given.get("beta") == "once" else max(1, readers.count(name))
        output = {"selectivity": vertex.get("alpha", 1.0), "constant": inputs * vertex.get("beta", 0.0)}
        operators += [Operator(name=name, kind=kind), Operator(name=name + PROBE)]
        streams += [
            Stream(sender=name, receiver=edge["to"], weight=edge.get("weight", 1.0), **output)
            for edge in graph["edges"]
            if edge["from"] == name
        ]
        streams.append(Stream(sender=name, receiver=name + PROBE, **output))
    return Pipeline.of("case", operators, streams)


def vertex_with_many_inputs(alpha: list[list[float]], beta: list[list[float]], inputs: list[float]) -> Pipeline:
    """One operator with n inputs and m outputs; output j is `sum over k of alpha[k][j] * in_k + beta[k][j]`."""
    senders = [f"in{k}" for k in range(len(inputs))]
    outputs = range(len(alpha[0]))
    return Pipeline.of(
        "case",
        [
            Operator(name="source", kind=Kind.SOURCE),
            *(Operator(name=name) for name in (*senders, "vertex", *(f"out{j}" for j in outputs))),
        ],
        [
            *(Stream(sender="source", receiver=name) for name in senders),
            *(
                Stream(sender=name, receiver="vertex", selectivity=rate)
                for name, rate in zip(senders, inputs, strict=True)
            ),
            *(
                Stream(
                    sender="vertex",
                    receiver=f"out{j}",
                    selectivities={name: alpha[k][j] for k, name in enumerate(senders)},
                    constant=sum(row[j] for row in beta),
                )
                for j in outputs
            ),
        ],
    )


def costs(given: Given) -> list[float]:
    """`avg c = work * mean over nodes of 1 / power`."""
    powers = [node["power"] for node in given["nodes"]]
    slowness = sum(1 / power for power in powers) / len(powers)
    return [vertex["instr"] * slowness for vertex in given["graph"]["vertices"]]


def edges(given: Given) -> list[Edge]:
    position = {name: index for index, name in enumerate(names(given))}
    return [
        Edge(position[edge["from"]], position[edge["to"]], edge["data"] / edge["bandwidth"])
        for edge in given["graph"]["edges"]
    ]


def order(given: Given) -> list[int]:
    return kahn_order(len(names(given)), [(edge.sender, edge.receiver) for edge in edges(given)])


def tasks(given: Given) -> Tasks:
    vertices = []
    for vertex in given["graph"]["vertices"]:
        instances = vertex.get("instances", 1)
        vertices.append((Instances(instances, vertex["instr"] / instances),))
    return Tasks(tuple(vertices), tuple(Transfer(a, b, seconds=seconds) for a, b, seconds in edges(given)))


def machines(given: Given) -> Machines:
    nodes = given["nodes"]
    return Machines(
        np.arange(len(nodes)),
        np.array([node["power"] for node in nodes], dtype=float),
        np.ones(len(nodes)),
        np.array([node.get("idle", 0.0) for node in nodes], dtype=float),
    )


def current(given: Given) -> dict[tuple[int, int], Any]:
    """Where every vertex runs now; on a node that is gone, nowhere."""
    nodes = [node["name"] for node in given["nodes"]]
    return {
        (vertex, 0): np.array([float(node == given["current"][name]) for node in nodes])
        for vertex, name in enumerate(names(given))
        if name in given.get("current", {})
    }


class PowerLeft:
    """Room for everything: a floor that only knows how much power each machine has left (rule 2)."""

    def __init__(self, left: NDArray[np.float64], loads: Sequence[float] | None = None) -> None:
        self.left = left
        self._loads = loads

    def fits(self, vertex: int, kind: int) -> NDArray[np.bool_]:
        return np.ones(len(self.left), dtype=bool)

    def take(self, vertex: int, kind: int, machine: int) -> None:
        if self._loads is not None:
            self.left[machine] -= self._loads[vertex]


def scheduled(given: Given) -> Schedule | Shortfall:
    left = np.array([node["power"] - node.get("used", 0.0) for node in given["nodes"]], dtype=float)
    loads = [
        given.get("load", {}).get(vertex["name"], 0.0) / vertex.get("instances", 1)
        for vertex in given["graph"]["vertices"]
    ]
    found = machines(given)
    return schedule(tasks(given), found, PowerLeft(left, loads), Queue(found.idle), Rules(current=current(given)))


def named(given: Given, found: Schedule) -> dict[str, list[Any]]:
    """{"a": [node, start, finish]} in the order decided; instances as a#1, a#2, ..."""
    table: dict[str, list[Any]] = {}
    for vertex, _, machine, start, finish in found.assigned:
        name = names(given)[vertex]
        if given["graph"]["vertices"][vertex].get("instances", 1) > 1:
            name = f"{name}#{sum(key.startswith(f'{name}#') for key in table) + 1}"
        table[name] = [given["nodes"][machine]["name"], start, finish]
    return table
