"""A pipeline as DataFrames: one region of code after the other as `mapInArrow`, Spark's own operators between them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import BadInputError
from penstock.dataflow.aggregate import WINDOW_END, WINDOW_START, Emit, WindowTime, ranking_count, top_count
from penstock.dataflow.formats import COUNT, reading_of, writing_of
from penstock.dataflow.logic import Per, sparks_own_code
from penstock.dataflow.pipeline import Kind, OutputMode
from penstock.dataflow.regions import LOAD_ENTRY, cut, entry_of, is_divided
from penstock.engines.fused.sources.readers import read_source, struct_of
from penstock.runtime.dead_letters import DEAD_LETTER_SCHEMA, DEAD_LETTERS
from penstock.runtime.segment import SegmentOptions
from penstock.runtime.steps import Read, Step, shares
from penstock.spark.internals.error_messages import in_one_line, raised_in_code
from penstock.spark.internals.plans import arrow_of, struct_of_arrow
from penstock.spark.internals.watermarks import with_watermark
from penstock.spark.internals.worker_process import pickled
from penstock.spark.region_function import (
    DUE_COLUMN,
    ENTRY_COLUMN,
    EXIT_COLUMN,
    ID_COLUMN,
    VALUE_COLUMN,
    RegionFunction,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.aggregate import Aggregate
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Operator, Pipeline, Stream
    from penstock.dataflow.regions import Cut, Region


# A declared aggregation as Spark's own: a grouping, over windows of time if it declares one.


_MOMENT = "penstock_moment"
_SPAN = "penstock_span"
WINDOW = "penstock_window"
"""Column of an aggregation's output that only another aggregation gets: the window, as Spark has it."""
RESERVED_TIMES = (WINDOW_START, WINDOW_END)


def aggregate_frame(frame: DataFrame, aggregate: Aggregate, due: str) -> DataFrame:
    """Return the aggregation of a frame. Its time is the field it names, else the due time of a tuple (column `due`,
    from the load generator), else the time it was taken in. Windows of windows are those of the aggregation before:
    Spark knows by them when they are over. The last column is the window itself (`WINDOW`)."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - what everybody calls them; Spark loads when used

    # a value that cannot be had as its type is null: raised, it would end this attempt and every one after it.
    # A column's watermark is dropped: there is one time in a window, that of the aggregation
    columns = [F.col(f"`{name}`").try_cast(kind).alias(name, metadata={}) for name, kind in aggregate.columns.items()]
    keys: list[Any] = [F.col(name) for name in aggregate.keys]
    shown = [F.col(name) for name in aggregate.keys]
    if aggregate.window_seconds is None:
        rows = frame.select(*columns)
    else:
        if aggregate.time in RESERVED_TIMES and WINDOW in frame.columns:
            rows, moment = frame.select(*columns, WINDOW), WINDOW
        else:
            rows, moment = frame.select(*columns, _moment_of(frame, aggregate, due)), _MOMENT
            rows = rows.withWatermark(_MOMENT, _interval(aggregate.late_seconds))
        slide = aggregate.slide_seconds or aggregate.window_seconds
        keys.append(F.window(F.col(moment), _interval(aggregate.window_seconds), _interval(slide)).alias(_SPAN))
        shown += [F.col(f"{_SPAN}.{end}").cast("double").alias(f"window_{end}") for end in ("start", "end")]
    calls = []
    for output, (function, names) in aggregate.calls().items():
        most, ranked = top_count(function), ranking_count(function)
        if not names:
            made = F.count(F.lit(1))
        elif ranked is not None:
            made = _ranking(names, ranked)
        elif most is not None:
            made = F.slice(F.sort_array(F.collect_list(F.col(names[0])), asc=False), 1, most)
        else:
            made = getattr(F, function)(F.col(names[0]))
        calls.append(made.alias(output))
    made_of = rows.groupBy(*keys).agg(*calls)
    hidden = [F.col(_SPAN).alias(WINDOW)] if aggregate.window_seconds is not None else []
    return made_of.select(*shown, *(F.col(output) for output in aggregate.outputs), *hidden)


def _moment_of(frame: DataFrame, aggregate: Aggregate, due: str) -> Any:
    """Return the column by which rows fall into windows."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - what everybody calls them; Spark loads when used

    if aggregate.window_time is WindowTime.PROCESSING:
        moment = F.current_timestamp()
    elif aggregate.time is not None:
        moment = F.col(f"`{aggregate.time}`").try_cast("timestamp")
    else:
        moment = F.timestamp_seconds(F.col(due)) if due in frame.columns else F.current_timestamp()
    return moment.alias(_MOMENT, metadata={})


