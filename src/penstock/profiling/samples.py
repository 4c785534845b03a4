"""What operators get in their pipeline, for trials of them alone: some tuples are put through it first.

The pipeline is built over samples instead of streams, as where schemas are found out (`spark.fused.inference`), so that
operators behind an aggregation, or behind Spark's own code, get what they really get. Code runs in a worker.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, lit
from pyspark.sql.types import TimestampType

from penstock.base.clock import Stopwatch, now
from penstock.base.errors import BadInputError, RunFailedError
from penstock.dataflow.formats import reading_of
from penstock.dataflow.logic import Per
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.dataflow.regions import is_sparks_own
from penstock.engines.fused.frames import CodeOptions, FrameBuilder, query_mode
from penstock.engines.fused.restartable_query import reason
from penstock.engines.fused.sources.readers import SAMPLES, sample_source, struct_of
from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.schema_inference import sample_steps
from penstock.runtime.segment import Segment
from penstock.spark.internals.plans import arrow_of
from penstock.spark.region_function import DUE_COLUMN, ID_COLUMN, VALUE_COLUMN, with_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.aggregate import Aggregate
    from penstock.dataflow.logic import Logic
    from penstock.runtime.account import Account
    from penstock.runtime.batch import Batch
    from penstock.runtime.steps import Step

MORE_SAMPLES = 4096
"""Tuples of a source, where nothing came to some operator of the first: a filter before it lets few through."""
AT_ONCE = 32
SECONDS = 2.0
"""No more tuples are begun after that if every operator has got one."""
MOST_SECONDS = 15.0
THREADS = 16
"""Of every operator: some wait long."""
SAMPLE_RATE = 100.0
"""Sampled tuples are due so many a second, where that decides into which window they go."""
_END = "end-of-samples"
_WATERMARK = "spark.watermarkDelayMs"
"""Where Spark writes to a column that it has a watermark."""
_MOMENT = "moment_of_a_sample"


@dataclass(frozen=True)
class OperatorSample:
    """What an operator gets and, if it is code of a slot, what it sends."""

    rows: pa.Table
    numbered: bool = False
    """`value` is the number of the source tuple: a trial that repeats the rows goes on counting, so that code that
    looks something up does not ask for the same few all along."""
    sends: pa.Schema | None = None
    flow: SampledFlow | None = None


@dataclass(frozen=True, slots=True)
class SampledFlow:
    """Of sampled tuples: so many came to an operator, and for each it sent so many, on average."""

    tuples: int
    selectivity: float


def numbers(operator: str, logic: Logic) -> OperatorSample:
    """What operators get that stand behind a plain source."""
    sends = None if logic.schema is None else arrow_of(struct_of(logic.schema, f"operator '{operator}'"))
    rows = pa.table({VALUE_COLUMN: pa.array([0], pa.int64())})
    return OperatorSample(rows, numbered=True, sends=rows.schema if sends is None else sends)


@dataclass(frozen=True)
class OwnSample:
    """Of an operator of Spark's own: what each of its streams carries, what it makes of frames of such, and the mode
    its query is in."""

    inputs: list[OperatorSample]
    apply: Callable[..., DataFrame]
    mode: str
    aggregate: Aggregate | None = None
    """None: it is a function of DataFrames."""


@dataclass
class Taken:
    """By operator."""

    code: dict[str, OperatorSample] = field(default_factory=dict)
    ends: dict[str, OperatorSample] = field(default_factory=dict)
    """Of sources what they read, of sinks what comes to them."""
    sparks_own: dict[str, OwnSample] = field(default_factory=dict)


def take_samples(
    session: SparkSession,
    pipeline: Pipeline,
    logic: Mapping[str, Logic],
    wanted: set[str],
    environment: Mapping[str, str],
) -> Taken:
    """For the operators of `wanted` that anything came to."""
    if not wanted:
        return Taken()
    taken = _taken(session, pipeline, logic, wanted, environment, SAMPLES)
    if wanted <= {*taken.code, *taken.ends, *taken.sparks_own}:
        return taken
    return _taken(session, pipeline, logic, wanted, environment, MORE_SAMPLES)


def _taken(
    session: SparkSession,
    pipeline: Pipeline,
    logic: Mapping[str, Logic],
    wanted: set[str],
    environment: Mapping[str, str],
    rows: int,
) -> Taken:
    """From so many tuples of a source."""
    needed = up_to(pipeline, wanted)
    code = {name: code_of_operator for name, code_of_operator in logic.items() if name in needed.operators}
    # a name of its own: workers keep the code of a run by it
    options = CodeOptions(
        f"samples-{secrets.token_hex(3)}", code, dict.fromkeys(code, THREADS), environment=environment
    )
    taken = Taken()

    def learn(steps: tuple[Step, ...], frames: list[DataFrame]) -> Mapping[str, pa.Schema]:
        entering = {-1 - number: frame.limit(rows).toArrow() for number, frame in enumerate(frames)}
        sampled = _sampled_in_worker(session, steps, entering, environment)
        taken.code.update(sampled)
        return {
            name: sample_of_code.sends for name, sample_of_code in sampled.items() if sample_of_code.sends is not None
        }

    try:
        sources = {
            name: sample_source(session, needed.operators[name], rows=rows)
            for name in needed.sources
            if not reading_of(needed.operators[name]).is_load
        }
        load = load_sample(session, rows)
        builder = FrameBuilder(
            session,
            needed,
            options,
            accumulator=None,
            load=lambda: load,
            read=lambda operator: sources[operator.name],
            learn=learn,
        )
        builder.build()
        mode = query_mode(pipeline, [n for n, operator in pipeline.operators.items() if operator.kind is Kind.SINK])
        dataframe = [name for name, code_of_operator in code.items() if code_of_operator.per is Per.DATAFRAME]
        for name in [wanted_name for wanted_name in wanted if needed.operators[wanted_name].kind is not Kind.OPERATOR]:
            if (rows := _rows_at(session, builder, needed.operators[name])).num_rows:
                taken.ends[name] = OperatorSample(rows)
        own = [wanted_name for wanted_name in wanted if is_sparks_own(needed, wanted_name, dataframe)]
        if own:
            streams = FrameBuilder(
                session,
                needed,
                options,
                accumulator=None,
                load=lambda: _stream_like(session, load),
                schemas=builder.schemas,
                read=lambda operator: _stream_like(session, sources[operator.name]),
            )
            streams.build()
        for name in own:
            inputs = [_of_frame(frame.limit(SAMPLES).toArrow()) for frame in builder.inputs_of(name)]
            if all(input_sample.rows.num_rows for input_sample in inputs):
                times = [_event_times(frame) for frame in streams.inputs_of(name)]
                taken.sparks_own[name] = OwnSample(
                    inputs, _applied(builder, name, times), mode.value, needed.operators[name].aggregate
                )
    except PySparkException as error:
        raise RunFailedError(f"no tuple came through pipeline '{pipeline.name}': {reason(str(error))}") from error
    return taken


def _rows_at(session: SparkSession, builder: FrameBuilder, end: Operator) -> pa.Table:
    """Of a sink with several streams those of the first."""
    frame = sample_source(session, end) if end.kind is Kind.SOURCE else builder.inputs_of(end.name)[0]
    table = frame.limit(SAMPLES).toArrow()
    return table.drop_columns(_marks_of(table))


def up_to(pipeline: Pipeline, wanted: set[str]) -> Pipeline:
    """The operators of `wanted` and whatever sends to them, with one sink behind: nothing else need run."""
    kept = set(wanted)
    while more := {stream.sender for stream in pipeline.streams if stream.receiver in kept} - kept:
        kept |= more
    operators = [operator for name, operator in pipeline.operators.items() if name in kept]
    streams = [stream for stream in pipeline.streams if stream.sender in kept and stream.receiver in kept]
    sending = {stream.sender for stream in streams}
    ends = [operator.name for operator in operators if operator.name not in sending and operator.kind is not Kind.SINK]
    sinks = [Operator(name=f"{_END}-{number}", kind=Kind.SINK) for number in range(len(ends))]
    streams += [Stream.model_validate({"from": end, "to": sink.name}) for end, sink in zip(ends, sinks, strict=True)]
    return Pipeline.of(pipeline.name, [*operators, *sinks], streams)


def load_sample(session: SparkSession, rows: int) -> DataFrame:
    """What the load generator emits, as a table."""
    return session.range(0, rows, 1, 1).selectExpr(
        f"id AS {ID_COLUMN}", f"CAST({now()} + id / {SAMPLE_RATE} AS double) AS {DUE_COLUMN}", f"id AS {VALUE_COLUMN}"
    )


def _stream_like(session: SparkSession, frame: DataFrame) -> DataFrame:
    """A stream with the columns of a table, to look at and not to run: of tables Spark forgets their watermarks."""
    nothing = session.readStream.format("rate").load()
    return nothing.select(*(lit(None).cast(column.dataType).alias(column.name) for column in frame.schema.fields))


def _event_times(frame: DataFrame) -> dict[str, int]:
    """Columns of a stream that have a watermark, declared with its source or by an operator before, and its delay in
    milliseconds. Timestamps first: windows are made of them."""
    known = {
        column.name: (not isinstance(column.dataType, TimestampType), column.metadata[_WATERMARK])
        for column in frame.schema.fields
        if _WATERMARK in column.metadata
    }
    return {name: known[name][1] for name in sorted(known, key=known.__getitem__)}


def _applied(builder: FrameBuilder, name: str, times: Sequence[Mapping[str, int]]) -> Callable[..., DataFrame]:
    """The operator's function, over frames in the place of its streams, which have the watermarks that those have."""

    def apply(*frames: DataFrame) -> DataFrame:
        return builder.apply(name, *(_with_event_times(*pair) for pair in zip(frames, times, strict=True)))

    return apply


