"""Figures of a run as readings of its parts: operators, their threads slot by slot, slots, and partitions of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.executors.driver_files import PartReport
from penstock.control.metrics import Metric
from penstock.dataflow.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.report.figures import Figures, OperatorFlow


def parts_of(figures: Figures, threads_on: Callable[[str, str], int]) -> tuple[PartReport, ...]:
    """`threads_on`: how many an operator has in a slot; 0 where nobody knows."""
    totals = dict.fromkeys(figures.operators, 0)
    for name, where in figures.on_slots:
        totals[name] = totals.get(name, 0) + threads_on(name, where)
    parts = [PartReport(operator=name, values=_values(flow, totals[name])) for name, flow in figures.operators.items()]
    parts += [
        PartReport(operator=name, slot=_slot(where), values=_values(flow, threads_on(name, where)))
        for (name, where), flow in figures.on_slots.items()
    ]
    parts += [
        PartReport(slot=_slot(where), values={str(Metric.CPU): cpu, str(Metric.MEMORY_MB): memory})
        for where, (cpu, memory) in figures.slots.items()
    ]
    parts += [
        PartReport(partition=where, values={str(Metric.LAG): float(count)}) for where, count in figures.lag.items()
    ]
    return tuple(parts)


def busiest(parts: Sequence[PartReport]) -> float | None:
    """Of its time, how much the busiest operator uses, over all slots. Of Spark's own operators no threads are known:
    theirs is a part of the batch's time already."""
    shares = [part.values[Metric.BUSY] for part in parts if part.operator is not None and part.slot is None]
    return max((share for share in shares if share <= 1 + TOLERANCE), default=None)


def batch_cost(figures: Figures, busy: float) -> float | None:
    """Seconds a batch takes besides the work of its busiest operator: seconds - busy / batches per second."""
    if figures.batch_seconds is None or figures.batches_per_second <= 0:
        return None
    return max(0.0, figures.batch_seconds - busy / figures.batches_per_second)


def part_of_possible(busy: float, cost: float, most_work: float) -> float:
    """Busy as a part of what it can be. A run that falls behind has batches of `most_work` seconds of work and pays
    the cost of each: it is busy most_work / (most_work + cost) of the time, and can do no more."""
    return min(1.0, busy * (most_work + cost) / most_work)


def _values(flow: OperatorFlow, threads: int) -> dict[str, float]:
    """Busy is of all its threads together where nobody knows how many there are."""
    values = {
        str(Metric.RATE_IN): flow.received,
        str(Metric.RATE_OUT): flow.sent,
        str(Metric.BUSY): flow.busy / max(1, threads),
    }
    return {**values, str(Metric.THREADS): float(threads)} if threads else values


def _slot(text: str) -> tuple[str, int]:
    node, _, number = text.rpartition("/")
    return node, int(number)