_RANKED = "struct<count: bigint, value: string>"


def _ranking(names: Sequence[str], most: int) -> Any:
    """Return the ranking of a group (`ranking_N`): of numbers and values, or merged from rankings."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - what everybody calls them; Spark loads when used

    if len(names) == 1:
        pairs = F.flatten(F.collect_list(F.from_json(F.col(names[0]), f"array<{_RANKED}>")))
    else:
        number, value = F.col(names[0]), F.col(names[1])
        known = number.isNotNull() & value.isNotNull()
        pairs = F.collect_list(F.when(known, F.struct(number.cast("bigint").alias("count"), value.alias("value"))))
    pairs = F.filter(pairs, lambda p: p["count"].isNotNull() & p["value"].isNotNull())
    # ascending by the negative number, then by name
    ranked = F.array_sort(F.transform(pairs, lambda p: F.struct((-p["count"]).alias("n"), p["value"].alias("v"))))
    first = F.slice(ranked, 1, most)
    return F.to_json(F.transform(first, lambda p: F.struct((-p["n"]).alias("count"), p["v"].alias("value"))))


def needs_due(aggregate: Aggregate | None) -> bool:
    """Whether when a tuple was due decides into which window it goes."""
    return (
        aggregate is not None
        and aggregate.window_seconds is not None
        and aggregate.time is None
        and aggregate.window_time is WindowTime.EVENT
    )


def mode_of(aggregate: Aggregate) -> OutputMode:
    return OutputMode.APPEND if aggregate.emit is Emit.CLOSED else OutputMode.UPDATE


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"


CIRCLE = 1_000_000
"""Number of parts of the circle of shares, in which a hash gives the position of a row."""


@dataclass(frozen=True)
class Frames:
    """Frames of a query: one `frame` for all sinks. `parts`: if it has the number of a part and a struct of columns for
    each, the number of the part that each sink gets; None: all sinks get all of it."""

    sinks: tuple[str, ...]
    frame: DataFrame
    parts: Mapping[str, int] | None
    mode: OutputMode
    to_code: tuple[pa.Schema, ...] = ()
    """Schemas of rows that go to code, one for each region."""

    def of_sink(self, batch: DataFrame, sink: str) -> DataFrame:
        """The part of a batch that goes to one sink."""
        return batch if self.parts is None else _part(batch, self.parts[sink])


class FrameBuilder:
    """Builds the frame of a query. `load` makes the frame of the load generator, `read` that of another source.
    `schemas` are known beforehand for code that declares none; `learn` infers them from the steps of a region and the
    frames that enter it."""

    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        options: CodeOptions,
        accumulator: Any,
        load: Callable[[], DataFrame],
        schemas: Mapping[str, pa.Schema] | None = None,
        read: Callable[[Operator], DataFrame] | None = None,
        learn: Callable[[tuple[Step, ...], list[DataFrame]], Mapping[str, pa.Schema]] | None = None,
    ) -> None:
        self._timezone = str(session.conf.get("spark.sql.session.timeZone"))
        self._pipeline = pipeline
        self._options = replace(options, timezone=self._timezone)
        self._accumulator = accumulator
        self._load = load
        self._read = read or (lambda operator: read_source(session, operator))
        self._learn = learn
        self.schemas = dict(schemas or {})
        self._frames: dict[str, DataFrame] = {}
        self._dead: list[DataFrame] = []
        self._read_whole: Mapping[str, str] = {}
        self._tagged_region: tuple[RegionFunction, DataFrame] | None = None
        self._to_code: list[pa.Schema] = []

    def build(self) -> Frames:
        check_pickled(self._options.code)
        pipeline = self._pipeline
        cut = cut_of(pipeline, self._options.code)
        self._read_whole = read_whole(pipeline, cut)
        for name in pipeline.sources:
            if name not in self._options.code and not reading_of(pipeline.operators[name]).is_load:
                self._frames[name] = self._source(pipeline.operators[name])
        waiting: list[Region | str] = [*cut.regions, *cut.spark_operators]
        while waiting:
            ready = next(item for item in waiting if self._is_ready(item))
            waiting.remove(ready)
            if isinstance(ready, str):
                self._frames[ready] = self._for_all_readers(self._spark_operator(ready), self._readers(ready))
            else:
                self._region(cut.regions.index(ready), ready, cut.divided)
        return replace(self._gathered(cut), to_code=tuple(self._to_code))

    def _source(self, operator: Operator) -> DataFrame:
        frame = self._read(operator)
        check_columns(frame.columns, f"source '{operator.name}'")
        return frame

    def _is_ready(self, item: Region | str) -> bool:
        if isinstance(item, str):
            senders = [entry_of(self._pipeline, stream) for stream in self._pipeline.inputs(item)]
        else:
            senders = [e for e in item.entries if e not in item.operators]
        return all(sender == LOAD_ENTRY or sender in self._frames for sender in senders)

    def _frame(self, sender: str, *, with_due: bool = False, with_window: bool = False) -> DataFrame:
        """Return the rows sent by `sender`, for Spark's own operators and sinks, without the id column; the due column
        only if `with_due`, the window only if `with_window`."""
        frame = self._frames[sender] if sender in self._frames else self._load().drop(ID_COLUMN)
        frame = frame if with_window else frame.drop(WINDOW)
        return frame if with_due else frame.drop(DUE_COLUMN)

    def _spark_operator(self, name: str) -> DataFrame:
        return self.apply(name, *self.inputs_of(name))

    def apply(self, name: str, *inputs: DataFrame) -> DataFrame:
        """Return the result of an operator of Spark's own for frames, one for each stream it reads."""
        from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark loads only when it is used

        operator = self._pipeline.operators[name]
        who = f"operator '{name}'"
        with in_one_line(who):
            if operator.aggregate is not None:
                return aggregate_frame(_union(inputs, who), operator.aggregate, DUE_COLUMN)
            function = self._options.code[name].function
            try:
                with raised_in_code(who, BadInputError):
                    made = function(*inputs)
            except BadInputError as error:
                if not isinstance(error.__cause__, TypeError) or "positional argument" not in str(error):
                    raise
                cause = error.__cause__
                raise BadInputError(f"{who}: it reads {len(inputs)} streams, a DataFrame for each: {cause}") from cause
        if not isinstance(made, DataFrame):
            raise BadInputError(f"{who}: expected its code to return a DataFrame, got {type(made).__name__}")
        check_columns(made.columns, who)
        return made

    def inputs_of(self, name: str) -> list[DataFrame]:
        """Return the input of an operator of Spark's own: a frame for each of its streams."""
        aggregate = self._pipeline.operators[name].aggregate
        streams = self._pipeline.inputs(name)
        if aggregate is not None:
            # it has a time of its own
            of_windows = aggregate.time in RESERVED_TIMES
            return [self._stream(stream, with_due=needs_due(aggregate), with_window=of_windows) for stream in streams]
        return [with_watermark(self._pipeline, stream.sender, self._stream(stream)) for stream in streams]

    def _stream(self, stream: Stream, *, with_due: bool = False, with_window: bool = False) -> DataFrame:
        """Return the rows of a stream: the part of its sender's rows that goes this way."""
        return self._part_of(self._frame(stream.sender, with_due=with_due, with_window=with_window), stream)

    def _part_of(self, frame: DataFrame, stream: Stream) -> DataFrame:
        """The rows of a stream, of all that its sender sends: chosen by a hash of the row, so that it is the same rows
        whenever a batch is run, and for whatever reader. What is beside a row is not part of it."""
        low, high = (round(edge * CIRCLE) for edge in share_of(self._pipeline, stream))
        if high - low >= CIRCLE:
            return frame
        columns = [f"`{name}`" for name in frame.columns if name not in {ID_COLUMN, DUE_COLUMN, WINDOW}]
        place = f"pmod(xxhash64({', '.join(columns)}), {CIRCLE})"
        within = f"{place} >= {low} AND {place} < {high}"
        with in_one_line(f"the weighted stream from '{stream.sender}' to '{stream.receiver}'"):
            return frame.where(within if high <= CIRCLE else f"({within}) OR {place} < {high - CIRCLE}")

    def _region(self, number: int, region: Region, divided: Collection[str]) -> None:
        entrances = entrances_of(self._pipeline, region, divided)
        frames = []
        for entrance in entrances:
            whole = self._entering(entrance.entry)
            stream = None if entrance.stream is None else self._pipeline.streams[entrance.stream]
            frames.append(whole if stream is None else self._part_of(whole, stream))
        entering = _without_copy(frames[0]) if len(frames) == 1 else _tagged_union(frames, ENTRY_COLUMN, "e")
        self._to_code.append(arrow_of(entering.schema, self._timezone))
        known: dict[str, pa.Schema] = {}
        for entrance, frame in zip(entrances, frames, strict=True):
            known[entrance.entry] = arrow_of(frame.drop(ID_COLUMN, DUE_COLUMN).schema, self._timezone)
        if self._learn is not None:
            blind = steps_of(self._pipeline, region, divided, self._options, dict(known), self.schemas, strict=False)
            self.schemas.update(self._learn(blind, frames))
        steps = steps_of(self._pipeline, region, divided, self._options, known, self.schemas)
        leaving = {step.operator: known[step.operator] for step in steps if step.leaves}
        with_due = [
            name
            for name in leaving
            if any(needs_due(self._pipeline.operators[s.receiver].aggregate) for s in self._pipeline.outputs(name))
        ]
        for name in with_due:
            leaving[name] = leaving[name].append(pa.field(DUE_COLUMN, pa.float64()))
        if self._options.keep_dead_letters:
            leaving[DEAD_LETTERS] = DEAD_LETTER_SCHEMA
        function = RegionFunction(
            run=self._options.run,
            region=number,
            steps=steps,
            entrances=tuple(entrance.entry if entrance.stream is None else None for entrance in entrances),
            exits=tuple(leaving),
            exit_schemas=tuple(leaving.values()),
            options=SegmentOptions(self._options.audit, self._options.keep_dead_letters),
            environment=tuple(self._options.environment.items()),
            crumbs=self._options.crumbs,
            accumulator=self._accumulator,
        )
        frame = entering.mapInArrow(function, struct_of_arrow(function.output_schema))
        if not function.tagged:
            name = function.exits[0]
            self._frames[name] = self._for_all_readers(frame, self._readers(name, region))
            return
        self._tagged_region = function, frame
        shared = self._for_all_readers(frame, len(function.exits))
        for name in function.exits:
            part = _part(shared, function.exits.index(name))
            if name == DEAD_LETTERS:
                self._dead.append(part)
            else:
                self._frames[name] = part

    def _readers(self, name: str, region: Region | None = None) -> int:
        """Return the number of readers of an operator's output; inside its own region it is passed on without Spark,
        and sinks that get all of it share it."""
        inside = () if region is None else region.operators
        receivers = [stream.receiver for stream in self._pipeline.outputs(name) if stream.receiver not in inside]
        sharing = sum(self._read_whole.get(receiver) == name for receiver in receivers)
        return len(receivers) - max(0, sharing - 1)

    def _for_all_readers(self, frame: DataFrame, readers: int) -> DataFrame:
        """Return a frame for all its readers. Spark computes a frame again for each of them. After a shuffle it has the
        same tasks every time, so repeated reports have the same names and count once."""
        return frame if readers <= 1 else frame.repartition(self._options.slots)

    def _entering(self, entry: str) -> DataFrame:
        if entry == LOAD_ENTRY:
            return self._load()
        operator = self._pipeline.operators[entry]
        if entry not in self._frames and operator.kind is Kind.SOURCE:
            self._frames[entry] = self._source(operator)
        return self._frames[entry].drop(WINDOW)

    def _gathered(self, cut: Cut) -> Frames:
        sinks = tuple(n for n, operator in self._pipeline.operators.items() if operator.kind is Kind.SINK)
        if not sinks:
            raise BadInputError(f"pipeline '{self._pipeline.name}' has no sink: nothing would come of running it")
        names = (*sinks, DEAD_LETTERS) if self._dead else sinks
        mode = query_mode(self._pipeline, sinks)
        tagged_region = self._tagged_region
        if tagged_region is not None and len(cut.regions) == 1 and set(tagged_region[0].exits) == set(names):
            # everything leaves one region: its frame is what all sinks read, in one pass
            exits = tagged_region[0].exits
            numbers = {name: number for number, name in enumerate(exits)}
            return Frames(exits, tagged_region[1], numbers, mode)
        frames: dict[str, DataFrame] = {}
        """Frames by their origin: sinks that read the same share it, so that it is in the query once."""
        reads = {sink: self._read_whole.get(sink, sink) for sink in sinks}
        for sink, read in reads.items():
            if read not in frames:
                frames[read] = self._of_sink(sink)
        if self._dead:
            frames[DEAD_LETTERS] = _union(self._dead, "dead letters")
            reads[DEAD_LETTERS] = DEAD_LETTERS
        if len(frames) == 1:
            return Frames(names, next(iter(frames.values())), None, mode)
        places = {read: number for number, read in enumerate(frames)}
        tagged = _tagged_union(list(frames.values()), EXIT_COLUMN, "x")
        parts = {name: places[read] for name, read in reads.items()}
        return Frames(names, tagged, parts, mode)

    def _of_sink(self, sink: str) -> DataFrame:
        if sink in self._frames:
            return self._frames[sink].drop(WINDOW)
        return _union([self._stream(stream) for stream in self._pipeline.inputs(sink)], f"sink '{sink}'")


