"""What runs inside Spark's Python workers: a segment over Arrow batches, and what it tells about itself."""

from __future__ import annotations

import atexit
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa

from penstock.clock import Stopwatch, cpu_seconds, now
from penstock.spark.interrupts import ignore_interrupts
from penstock.spark.segment import Segment, Step
from penstock.spark.sinks import Ends, TaskName
from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.segment import Result

OUTPUT_SCHEMA = "kind string, operator string, id bigint, due double, path bigint, done double, text string"
"""One row per delivered, dead or filtered tuple, and per tuple shown on the console; one per operator with its counts;
one per slot with what it used."""

_COLUMNS = ("kind", "operator", "id", "due", "path", "done", "text")

_segments: dict[str, Segment] = {}
"""Segments of this worker process by run: workers are reused, and so are threads and connections."""


def _segment(run: str, steps: tuple[Step, ...]) -> Segment:
    if run not in _segments:
        for segment in _segments.values():
            segment.close()
        _segments.clear()
        _segments[run] = Segment(steps)
        atexit.register(_segments[run].close)
    return _segments[run]


def numbers_only(number: int) -> dict[str, Any]:
    """What a source sends, or its code gets."""
    return {"value": number}


@dataclass(frozen=True)
class FusedFunction:
    """For `DataFrame.mapInArrow`. `environment` is set in the worker before any code runs there."""

    run: str
    steps: tuple[Step, ...]
    environment: tuple[tuple[str, str], ...] = ()
    ends: Ends = field(default_factory=Ends)
    fields: Callable[[int], dict[str, Any]] = numbers_only
    """What the tuple with a number holds when it enters."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        os.environ.update(self.environment)
        began, watch, cpu = now(), Stopwatch(), cpu_seconds()
        entering = [
            Tuple(id_, due, 0, self.fields(value))
            for batch in batches
            for id_, due, value in zip(
                batch["id"].to_pylist(), batch["due"].to_pylist(), batch["value"].to_pylist(), strict=True
            )
        ]
        segment = _segment(self.run, self.steps)
        result = segment.process(entering)
        task = task_name(self.run)
        shown = self.ends.take(result, task)
        rows = _rows(result)
        rows += [("shown", sink, 0, 0.0, 0, 0.0, text) for sink, text in shown]
        pieces, piece_seconds = segment.pace.take()
        used = {
            "slot": task.partition,
            "began": began,
            "cpu_seconds": cpu_seconds() - cpu - piece_seconds,
            "wall_seconds": watch.seconds(),
            "memory_mb": psutil.Process().memory_info().rss / 2**20,
            "pieces": pieces,
            "piece_seconds": piece_seconds,
        }
        rows.append(("slot", "", len(entering), 0.0, 0, 0.0, json.dumps(used)))
        columns = list(zip(*rows, strict=True))
        yield pa.record_batch([pa.array(column) for column in columns], names=list(_COLUMNS))


def task_name(run: str) -> TaskName:
    """Of the task this code runs in: the batch of the query, and the partition of the batch."""
    from pyspark import TaskContext  # noqa: PLC0415 - only known inside a task

    context = TaskContext.get()
    if context is None:
        return TaskName(run, 0, 0)
    return TaskName(run, int(context.getLocalProperty("streaming.sql.batchId") or 0), context.partitionId())


Row = tuple[str, str, int, float, int, float, str]


def _rows(result: Result) -> list[Row]:
    done = now()
    rows: list[Row] = []
    for sink, delivered in result.delivered.items():
        rows += [("delivered", sink, item.id, item.due, item.path, done, "") for item in delivered]
    rows += [
        ("dead", letter.operator, letter.tuple.id, letter.tuple.due, letter.tuple.path, done, letter.error)
        for letter in result.dead
    ]
    rows += [("filtered", "", item.id, item.due, item.path, done, "") for item in result.filtered]
    for operator, count in result.counts.items():
        text: dict[str, Any] = {
            "received": count.received,
            "sent": count.sent,
            "filtered": count.filtered,
            "dead": count.dead,
            "busy_seconds": count.seconds,
        }
        rows.append(("count", operator, 0, 0.0, 0, 0.0, json.dumps(text)))
    return rows
