"""What Spark needs for every tuple besides the worker it hands it to: making it, carrying it there and back.

A fused run of one operator that makes rows of the given columns out of nothing, in one slot, as fast as it goes; as
many for a tuple as leave the slots of the pipeline. Trials do not show this: what they make leaves as bytes, and what
a slot waits for its tuples is none of its operator's time. The first batches do not count: Java compiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.clock import Stopwatch, pause
from penstock.dataflow.builder import pipeline
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic, Per
from penstock.errors import RunFailedError
from penstock.files import temporary_folder
from penstock.spark.fused.engine import FusedQuery, FusedSpec
from penstock.spark.fused.schemas import struct_of_arrow
from penstock.spark.session.process_tree import cpu_between, cpu_by_process, java_process
from penstock.spark.trials.engine_cost import passing_cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from penstock.report.report import BatchObservation
    from penstock.spark.trials.engine_cost import EngineCost, TupleCost

ROWS = 400_000
"""Of a batch: enough that the tuples, not the batch, take the time."""
WARM_BATCHES = 4
COUNTED_BATCHES = 6
MORE_THAN_ANY = 1e9
PATIENCE_SECONDS = 300.0
_OPERATOR = "pass"


def measure_passing(
    session: SparkSession,
    engine: EngineCost,
    columns: pa.Schema,
    rows_of_tuple: float,
    tick: Callable[[], None],
    *,
    audit: bool,
) -> TupleCost:
    """So many rows leave the slot for a tuple, of these `columns`."""
    fields = struct_of_arrow(columns).fields
    schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    code = Logic(RowsOf(columns, rows_of_tuple), Per.ARROW, schema=schema)
    with temporary_folder("passing") as folder:
        made = pipeline("passing").source("load").then(_OPERATOR, logic=code)
        spec = FusedSpec(
            run="passing",
            pipeline=made.sink("out").build(),
            code={_OPERATOR: code},
            threads={_OPERATOR: 1},
            slots=1,
            folder=folder,
            checkpoint=str(folder / "checkpoint"),
            load=Load.constant(MORE_THAN_ANY),
            most_rows=ROWS,
            interval_ms=1,
            audit=audit,
        )
        query = FusedQuery(session, spec)
        try:
            query.begin()
            java = java_process(session)
            warm = _pass(query, WARM_BATCHES, tick)
            before = cpu_by_process(java)
            counted = _pass(query, COUNTED_BATCHES, tick)
            cpu = cpu_between(before, cpu_by_process(java))
            seconds = counted[-1].finished - warm[-1].finished
            return passing_cost(sum(batch.tuples for batch in counted), len(counted), seconds, cpu, engine)
        finally:
            query.stop()


def _pass(query: FusedQuery, wanted: int, tick: Callable[[], None]) -> list[BatchObservation]:
    waited, batches = Stopwatch(), list(query.poll())
    while len(batches) < wanted:
        if waited.seconds() > PATIENCE_SECONDS:
            raise RunFailedError(f"{wanted} batches of {ROWS:,} tuples did not pass within {PATIENCE_SECONDS:g} s")
        tick()
        pause(0.02)
        batches += query.poll()
    return batches


@dataclass(frozen=True)
class RowsOf:
    """So many times as many rows as come, all alike: of columns with a typical value, or none where there is no such
    thing."""

    columns: pa.Schema
    times: float = 1.0

    def __call__(self, table: pa.Table) -> pa.Table:
        made = [pa.repeat(_typical(field.type), round(self.times * table.num_rows)) for field in self.columns]
        return pa.table(made, schema=self.columns)


def _typical(kind: pa.DataType) -> pa.Scalar[Any]:
    for is_kind, value in _TYPICAL:
        if is_kind(kind):
            return pa.scalar(value, kind)
    return pa.scalar(None, kind)


_TYPICAL: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_boolean, True),
    (pa.types.is_integer, 100),
    (pa.types.is_floating, 0.5),
    (pa.types.is_string, "sixteen letters."),
    (pa.types.is_binary, b"sixteen letters."),
)