def cut_of(pipeline: Pipeline, code: Mapping[str, Logic]) -> Cut:
    return cut(pipeline, code, sparks_own_code(code))


def read_whole(pipeline: Pipeline, cut: Cut) -> dict[str, str]:
    """Return, by sink, the sender whose rows Spark hands to it unchanged and complete."""
    whole = {}
    for name, operator in pipeline.operators.items():
        streams = pipeline.inputs(name)
        if operator.kind is Kind.SINK and cut.region_of(name) is None and len(streams) == 1 and streams[0].weight >= 1:
            whole[name] = streams[0].sender
    return whole


def _part(tagged: DataFrame, number: int) -> DataFrame:
    """The rows of one of the streams that share a frame."""
    return tagged.where(f"{EXIT_COLUMN} = {number}").select(f"x{number}.*")


def _without_copy(frame: DataFrame) -> DataFrame:
    """Return the frame without a second copy of the tuple's number, which rows straight from the load generator have;
    the worker adds it (`with_marks`)."""
    return frame.drop(VALUE_COLUMN) if set(frame.columns) == {ID_COLUMN, DUE_COLUMN, VALUE_COLUMN} else frame


def _union(frames: Sequence[DataFrame], who: str) -> DataFrame:
    first, *others = frames
    for other in others:
        with in_one_line(f"{who}: what it reads does not fit together"):
            first = first.unionByName(other)
    return first


