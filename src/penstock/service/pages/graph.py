"""A pipeline's graph as it is drawn: operators in layers from source to sink, few crossings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dataflow.rates import topological_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline

SWEEPS = 4


def layers_of(pipeline: Pipeline) -> list[list[str]]:
    """layer(o) = 1 + max layer of those it reads from; within a layer by the mean place of its neighbours."""
    layer: dict[str, int] = {}
    for name in topological_order(pipeline):
        layer[name] = 1 + max((layer[stream.sender] for stream in pipeline.inputs(name)), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, number in layer.items():
        layers[number].append(name)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        _order_by_neighbours(pipeline, layers if forward else layers[::-1], forward=forward)
    return layers


def _order_by_neighbours(pipeline: Pipeline, layers: list[list[str]], *, forward: bool) -> None:
    place = {name: _height(index, len(names)) for names in layers for index, name in enumerate(names)}
    for names in layers[1:]:
        means = {name: _mean_place(pipeline, name, place, forward=forward) for name in names}
        names.sort(key=lambda name, means=means: means[name])  # type: ignore[misc] # the loop's own
        place.update({name: _height(index, len(names)) for index, name in enumerate(names)})


def _mean_place(pipeline: Pipeline, name: str, place: Mapping[str, float], *, forward: bool) -> float:
    streams = pipeline.inputs(name) if forward else pipeline.outputs(name)
    others = [stream.sender if forward else stream.receiver for stream in streams]
    return sum(place[other] for other in others) / len(others) if others else place[name]


def _height(index: int, count: int) -> float:
    """From 0 to 1, a lone operator in the middle."""
    return (index + 0.5) / count


def drawn(pipeline: Pipeline) -> dict[str, Any]:
    """`x` counts layers from 0; `y` is a part of the height."""
    layers = layers_of(pipeline)
    return {
        "layers": len(layers),
        "widest": max((len(names) for names in layers), default=0),
        "operators": [
            {
                "name": name,
                "kind": str(pipeline.operators[name].kind),
                "x": number,
                "y": _height(index, len(names)),
            }
            for number, names in enumerate(layers)
            for index, name in enumerate(names)
        ],
        "streams": [
            {"from": stream.sender, "to": stream.receiver, "grouping": str(stream.grouping)}
            for stream in pipeline.streams
        ],
    }