def _with_event_times(frame: DataFrame, times: Mapping[str, int]) -> DataFrame:
    """One column moves the watermark; Spark knows the others, made of it, by what is written to them. Of windows the
    start does: those before the last are over then, and Spark misreads windows themselves."""
    if not times:
        return frame
    first = next(iter(times))
    column = col(f"`{first}`")
    is_window = not isinstance(frame.schema[first].dataType, TimestampType)
    timed = frame.withColumn(_MOMENT, column["start"] if is_window else column)
    timed = timed.withWatermark(_MOMENT, f"{times[first]} milliseconds")
    written = {
        name: col(f"`{name}`").alias(name, metadata={**frame.schema[name].metadata, _WATERMARK: delay})
        for name, delay in times.items()
    }
    return timed.select(*(written.get(name, col(f"`{name}`")) for name in frame.columns))


def _of_frame(table: pa.Table) -> OperatorSample:
    """Without a mark that says so, a `value` that counts from 0 is taken for the number of the source tuple."""
    counts = VALUE_COLUMN in table.column_names and table[VALUE_COLUMN].to_pylist() == list(range(table.num_rows))
    return OperatorSample(table, numbered=counts)


def _sampled_in_worker(
    session: SparkSession, steps: tuple[Step, ...], entering: Mapping[int, pa.Table], environment: Mapping[str, str]
) -> dict[str, OperatorSample]:
    given = dict(environment)

    def in_worker(_: int) -> dict[str, OperatorSample] | str:
        os.environ.update(given)
        try:
            return sample(steps, entering)
        except BadInputError as error:
            return str(error)

    sampled = session.sparkContext.parallelize([0], 1).map(in_worker).collect()[0]
    if isinstance(sampled, str):
        raise BadInputError(sampled)
    return sampled


