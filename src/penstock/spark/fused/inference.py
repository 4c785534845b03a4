"""What code sends, where nothing says it: some tuples are put through the pipeline first, in a worker.

Only where a schema is missing. The pipeline is built over samples instead of streams: numbers of the load generator,
the first rows of files, or what another source gives within some seconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.clock import Stopwatch, pause
from penstock.dataflow.endpoints import FILE_FORMATS, reading_of
from penstock.dataflow.logic import Per
from penstock.errors import BadInputError
from penstock.runtime.sampling import Sampled, sample_steps
from penstock.spark.fused.complaints import in_one_line
from penstock.spark.fused.readers import read_source
from penstock.spark.fused.region_function import VALUE_COLUMN
from penstock.spark.fused.schemas import struct_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.runtime.steps import Step
    from penstock.spark.fused.region_steps import CodeOptions

SAMPLES = 256
WAIT_SECONDS = 10.0
"""How long a source that is no file is waited for."""


def infer_schemas(session: SparkSession, pipeline: Pipeline, options: CodeOptions) -> dict[str, pa.Schema]:
    """By operator, of those whose code does not say what it sends."""
    from penstock.spark.fused.frames import FrameBuilder  # noqa: PLC0415 - each builds with the other

    silent = [n for n, logic in options.code.items() if logic.schema is None and logic.per is not Per.DATAFRAME]
    if not silent:
        return {}
    quiet = replace(options, audit=False, keep_dead_letters=False, run=f"{options.run}-samples")
    builder = FrameBuilder(
        session,
        pipeline,
        quiet,
        accumulator=None,
        load=lambda: session.range(0, SAMPLES, 1, 1).withColumnRenamed("id", VALUE_COLUMN),
        read=lambda operator: sample_source(session, operator),
        learn=lambda steps, frames: learn_schemas(session, steps, frames),
    )
    builder.build()
    return builder.schemas


def sample_source(session: SparkSession, operator: Operator, rows: int = SAMPLES) -> DataFrame:
    """The first rows of a source, as a table."""
    reading = reading_of(operator)
    who = f"source '{operator.name}'"
    if reading.format in FILE_FORMATS:
        with in_one_line(who, reading.format):
            reader = session.read.format(reading.format).options(**reading.options)
            if reading.schema is not None:
                reader = reader.schema(struct_of(reading.schema, who))
            return reader.load().limit(rows)
    stream = read_source(session, operator)
    name = f"penstock_sample_{abs(hash(operator.name))}"
    with in_one_line(who, reading.format):
        query = stream.limit(rows).writeStream.format("memory").queryName(name).outputMode("append").start()
        try:
            waited = Stopwatch()
            while query.isActive and waited.seconds() < WAIT_SECONDS and session.table(name).isEmpty():
                pause(0.1)
            table = session.table(name).toArrow()
        finally:
            query.stop()
            session.catalog.dropTempView(name)
        return session.createDataFrame(table)


def learn_schemas(session: SparkSession, steps: tuple[Step, ...], frames: list[DataFrame]) -> Mapping[str, pa.Schema]:
    """What every step sends of the samples in `frames`; code runs in a worker, as it will."""
    entering = {-1 - number: _packed(frame.limit(SAMPLES).toArrow()) for number, frame in enumerate(frames)}

    def in_worker(_: int) -> tuple[dict[str, bytes], dict[str, str]]:
        sampled: Sampled = sample_steps(steps, {place: _unpacked(table) for place, table in entering.items()})
        return {name: table.schema.serialize().to_pybytes() for name, table in sampled.tables.items()}, sampled.errors

    schemas, errors = session.sparkContext.parallelize([0], 1).map(in_worker).collect()[0]
    refuse_unlearned(steps, schemas, errors)
    return {name: pa.ipc.read_schema(pa.py_buffer(data)) for name, data in schemas.items()}


def refuse_unlearned(steps: tuple[Step, ...], learned: Collection[str], errors: Mapping[str, str]) -> None:
    """Code that says what it sends need not show it."""
    for step in steps:
        if step.logic is not None and step.schema is None and step.operator not in learned:
            why = f": {errors[step.operator]}" if step.operator in errors else ""
            raise BadInputError(
                f"operator '{step.operator}': no sample tuple came through it{why}, so nothing says what it sends; "
                "give schema='NAME TYPE, ...'"
            )


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
