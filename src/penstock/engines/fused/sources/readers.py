"""Sources as streaming DataFrames, by Spark's readers or a function of the user; and samples of them, from which the
schema of code that declares none is inferred.

Samples are taken only if a schema is missing. The pipeline is built over them instead of streams: numbers of the load
generator, the first rows of files, or what another source that gives its rows again gives within some seconds.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.base.files import Name, Versioned, read_value, write_text
from penstock.connectors.connection_settings import with_secrets
from penstock.dataflow.code import frame_function
from penstock.dataflow.formats import find_format, reading_of
from penstock.dataflow.logic import Per
from penstock.engines.fused.sources.topics import read_topics
from penstock.runtime.nested_values import in_zone
from penstock.runtime.schema_inference import Sampled, sample_steps
from penstock.spark.internals.checkpoint import CheckpointLog
from penstock.spark.internals.error_messages import first_line, in_one_line, raised_in_code
from penstock.spark.internals.plans import stream_formats
from penstock.spark.region_function import VALUE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.dataflow.formats import Reading
    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.engines.fused.frames import CodeOptions
    from penstock.engines.fused.query import FusedSpec
    from penstock.runtime.steps import Step


def read_source(session: SparkSession, operator: Operator, slots: int = 1, folder: Path | None = None) -> DataFrame:
    """Return the stream of a source that is not the load generator; its watermark is declared later, before the
    operators that need it. A source of ours is cut for `slots` slots, and exchanges files with its run in `folder`;
    without one it is only sampled."""
    reading = reading_of(operator)
    who = f"source '{operator.name}'"
    with in_one_line(who, reading.format):
        if reading.of_the_user:
            frame = _of_the_user(session, operator, who)
        elif find_format(reading.format).is_log:
            frame = read_topics(session, reading, who, slots, folder)
        else:
            frame = _of_spark(session, reading, who)
        if reading.watermark is not None:
            # a field that is missing, or no time, is reported here, by its source
            frame.withWatermark(reading.watermark.field, reading.watermark.delay)
    return frame


def _of_the_user(session: SparkSession, operator: Operator, who: str) -> DataFrame:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark loads only when it is used

    function = cast("Callable[[SparkSession], object]", frame_function(operator))
    with raised_in_code(who, BadInputError):
        frame = function(session)
    if not isinstance(frame, DataFrame):
        raise BadInputError(f"{who}: frame: expected a DataFrame, got {type(frame).__name__}")
    if not frame.isStreaming:
        raise BadInputError(f"{who}: frame: expected a stream (session.readStream...), got a table")
    return frame


def _of_spark(session: SparkSession, reading: Reading, who: str) -> DataFrame:
    options = with_secrets(reading.options, who, reading.format)
    stream = session.readStream.format(reading.format).options(**options)
    if reading.schema is not None:
        stream = stream.schema(struct_of(reading.schema, who))
    elif find_format(reading.format).is_files:
        # a stream of Spark's needs a schema: take it from the files that are there already
        table = session.read.format(reading.format).options(**options).load()
        if not table.columns:
            raise BadInputError(f"{who}: no rows yet to see what they hold; give schema: NAME TYPE, ...")
        stream = stream.schema(table.schema)
    return stream.load()


def struct_of(words: str, where: str) -> StructType:
    """A schema as `word string, length int`; `where` names whose it is in the complaint."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark loads only when it is used
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        return cast("StructType", StructType.fromDDL(words))
    except PySparkException as error:
        raise BadInputError(f"{where}: schema '{words}': {first_line(error)}") from error


# Schemas inferred for code that declares none, kept in the folder of its run: a resumed run would see other tuples, and
# might send other columns to the same sink.


FILE = "schemas.json"


class KeptSchemas(Versioned):
    """`operators` has schemas as Arrow writes them, in base64; `timezone` is that of the session they are from."""

    timezone: str
    operators: dict[Name, str]


def keep_schemas(folder: Path, schemas: Mapping[str, pa.Schema], timezone: str) -> None:
    written = {name: base64.b64encode(schema.serialize().to_pybytes()).decode() for name, schema in schemas.items()}
    write_text(folder / FILE, KeptSchemas(timezone=timezone, operators=written).model_dump_json(indent=2))


def kept_schemas(folder: Path, timezone: str) -> dict[str, pa.Schema]:
    """Return the kept schemas by operator; empty for a run that has kept none. Times have the time zone of the present
    session."""
    file = folder / FILE
    if not file.exists():
        return {}
    kept = read_value(KeptSchemas, file)
    schemas = {}
    for name, text in kept.operators.items():
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadInputError(f"{file}: operators.{name}: expected a schema of Arrow in base64") from error
        schemas[name] = schema if kept.timezone == timezone else in_zone(schema, timezone)
    return schemas


SAMPLES = 256
WAIT_SECONDS = 10.0
"""Seconds to wait for a source that is not a file."""
WITH_FILES = "; try the code with files of such rows in its place"