def sample(steps: tuple[Step, ...], entering: Mapping[int, pa.Table]) -> dict[str, OperatorSample]:
    """What comes to every step with code, and what it sends. A step that nothing comes to is left out."""
    steps = with_schemas(steps, entering)
    outputs, account = _outputs(steps, entering)
    samples: dict[str, OperatorSample] = {}
    for step in steps:
        inputs = [
            part for read in step.reads for part in _carried(steps, read.position, entering, outputs) if len(part)
        ]
        if step.logic is not None and inputs:
            rows = pa.concat_tables(
                [pa.Table.from_batches([taken.rows]) for taken in inputs], promote_options="permissive"
            )
            numbered = all(is_numbered(taken) for taken in inputs)
            counted = account.count(step.operator)
            flow = SampledFlow(counted.rows_in, counted.rows_out / counted.rows_in) if counted.rows_in else None
            samples[step.operator] = OperatorSample(rows, numbered, step.schema, flow)
    return samples


def with_schemas(steps: tuple[Step, ...], entering: Mapping[int, pa.Table]) -> tuple[Step, ...]:
    """Where code does not say what it sends, it is seen: from a few tuples, or from all where the few do not come
    through."""
    if all(step.schema is not None or step.logic is None for step in steps):
        return steps
    plain = {place: table.drop_columns(_marks_of(table)) for place, table in entering.items()}
    silent = {step.operator for step in steps if step.logic is not None and step.schema is None}
    sampled = sample_steps(steps, {place: table.slice(0, AT_ONCE) for place, table in plain.items()})
    if not silent <= set(sampled.tables):
        sampled = sample_steps(steps, plain)
    for name in sorted(silent - set(sampled.tables)):
        why = f": {sampled.errors[name]}" if name in sampled.errors else ""
        raise BadInputError(
            f"operator '{name}': no sample tuple came through it{why}, so nothing says what it sends; "
            "give schema='NAME TYPE, ...'"
        )
    return tuple(
        replace(step, schema=sampled.tables[step.operator].schema) if step.operator in silent else step
        for step in steps
    )


