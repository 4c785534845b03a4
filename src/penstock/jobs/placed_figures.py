"""Where a placed run stands while it goes on, for its listener and whoever holds its handle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch, now
from penstock.jobs.fused import FIGURES_SECONDS
from penstock.report.epochs import latencies_of, operators_of, slots_of
from penstock.report.figures import Figures, flows
from penstock.report.lag import by_source, gone_notes, waiting_notes
from penstock.report.report import arrived_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.dataflow.load import Load
    from penstock.report.epochs import EpochObservation
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.spark.placed.conducting import RunControl
    from penstock.spark.placed.execution import EpochObserver

RECENT_SECONDS = 5.0
"""What a listener hears of a run is what it did in so many seconds."""


def offered_between(load: Load, began: float, flowing: float, held: float, warm_up: float) -> float:
    """Tuples/s that were due in the time the report is about."""
    first, last = max(0.0, flowing + warm_up - began), held - began
    return load.rate_between(first, last) if last > first else load.mean_rate


def figures_hearer(
    listener: Listener, seconds: float | None, observer: EpochObserver, control: RunControl
) -> Callable[[float], None]:
    """Hears often how long a run has run; tells the listener and the handle once a second where it stands."""
    since = Stopwatch()

    def hear(ran: float) -> None:
        nonlocal since
        if observer.epochs and observer.epochs[-1].tuples:
            control.last_tuple = observer.epochs[-1].finished
        control.shares = observer.shares
        if since.seconds() >= FIGURES_SECONDS:
            since = Stopwatch()
            figures = _figures(observer, ran, seconds)
            if observer.epochs:
                control.figures = figures
            listener.on_figures(figures)

    return hear


def _figures(observer: EpochObserver, ran: float, seconds: float | None) -> Figures:
    epochs = [epoch for epoch in observer.epochs if epoch.finished > now() - RECENT_SECONDS]
    operators = operators_of(epochs)
    return Figures(
        seconds=ran,
        of_seconds=seconds,
        offered=_offered(observer, epochs),
        sustained=sum(epoch.tuples for epoch in epochs) / RECENT_SECONDS,
        backlog=observer.backlog,
        latency_ms=latencies_of(epochs),
        busy={name: seen.busy_seconds / RECENT_SECONDS for name, seen in operators.items()},
        slots={str(slot): use for slot, use in slots_of(epochs).items()},
        dead=sum(seen.dead for seen in operators.values()),
        operators=flows(operators.items(), RECENT_SECONDS),
        on_slots=flows(
            (((name, str(slot)), seen) for epoch in epochs for (name, slot), seen in epoch.on_slots.items()),
            RECENT_SECONDS,
        ),
        lag=by_source(observer.lag),
    )


def _offered(observer: EpochObserver, epochs: Sequence[EpochObservation]) -> float:
    """Of topics what came: what was taken in, and what more waits than before. Else what was due."""
    began = observer.conductor.began
    if not began:
        return 0.0
    if not observer.lag:
        return offered_between(observer.load, began, now() - RECENT_SECONDS, now(), 0.0)
    if not epochs:
        return 0.0
    first, last = epochs[0], epochs[-1]
    taken = sum(epoch.tuples for epoch in epochs[1:])
    return arrived_rate(taken, first.backlog, last.backlog, last.finished - first.finished)


def from_topics(report: Report, lag: Mapping[str, int], gone: Mapping[str, int]) -> Report:
    """Where sources are topics: what waits and what is gone, both by source/topic/partition, is said."""
    waiting = by_source(lag)
    return replace(report, lag=waiting, notes=(*report.notes, *waiting_notes(waiting), *gone_notes(by_source(gone))))
