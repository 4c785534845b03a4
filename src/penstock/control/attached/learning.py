"""A model of somebody's own query, learned while it runs: what a batch costs at all, and what a row costs a slot."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from penstock.control.attached.batches import arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.control.attached.batches import BatchSeen

LEAST_BATCHES = 3
MOST_BATCHES = 500
"""The newest: a query changes with its data."""
MIN_FIGURE, MAX_FIGURE, MAX_SECONDS, MAX_COUNT = 1e-6, 1e15, 1e9, 10**6
LEAST_SPREAD = 1.3
"""Between small and large batches, as a ratio; below it nothing can be told apart by size."""
EVEN = 0.6
"""Tasks keep at least this part of the input's partitions at work at once, or rows are not divided evenly."""


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """seconds(rows) = fixed_seconds + rows * row_seconds / parallel, parallel = min(slots, partitions)"""

    batches: int
    fixed_seconds: float
    row_seconds: float
    """Of one slot."""
    parallel: int
    """Slots that could work at once in what was seen."""
    slots: int
    partitions: int | None
    """More slots do nothing: partitions of the input, or what its tasks keep at work at once where that is far less."""
    uneven: int | None
    """How many partitions the input has, where its tasks keep far fewer slots at work."""
    error: float
    """Median of |measured - modelled| / measured."""
    from_driver: bool
    """The fixed cost is what the driver said it did, not what sizes of batches tell: they were all alike, or smaller
    ones took longer."""
    driver_share: float
    """Part of a batch's time the driver needed by itself; the median."""
    state_share: float | None
    """Part of what a batch takes beyond the driver's own that goes into state; the median."""
    state_growth: float | None
    """Rows of state more per second, over what was seen; None where there is none."""
    backlog: float | None
    backlog_growth: float | None
    """Rows/s."""
    arrived_rate: float | None
    done_rate: float
    """Rows/s over what was seen, waits included."""
    busy: float
    """Part of the time in which a batch was under way."""
    largest_batch: float
    typical_seconds: float

    def batch_seconds(self, rows: float, slots: int) -> float:
        return self.fixed_seconds + rows * self.row_seconds / self.parallel_on(slots)

    def parallel_on(self, slots: int) -> int:
        return max(1, slots if self.partitions is None else min(slots, self.partitions))

    def most_rate(self, slots: int, batch_seconds: float) -> float:
        """Batches of so long, one after the other: rows = (batch - fixed) * parallel / row; rate = rows / batch."""
        useful = batch_seconds - self.fixed_seconds
        if useful <= 0:
            return 0.0
        return useful * self.parallel_on(slots) / max(self.row_seconds, 1e-12) / batch_seconds


def learn(batches: Sequence[BatchSeen]) -> LearnedModel | None:
    """None while there is too little to learn from."""
    warm = _warm(sorted(filter(is_plausible, batches), key=lambda batch: batch.at))[-MOST_BATCHES:]
    seen = [batch for batch in warm if batch.rows > 0]
    if len(seen) < LEAST_BATCHES:
        return None
    without_rows = [batch.seconds for batch in warm if batch.rows == 0]
    slots = seen[-1].slots or 1
    of_input = next((batch.partitions for batch in reversed(seen) if batch.partitions), None)
    partitions = _useful(of_input, _median([batch.at_once for batch in seen if batch.at_once]))
    loads = [batch.rows / _parallel(batch, partitions) for batch in seen]
    times = [batch.seconds for batch in seen]
    fixed, row, from_driver = _fit(loads, times, without_rows, seen)
    modelled = [fixed + row * load for load in loads]
    return LearnedModel(
        batches=len(seen),
        fixed_seconds=fixed,
        row_seconds=row,
        parallel=max(1, slots if partitions is None else min(slots, partitions)),
        slots=slots,
        partitions=partitions,
        uneven=of_input if partitions != of_input else None,
        error=median(abs(model - time) / time for model, time in zip(modelled, times, strict=True)),
        from_driver=from_driver,
        driver_share=median((batch.driver_seconds or 0.0) / batch.seconds for batch in seen),
        state_share=_median([share for batch in seen if (share := _state_share(batch)) is not None]),
        state_growth=_slope([(batch.at, batch.state_rows) for batch in seen]),
        backlog=next((batch.backlog for batch in reversed(seen) if batch.backlog is not None), None),
        backlog_growth=_slope([(batch.at, batch.backlog) for batch in seen]),
        arrived_rate=_median([rate for rate in arrivals(seen) if rate]),
        done_rate=_done_rate(seen),
        busy=_busy(seen),
        largest_batch=max(batch.rows for batch in seen),
        typical_seconds=median(times),
    )


