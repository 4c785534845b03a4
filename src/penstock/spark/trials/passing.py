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
from penstock.spark.fused.region_function import VALUE_COLUMN
from penstock.spark.fused.schemas import struct_of_arrow
from penstock.spark.session.process_tree import cpu_between, cpu_by_process, java_process
from penstock.spark.trials.engine_cost import passing_cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from penstock.report.report import BatchObservation
    from penstock.spark.trials.engine_cost import EngineCost, TupleCost

ROWS = 400_000
"""Of a batch: enough that the tuples, not the batch, take the time."""
WARM_BATCHES = 4
COUNTED_BATCHES = 6
MORE_THAN_ANY = 1e9
PATIENCE_SECONDS = 300.0
_OPERATOR = "pass"
_BEFORE = "widen"
_PARTS = 1000


@dataclass(frozen=True, slots=True)
class Passing:
    """What passes through the slots of a pipeline for every tuple of its source."""

    leaving: pa.Schema
    rows_leaving: float = 1.0
    entering: tuple[pa.Schema, float] | None = None
    """Columns and rows that Spark's own operators make of a tuple before it comes to code; None: it comes as it is."""


def measure_passing(
    session: SparkSession, engine: EngineCost, passes: Passing, tick: Callable[[], None], *, audit: bool
) -> TupleCost:
    fields = struct_of_arrow(passes.leaving).fields
    schema = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in fields)
    entering = 1.0 if passes.entering is None else min(1.0, passes.entering[1])
    code = Logic(RowsOf(passes.leaving, passes.rows_leaving / entering if entering else 0.0), Per.ARROW, schema=schema)
    with temporary_folder("passing") as folder:
        made, own = pipeline("passing").source("load"), {}
        if passes.entering is not None:
            own = {_BEFORE: Logic(Widened(passes.entering[0], entering), Per.DATAFRAME)}
            made = made.then(_BEFORE, logic=own[_BEFORE])
        made = made.then(_OPERATOR, logic=code)
        spec = FusedSpec(
            run="passing",
            pipeline=made.sink("out").build(),
            code={**own, _OPERATOR: code},
            threads=dict.fromkeys((*own, _OPERATOR), 1),
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


@dataclass(frozen=True)
class Widened:
    """A part of the rows, each with a typical value in every column: Spark takes no time to make them."""

    columns: pa.Schema
    part: float

    def __call__(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions  # noqa: PLC0415 - in the driver alone

        kinds = struct_of_arrow(self.columns).fields
        made = [
            functions.lit(_typical(field.type).as_py()).cast(kind.dataType).alias(field.name)
            for field, kind in zip(self.columns, kinds, strict=True)
        ]
        return frame.where(f"pmod({VALUE_COLUMN}, {_PARTS}) < {self.part * _PARTS}").select(*made)


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