def schemas_of_run(session: SparkSession, spec: FusedSpec, options: CodeOptions) -> dict[str, pa.Schema]:
    """Return the schemas of a run. A run that has begun keeps those it inferred then, so that its sinks get the same
    columns."""
    timezone = str(session.conf.get("spark.sql.session.timeZone"))
    has_begun = CheckpointLog(session, spec.checkpoint, "offsets").last() >= 0
    known = kept_schemas(spec.folder, timezone) if has_begun else {}
    schemas = infer_schemas(session, spec.pipeline, options, known)
    if schemas != known:
        keep_schemas(spec.folder, schemas, timezone)
    return schemas


def infer_schemas(
    session: SparkSession, pipeline: Pipeline, options: CodeOptions, known: Mapping[str, pa.Schema]
) -> dict[str, pa.Schema]:
    """Return the schemas, by operator, of code that declares none; some are `known` from before."""
    from penstock.engines.fused.frames import FrameBuilder  # noqa: PLC0415 - each builds with the other

    silent = [n for n, logic in options.code.items() if logic.schema is None and logic.per is not Per.DATAFRAME]
    if known.keys() >= set(silent):
        return {name: known[name] for name in silent}
    wanting = [name for name in silent if name not in known]
    quiet = replace(options, audit=False, keep_dead_letters=False, run=f"{options.run}-samples")

    def read(operator: Operator) -> DataFrame:
        reader = next((name for name in wanting if operator.name in _up_to(pipeline, name)), None)
        if reader is None:  # its columns are enough
            return session.createDataFrame([], read_source(session, operator).schema)
        return sample_source(session, operator, way_out=f"; give operator '{reader}' schema='NAME TYPE, ...'")

    builder = FrameBuilder(
        session,
        pipeline,
        quiet,
        accumulator=None,
        load=lambda: session.range(0, SAMPLES, 1, 1).withColumnRenamed("id", VALUE_COLUMN),
        schemas=known,
        read=read,
        learn=lambda steps, frames: learn_schemas(session, steps, frames),
    )
    builder.build()
    return {name: builder.schemas[name] for name in silent}


def _up_to(pipeline: Pipeline, name: str) -> set[str]:
    """An operator and whatever sends to it, by way of others too."""
    senders = {name}
    while more := {stream.sender for stream in pipeline.streams if stream.receiver in senders} - senders:
        senders |= more
    return senders


def sample_source(
    session: SparkSession, operator: Operator, rows: int = SAMPLES, way_out: str = WITH_FILES
) -> DataFrame:
    """Return the first rows of a source as a table. A source that may not give its rows a second time is refused: they
    are for the run. `way_out` is the remedy in the error."""
    reading = reading_of(operator)
    who = f"source '{operator.name}'"
    if find_format(reading.format).is_files:
        with in_one_line(who, reading.format):
            options = with_secrets(reading.options, who, reading.format)
            reader = session.read.format(reading.format).options(**options)
            if reading.schema is not None:
                reader = reader.schema(struct_of(reading.schema, who))
            return reader.load().limit(rows)
    stream = read_source(session, operator)
    once = next((name for name in _formats_read(stream, reading) if not find_format(name).rereadable), None)
    if once is not None:
        raise BadInputError(f"{who}: {once} may not give rows a second time, so none are taken as samples{way_out}")
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


def _formats_read(stream: DataFrame, reading: Reading) -> list[str]:
    """Return the formats in the plan of a user's frame: its leaves are the sources."""
    if not reading.of_the_user:
        return [reading.format]
    return stream_formats(stream)


def learn_schemas(session: SparkSession, steps: tuple[Step, ...], frames: list[DataFrame]) -> Mapping[str, pa.Schema]:
    """Return the schema of every step's output for the samples in `frames`; code runs in a worker, as it will in the
    run. If all declare it, nothing is run: Spark may not be able to do with a table what it does with a stream."""
    wanting = next((step.operator for step in steps if step.logic is not None and step.schema is None), None)
    if wanting is None:
        return {}
    with in_one_line(f"operator '{wanting}': give schema='NAME TYPE, ...', because samples cannot be worked out"):
        entering = {-1 - number: _packed(frame.limit(SAMPLES).toArrow()) for number, frame in enumerate(frames)}

    def in_worker(_: int) -> tuple[dict[str, bytes], dict[str, str]]:
        sampled: Sampled = sample_steps(steps, {place: _unpacked(table) for place, table in entering.items()})
        return {name: table.schema.serialize().to_pybytes() for name, table in sampled.tables.items()}, sampled.errors

    schemas, errors = session.sparkContext.parallelize([0], 1).map(in_worker).collect()[0]
    refuse_unlearned(steps, schemas, errors)
    return {name: pa.ipc.read_schema(pa.py_buffer(data)) for name, data in schemas.items()}


def refuse_unlearned(steps: tuple[Step, ...], learned: Collection[str], errors: Mapping[str, str]) -> None:
    """Raise if a schema could not be inferred, unless the code declares it."""
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