def _tagged_union(frames: Sequence[DataFrame], tag: str, prefix: str) -> DataFrame:
    """One frame for several: the number of the one a row is from, and a struct of columns for each."""
    from pyspark.sql import functions  # noqa: PLC0415 - Spark loads only when it is used

    parts = []
    for number, frame in enumerate(frames):
        columns = [functions.lit(number).alias(tag)]
        for other, known in enumerate(frames):
            name = f"{prefix}{other}"
            if other == number:
                columns.append(functions.struct(*[functions.col(f"`{c}`") for c in frame.columns]).alias(name))
            else:
                columns.append(functions.lit(None).cast(known.schema).alias(name))
        parts.append(frame.select(*columns))
    return _union(parts, "streams")


def query_mode(pipeline: Pipeline, sinks: Sequence[str]) -> OutputMode:
    """Return the mode of the query: the one that the sinks declare, which must agree; else the one that the
    aggregations need."""
    declared = {sink: writing_of(pipeline.operators[sink]).mode for sink in sinks}
    modes = {mode for mode in declared.values() if mode is not None}
    if len(modes) > 1:
        raise BadInputError(f"sinks of one pipeline have one mode, found {json.dumps(declared)}")
    if modes:
        return modes.pop()
    needed = {mode_of(op.aggregate) for op in pipeline.operators.values() if op.aggregate is not None}
    return OutputMode.UPDATE if OutputMode.UPDATE in needed else OutputMode.APPEND


