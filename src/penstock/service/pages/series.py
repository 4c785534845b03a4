"""What a pipeline did over time, and beside it what its models say it should have done with what arrived and what it
held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from penstock.control.executors.flow import Flow, after, busy, latency_ms
from penstock.control.metrics import MEANINGS, Metric
from penstock.control.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.store.store import Store

MOST_WINDOWS = 720
PREDICTED = (Metric.RATE, Metric.BACKLOG, Metric.LATENCY_MS, Metric.BUSY, Metric.CPU, Metric.MEMORY_MB)

Column = list[float | None]


def measured(store: Store, name: str, since: float) -> tuple[list[float], dict[str, Column]]:
    """Times, and one column for every metric; at most the newest `MOST_WINDOWS`."""
    windows = [(at, readings[""]) for at, _, readings in store.windows(name, since) if "" in readings][-MOST_WINDOWS:]
    columns = {str(metric): [values.get(metric) for _, values in windows] for metric in MEANINGS}
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