def _outputs(steps: tuple[Step, ...], entering: Mapping[int, pa.Table]) -> tuple[dict[str, list[Batch]], Account]:
    """What every step with code sends, with as much of what enters as there is time for; and what was counted."""
    leaving = [replace(step, leaves=step.logic is not None, threads=THREADS) for step in steps]
    made: dict[str, list[Batch]] = {step.operator: [] for step in leaving if step.leaves}
    whole = [(place, with_marks(_one_batch(table))) for place, table in entering.items() if table.num_rows]
    segment, watch = Segment(leaving), Stopwatch()
    try:
        for first in range(0, max((len(batch) for _, batch in whole), default=0), AT_ONCE):
            pieces = [(place, batch.slice(first, min(len(batch), first + AT_ONCE))) for place, batch in whole]
            for operator, batch in segment.process_entrances(piece for piece in pieces if len(piece[1])):
                made[operator].append(batch)
            if watch.seconds() > (SECONDS if all(made.values()) else MOST_SECONDS):
                break
    except StoppedError:
        pass  # an operator stops its pipeline for this tuple: keep the output before it
    finally:
        segment.close()
    return made, segment.take_account()


def _carried(
    steps: tuple[Step, ...], position: int, entering: Mapping[int, pa.Table], outputs: Mapping[str, list[Batch]]
) -> list[Batch]:
    if position < 0:
        return [with_marks(_one_batch(entering[position]))] if entering[position].num_rows else []
    step = steps[position]
    if step.logic is not None:
        return outputs[step.operator]
    return [part for read in step.reads for part in _carried(steps, read.position, entering, outputs)]


def is_numbered(batch: Batch) -> bool:
    names = batch.rows.schema.names
    if (
        batch.ids is None
        or VALUE_COLUMN not in names
        or not pa.types.is_integer(batch.rows.schema.field(VALUE_COLUMN).type)
    ):
        return False
    values: Any = batch.rows.column(VALUE_COLUMN)
    return not values.null_count and bool(np.array_equal(np.asarray(values), batch.ids))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.concat_batches(table.to_batches()) if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)


def _marks_of(table: pa.Table) -> list[str]:
    return [name for name in (ID_COLUMN, DUE_COLUMN) if name in table.column_names]