# Code and columns of a region, checked before anything runs.


RESERVED = frozenset({ID_COLUMN, DUE_COLUMN, ENTRY_COLUMN, EXIT_COLUMN, WINDOW})
"""Columns of ours beside the user's: one of the user's by such a name would be taken for ours, and be gone."""


def check_pickled(code: Mapping[str, Logic]) -> None:
    """Code that workers call must come to them; Spark's own operators are called here."""

    for name, logic in code.items():
        if logic.per is Per.DATAFRAME:
            continue
        try:
            pickled(logic)
        except Exception as error:  # whatever the user's objects raise when they are asked to be bytes
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise BadInputError(
                f"operator '{name}': its code cannot be sent to workers: {reason}; make what it needs there, with open="
            ) from error


def check_columns(columns: Iterable[str], who: str) -> None:
    """Reject columns that differ in case alone: Spark ignores case."""
    for column in columns:
        if column.lower() in RESERVED:
            raise BadInputError(f"{who}: column '{column}': Penstock keeps that name for itself; rename it")


# The operators of a region as one slot runs them: inputs, entrances, and the schemas of their outputs.


@dataclass(frozen=True)
class CodeOptions:
    """Options of code inside a slot. `threads` are those of each operator in ONE slot."""

    run: str
    code: Mapping[str, Logic]
    threads: Mapping[str, int] = field(default_factory=dict)
    audit: bool = False
    keep_dead_letters: bool = False
    """They leave as rows of their own, to be written somewhere."""
    environment: Mapping[str, str] = field(default_factory=dict)
    crumbs: str = ""
    slots: int = 1
    """Number of parts of the one shuffle for rows with several readers."""
    timezone: str = "UTC"
    """Time zone of the session: the zone of times without one."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """An entrance of tuples into a region: all rows that one of its `entries` sends, or one stream of it whose rows
    Spark chose, by its number in the pipeline."""

    entry: str
    stream: int | None = None


def entrances_of(pipeline: Pipeline, region: Region, divided: Collection[str]) -> tuple[Entrance, ...]:
    """Return the entrances in the order of a region's entries. `divided`: senders whose weighted streams Spark divides,
    so that each comes in by an entrance of its own."""
    entrances: dict[Entrance, None] = {}
    for name in region.operators:
        if pipeline.operators[name].kind is Kind.SOURCE:
            entrances[_of_source(pipeline, name)] = None
        for stream in pipeline.inputs(name):
            if stream.sender not in region.operators:
                entrances[_of_stream(pipeline, stream, divided)] = None
    return tuple(sorted(entrances, key=lambda entrance: region.entries.index(entrance.entry)))


def _of_source(pipeline: Pipeline, name: str) -> Entrance:
    return Entrance(LOAD_ENTRY if reading_of(pipeline.operators[name]).is_load else name)


def _of_stream(pipeline: Pipeline, stream: Stream, divided: Collection[str]) -> Entrance:
    number = next(number for number, other in enumerate(pipeline.streams) if other is stream)
    return Entrance(entry_of(pipeline, stream), number if is_divided(stream, divided) else None)


def share_of(pipeline: Pipeline, stream: Stream) -> tuple[float, float]:
    """The part of its sender's output that a stream takes, beside what the sender's other streams take."""
    outputs = pipeline.outputs(stream.sender)
    return shares([other.weight for other in outputs])[outputs.index(stream)]


def steps_of(
    pipeline: Pipeline,
    region: Region,
    divided: Collection[str],
    options: CodeOptions,
    known: dict[str, pa.Schema],
    inferred: Mapping[str, pa.Schema],
    *,
    strict: bool = True,
) -> tuple[Step, ...]:
    """The operators of a region for one slot. `known` has the schemas of entries, and gets those of operators.

    Without `strict` an operator with an unknown schema has none, so that it can be inferred.
    """
    position = {name: number for number, name in enumerate(region.operators)}
    entrances = entrances_of(pipeline, region, divided)
    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams, start=1)}
    steps: list[Step] = []
    for name in region.operators:
        operator = pipeline.operators[name]
        inputs = pipeline.inputs(name)
        reads: list[Read] = []
        before: list[pa.Schema | None] = []
        if operator.kind is Kind.SOURCE:
            entrance = _of_source(pipeline, name)
            reads.append(Read(-1 - entrances.index(entrance)))
            before.append(known.get(entrance.entry))
        for stream in inputs:
            outputs = pipeline.outputs(stream.sender)
            only_way = len(inputs) == 1 and len(outputs) == 1
            number = 0 if only_way else numbers[id(stream)]
            if stream.sender in position:
                reads.append(Read(position[stream.sender], number, share_of(pipeline, stream)))
                before.append(known.get(stream.sender))
            else:
                entrance = _of_stream(pipeline, stream, divided)
                share = share_of(pipeline, stream) if entrance.stream is None else (0.0, 1.0)
                reads.append(Read(-1 - entrances.index(entrance), number, share))
                before.append(known.get(entrance.entry))
        logic = options.code.get(name)
        only_counts = operator.kind is Kind.SINK and writing_of(operator).format == COUNT
        schema = _schema_of(name, logic, before, inferred, options.timezone, strict=strict, only_counts=only_counts)
        if schema is not None:
            known[name] = schema
        steps.append(
            Step(
                operator=name,
                logic=logic,
                threads=options.threads.get(name, 1),
                reads=tuple(reads),
                schema=schema if logic is not None else None,
                leaves=name in region.exits,
                delivers=operator.kind is Kind.SINK,
                leaves_sight=name in region.exits and operator.kind is not Kind.SINK,
            )
        )
    return tuple(steps)


def _schema_of(
    name: str,
    logic: Logic | None,
    before: Sequence[pa.Schema | None],
    inferred: Mapping[str, pa.Schema],
    timezone: str,
    *,
    strict: bool,
    only_counts: bool,
) -> pa.Schema | None:
    """`only_counts`: a sink that keeps nothing does with the columns that all tuples have."""
    if logic is not None and logic.schema is not None:
        schema = arrow_of(struct_of(logic.schema, f"operator '{name}'"), timezone)
        check_columns(schema.names, f"operator '{name}'")
        return schema
    if logic is not None:
        if strict and name not in inferred:
            raise BadInputError(f"operator '{name}': nothing says what its code sends; give schema='NAME TYPE, ...'")
        return inferred.get(name)
    first = before[0]
    if only_counts and first is not None and (shared := _shared_columns([s for s in before if s is not None])):
        return shared
    for other in before[1:]:
        if first is not None and other is not None and not first.equals(other):
            raise BadInputError(
                f"'{name}' gets tuples of different columns: {_columns(first)} and {_columns(other)}; "
                "send the same from all of them"
            )
    return first


def _shared_columns(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns with the same name and type in all."""
    return pa.schema(
        [
            column
            for column in schemas[0]
            if all(column.name in s.names and s.field(column.name) == column for s in schemas)
        ]
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
