"""A model of somebody's own query, learned while it runs: what a batch costs at all, and what a row costs a slot."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.base.clock import seconds_of
from penstock.base.errors import BadInputError
from penstock.base.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# One micro-batch of an attached query, from Spark's progress.


DRIVER_STEPS = ("latestOffset", "getOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets", "commitBatch")
"""What the driver does for a batch while executors wait: Spark's names in `durationMs`."""

WRITTEN = 0.5
"""A batch that changes less state than this part of its rows is not long because of it."""


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """What is known of a batch; None where whoever tells of it does not know."""

    at: float
    """When it began, seconds since the epoch."""
    rows: float
    seconds: float
    """From its trigger to its commit."""
    slots: int | None = None
    """Cores that could work on it."""
    partitions: int | None = None
    """Tasks its input was read with: no more cores than that read at once."""
    at_once: float | None = None
    """Slots that could work on it at once, by its tasks: the time of all, over that of the longest of every stage."""
    driver_seconds: float | None = None
    """What it does by itself: by its own account, or all the time without a task, where those are heard of."""
    state_seconds: float | None = None
    """Time of tasks that went into state, divided among the slots."""
    state_rows: float | None = None
    state_bytes: float | None = None
    backlog: float | None = None
    """Rows that had arrived and were not in it."""
    arrived_rate: float | None = None
    """Rows/s it took since the batch before, as Spark says; `arrivals` says what came."""
    query: str = ""
    run: str = ""
    """Of the query: a new one with every start; empty where nobody says."""


@dataclass(frozen=True, slots=True)
class BatchTasks:
    """What the tasks of a batch tell, where they are heard of."""

    partitions: int | None = None
    """Of the first stage: its input."""
    at_once: float | None = None
    with_state: float = 0.0
    """Seconds of tasks of stages that have state."""
    seconds: float | None = None
    """In which there were tasks, stage after stage."""


UNHEARD = BatchTasks()


def batch_of(progress: Mapping[str, Any], slots: int | None, tasks: BatchTasks = UNHEARD) -> BatchSeen | None:
    """From Spark's own JSON of a progress; None for one in which no batch was made. A batch without rows is one: Spark
    makes it to let go state once time has passed, and it tells what a batch costs at all."""
    rows = _number(progress.get("numInputRows"))
    sources = [source for source in progress.get("sources") or () if isinstance(source, dict)]
    if rows is None:
        rows = sum(_number(source.get("numInputRows")) or 0.0 for source in sources)
    durations = progress.get("durationMs") or {}
    total = _number(durations.get("triggerExecution")) or _number(progress.get("batchDuration"))
    if not total or not (rows or "addBatch" in durations):
        return None
    driver = [_number(durations.get(step)) or 0.0 for step in DRIVER_STEPS]
    states = [state for state in progress.get("stateOperators") or () if isinstance(state, dict)]
    return BatchSeen(
        at=seconds_of(str(progress["timestamp"])) if progress.get("timestamp") else 0.0,
        rows=rows or 0.0,
        seconds=total / 1000,
        slots=slots,
        partitions=tasks.partitions or partitions_of(sources),
        at_once=tasks.at_once,
        driver_seconds=max(sum(driver) / 1000, total / 1000 - (tasks.seconds or total / 1000)) if durations else None,
        state_seconds=_state_seconds(states, slots, rows or 0.0, tasks.with_state),
        state_rows=_sum(states, "numRowsTotal"),
        state_bytes=_sum(states, "memoryUsedBytes"),
        backlog=_backlog(sources),
        arrived_rate=_number(progress.get("inputRowsPerSecond")) or _sum(sources, "inputRowsPerSecond"),
        query=str(progress.get("name") or progress.get("id") or ""),
        run=str(progress.get("runId") or ""),
    )


def arrivals(batches: Sequence[BatchSeen]) -> list[float | None]:
    """Rows/s at the sources before each batch, in their order: (rows + backlog - backlog before) / time between, where
    what waits is known. Else what Spark says, which is what it took: of a query that may not take more, or cannot, that
    is less than comes."""
    return [_arrived(before, batch) for before, batch in pairwise((None, *batches)) if batch is not None]


def _arrived(before: BatchSeen | None, batch: BatchSeen) -> float | None:
    if before is None or before.backlog is None or batch.backlog is None:
        return batch.arrived_rate
    if batch.run != before.run or batch.at <= before.at:
        return batch.arrived_rate
    return max(0.0, batch.rows + batch.backlog - before.backlog) / (batch.at - before.at)


def _state_seconds(
    states: Iterable[Mapping[str, Any]], slots: int | None, rows: float, with_state: float
) -> float | None:
    """Spark adds these up over tasks; they ran `slots` at a time. It counts updates and commits; reading, and merging
    with what was read, only tasks tell: those of stages with state, where most rows change it."""
    names = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
    times_ms = [value for state in states for name in names if (value := _number(state.get(name))) is not None]
    if not times_ms:
        return None
    changes = (_sum(states, "numRowsUpdated") or 0.0) >= WRITTEN * rows
    return max(sum(times_ms) / 1000, with_state if changes else 0.0) / max(1, slots or 1)


def partitions_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Of Kafka's offsets, `{"topic": {"0": 17, ...}}`; other sources do not say."""
    partitions = 0
    for source in sources:
        for parts in _offsets(source.get("endOffset")).values():
            partitions += len(parts)
    return partitions or None


def _backlog(sources: Iterable[Mapping[str, Any]]) -> float | None:
    """latest - end, summed over partitions."""
    waiting: float | None = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, parts in latest.items():
            for part, offset in parts.items():
                behind = offset - end.get(topic, {}).get(part, offset)
                waiting = (waiting or 0.0) + max(0.0, behind)
    return waiting


def _offsets(value: Any) -> dict[str, dict[str, float]]:
    """Kafka's form, or nothing. Event logs have it as text, where a progress has it as JSON."""
    if isinstance(value, str):
        try:
            value = parse_json(value, "offsets")
        except BadInputError:
            return {}
    if not isinstance(value, dict):
        return {}
    return {
        str(topic): {str(part): float(offset) for part, offset in parts.items()}
        for topic, parts in value.items()
        if isinstance(parts, dict) and all(_number(offset) is not None for offset in parts.values())
    }


def _sum(entries: Iterable[Mapping[str, Any]], name: str) -> float | None:
    values = [value for entry in entries if (value := _number(entry.get(name))) is not None]
    return sum(values) if values else None


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e300 else None


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
