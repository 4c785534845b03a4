"""One micro-batch of somebody's own query, as Spark's progress tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.clock import seconds_of
from penstock.errors import BadInputError
from penstock.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
