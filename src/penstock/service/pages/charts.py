"""What a pipeline did over time, and beside it what its models say it should have done with what arrived and what it
held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from penstock.control.executors.simulated import Flow, after, busy, latency_ms
from penstock.control.metrics import Metric
from penstock.control.store import schema
from penstock.dataflow.pipeline import topological_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.store.store import Store
    from penstock.dataflow.pipeline import Pipeline


MOST_WINDOWS = 720
PREDICTED = (Metric.RATE, Metric.BACKLOG, Metric.LATENCY_MS, Metric.BUSY, Metric.CPU, Metric.MEMORY_MB)

Column = list[float | None]


def measured(store: Store, name: str, since: float) -> tuple[list[float], dict[str, Column]]:
    """Times, and one column for every metric; at most the newest `MOST_WINDOWS`."""
    windows = [(at, readings[""]) for at, _, readings in store.windows(name, since) if "" in readings][-MOST_WINDOWS:]
    columns = {str(metric): [values.get(metric) for _, values in windows] for metric in Metric}
    times = [at for at, _ in windows]
    return times, columns


def predicted(
    times: Sequence[float],
    columns: Mapping[str, Column],
    rate_on: Callable[[int], float | None],
    usage: Callable[[float], tuple[float, float] | None],
) -> dict[str, Column]:
    """By the models, from what arrived and the units held in every window.

    capacity = rate_on(held); processed = min(backlog + arriving, capacity * seconds); busy = processed / capacity
    The backlog starts from what was measured in the first window; where that is not known, from nothing.
    """
    answer: dict[str, Column] = {str(metric): [None] * len(times) for metric in PREDICTED}
    offered, held = columns[Metric.OFFERED_RATE], columns[Metric.HELD]
    first = columns[Metric.BACKLOG][0] if times else None
    flow = Flow(backlog=first or 0.0)
    for position, at in enumerate(times):
        arriving, units = offered[position], held[position]
        if arriving is None or units is None:
            continue
        capacity = rate_on(round(units)) if units >= 0.5 else 0.0
        if capacity is None:
            continue
        seconds = at - times[position - 1] if position else 10.0
        before, flow = flow, after(flow, arriving * seconds, seconds, capacity)
        done = flow.processed - before.processed
        values: dict[str, float | None] = {
            Metric.RATE: done / seconds,
            Metric.BACKLOG: flow.backlog,
            Metric.LATENCY_MS: latency_ms(flow, capacity),
            Metric.BUSY: busy(done, seconds, capacity),
        }
        if (used := usage(done / seconds)) is not None:
            values[Metric.CPU], values[Metric.MEMORY_MB] = used
        for metric, value in values.items():
            answer[metric][position] = value
    return answer


def changes(store: Store, name: str, since: float) -> list[dict[str, Any]]:
    """Decisions about it and states it went through: the marks in the charts."""
    decisions, events = schema.decisions, schema.events
    decided = store.read(
        select(decisions.c.at, decisions.c.kind, decisions.c.before, decisions.c.after, decisions.c.why)
        .where(decisions.c.pipeline == name, decisions.c.at >= since)
        .order_by(decisions.c.number.desc())
        .limit(200)
    )
    happened = store.read(
        select(events.c.at, events.c.kind, events.c.before, events.c.after, events.c.why)
        .where(events.c.subject == name, events.c.at >= since, events.c.kind.in_(("state", "request")))
        .order_by(events.c.id.desc())
        .limit(200)
    )
    return sorted([*decided, *happened], key=lambda change: change["at"])


# Layout of a pipeline's graph: operators in layers from source to sink, few crossings.


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