def is_plausible(batch: BatchSeen) -> bool:
    """Return whether all figures of a batch are such as some query may have. Whoever reports them may report anything,
    and beyond these the arithmetic here would end in infinities."""
    figures = (batch.at, batch.at_once, batch.driver_seconds, batch.state_seconds, batch.state_rows, batch.state_bytes)
    more = (batch.backlog, batch.arrived_rate)
    return (
        MIN_FIGURE <= batch.seconds <= MAX_SECONDS
        and (batch.rows == 0 or MIN_FIGURE <= batch.rows <= MAX_FIGURE)
        and all(figure is None or abs(figure) <= MAX_FIGURE for figure in (*figures, *more))
        and not (batch.arrived_rate and batch.arrived_rate < MIN_FIGURE)
        and all(count is None or 0 <= count <= MAX_COUNT for count in (batch.slots, batch.partitions))
    )


def _parallel(batch: BatchSeen, partitions: int | None) -> int:
    most = [count for count in (batch.slots or 1, batch.partitions, partitions) if count]
    return min(most)


def _useful(partitions: int | None, at_once: float | None) -> int | None:
    if partitions is None or at_once is None or at_once >= EVEN * partitions:
        return partitions
    return max(1, round(at_once))


def _warm(batches: Sequence[BatchSeen]) -> list[BatchSeen]:
    """Without the first of every run: it starts workers, compiles, and has what waited before there was a query."""
    runs: set[str] = set()
    warm = []
    for batch in batches:
        if not batch.run or batch.run in runs:
            warm.append(batch)
        runs.add(batch.run)
    return warm


def _fit(
    loads: Sequence[float], times: Sequence[float], without_rows: Sequence[float], seen: Sequence[BatchSeen]
) -> tuple[float, float, bool]:
    """Least squares of time over rows per slot, the fixed cost not below 0; batches without rows are of load 0. Where
    batches are alike, or smaller ones took longer, size tells nothing: then the fixed cost is what the driver did by
    itself."""
    alone = loads, times
    loads, times = [*loads, *[0.0] * len(without_rows)], [*times, *without_rows]
    low, high = min(loads), max(loads)
    mean_load, mean_time = sum(loads) / len(loads), sum(times) / len(times)
    together = sum((load - mean_load) * (time - mean_time) for load, time in zip(loads, times, strict=True))
    if high >= LEAST_SPREAD * low and together > 0:
        row = together / sum((load - mean_load) ** 2 for load in loads)
        fixed = mean_time - row * mean_load
        if fixed < 0:
            # through the origin: the best row cost without a fixed one
            row = sum(load * time for load, time in zip(loads, times, strict=True)) / sum(load**2 for load in loads)
            fixed = 0.0
        return fixed, row, False
    loads, times = alone
    fixed = min(median(batch.driver_seconds or 0.0 for batch in seen), *times)
    return fixed, median((time - fixed) / load for load, time in zip(loads, times, strict=True)), True


def _state_share(batch: BatchSeen) -> float | None:
    """Of what depends on rows: planning and committing are not made shorter by less state."""
    if batch.state_seconds is None:
        return None
    return min(1.0, batch.state_seconds / max(batch.seconds - (batch.driver_seconds or 0.0), 1e-3))


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _slope(points: Sequence[tuple[float, float | None]]) -> float | None:
    """Least squares: by how much a second."""
    known = [(at, value) for at, value in points if value is not None]
    if len(known) < LEAST_BATCHES or known[-1][0] <= known[0][0]:
        return None
    mean_at = sum(at for at, _ in known) / len(known)
    mean_value = sum(value for _, value in known) / len(known)
    spread = sum((at - mean_at) ** 2 for at, _ in known)
    return sum((at - mean_at) * (value - mean_value) for at, value in known) / spread


def _span(seen: Sequence[BatchSeen]) -> float:
    return max(seen[-1].at + seen[-1].seconds - seen[0].at, sum(batch.seconds for batch in seen) / len(seen))


def _done_rate(seen: Sequence[BatchSeen]) -> float:
    return sum(batch.rows for batch in seen) / _span(seen)


def _busy(seen: Sequence[BatchSeen]) -> float:
    return min(1.0, sum(batch.seconds for batch in seen) / _span(seen))
