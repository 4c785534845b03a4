"""An aggregation as a query: tickets are expanded to rows, Spark groups them and keeps the state, groups are sent on.

Unlike other bundles this one depends on its checkpoint, because the state is there: ticket n is always Spark's batch n.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.clock import Stopwatch, cpu_seconds, now
from penstock.dataflow.aggregate import Emit
from penstock.spark.bundle_work import SlotMeter, send, where_it_runs
from penstock.spark.channels import BundleFolder, Manifest, Ticket
from penstock.spark.segment import Result, StepCount
from penstock.spark.tuple_files import read_tuples
from penstock.spark.tuples import Tuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame

    from penstock.dataflow.aggregate import Aggregate
    from penstock.spark.bundles import Bundle

MADE_BY_AGGREGATION = -1
"""The id of tuples that descend from many."""

_DUE, _MOMENT, _WINDOW = "penstock_due", "penstock_moment", "penstock_window"

_ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}


@dataclass(frozen=True)
class Expand:
    """For `mapInArrow` over tickets: the rows they name, with the fields the aggregation needs."""

    run: str
    aggregate: Aggregate

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = self.aggregate.columns
        for batch in batches:
            for line in batch["value"].to_pylist():
                items = [
                    item
                    for part in Ticket.of(line).rows
                    for item in read_tuples(Path(self.run) / part.file, part.first, part.last)
                ]
                arrays = [pa.array([item.due for item in items], pa.float64())]
                arrays += [
                    pa.array([item.payload.get(name) for item in items], _ARROW[columns[name]]) for name in columns
                ]
                yield pa.record_batch(arrays, names=[_DUE, *columns])


@dataclass(frozen=True)
class SendGroups:
    """For `mapInArrow` over groups: each becomes a tuple and goes the bundle's ways."""

    run: str
    bundle: Bundle
    environment: tuple[tuple[str, str], ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - only known inside a task

        os.environ.update(self.environment)
        begun, watch, cpu = now(), Stopwatch(), cpu_seconds()
        context: Any = TaskContext.get()
        number = int(context.getLocalProperty("streaming.sql.batchId"))
        if context.partitionId() != 0:
            raise RuntimeError(f"the groups of '{self.bundle.name}' are in several partitions, expected one")
        items = []
        for batch in batches:
            for row in batch.to_pylist():
                due = row.pop(_DUE)
                items.append(Tuple(MADE_BY_AGGREGATION, due if due is not None else begun, 0, row))
        operator = self.bundle.operators[0]
        folder = BundleFolder(Path(self.run), self.bundle.name)
        result = Result(sent={operator: items}, counts={operator: StepCount(sent=len(items))})
        if not folder.is_published(number):
            with folder.attempt(number) as attempt:
                sent = send(self.bundle, folder, result, number, attempt)
                folder.publish(
                    Manifest(
                        bundle=self.bundle.name,
                        number=number,
                        ends={},
                        emitted_until=None,
                        sent=sent,
                        outcome=None,
                        counts={},
                        used={
                            "rows": 0,
                            "groups": len(items),
                            "cpu_seconds": cpu_seconds() - cpu,
                            "wall_seconds": watch.seconds(),
                            **SlotMeter().read(),
                        },
                        where=where_it_runs(),
                        begun=begun,
                        finished=now(),
                    )
                )
        yield pa.record_batch([pa.array([number], pa.int64())], names=["ticket"])


def aggregate_frame(
    lines: DataFrame,
    run: Path,
    bundle: Bundle,
    environment: tuple[tuple[str, str], ...],
    profile: ResourceProfile | None,
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - what everybody calls them; Spark loads when used

    aggregate = bundle.aggregate
    if aggregate is None:
        raise ValueError(f"bundle '{bundle.name}' aggregates nothing")
    columns = aggregate.columns
    schema = ", ".join([f"{_DUE} double", *(f"{name} {kind}" for name, kind in columns.items())])
    rows = lines.mapInArrow(Expand(str(run), aggregate), schema, profile=profile)
    keys: list[Any] = [F.col(name) for name in aggregate.keys]
    shown = [F.col(name) for name in aggregate.keys]
    if aggregate.window_seconds is not None:
        rows = rows.withColumn(_MOMENT, F.timestamp_seconds(F.col(_DUE)))
        rows = rows.withWatermark(_MOMENT, _interval(aggregate.late_seconds))
        slide = aggregate.slide_seconds or aggregate.window_seconds
        keys.append(F.window(F.col(_MOMENT), _interval(aggregate.window_seconds), _interval(slide)).alias(_WINDOW))
        shown += [F.col(f"{_WINDOW}.{end}").cast("double").alias(f"window_{end}") for end in ("start", "end")]
    calls = []
    for output, (function, name) in aggregate.calls().items():
        made = F.count(F.lit(1)) if name is None else getattr(F, function)(F.col(name))
        calls.append(made.alias(output))
    grouped = rows.groupBy(*keys).agg(*calls, F.max(_DUE).alias(_DUE))
    groups = grouped.select(*shown, *(F.col(output) for output in aggregate.outputs), F.col(_DUE))
    return groups.mapInArrow(SendGroups(str(run), bundle, environment), "ticket bigint", profile=profile)


def output_mode(aggregate: Aggregate) -> str:
    return "append" if aggregate.emit is Emit.CLOSED else "update"


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"
