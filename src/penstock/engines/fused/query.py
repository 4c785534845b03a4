"""A fused run: ONE Structured Streaming query, in which every slot runs the whole pipeline on its share of the stream.

    source (Spark's own)  ->  mapInArrow: a region of code  ->  Spark's own operators  ->  ...  ->  foreachBatch: sinks

The query's checkpoint records committed batches; sinks recognise a batch by its number. So after any death a batch that
is run again replaces its first attempt.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock.base.clock import now
from penstock.base.errors import BadInputError, RunFailedError
from penstock.dataflow.formats import is_driven_by_load
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.pipeline import OutputMode
from penstock.dataflow.regions import unaudited_by
from penstock.engines.fused.accounting import AuditFolder, BatchObserver, BatchShares, WrittenRows, reads_of_sources
from penstock.engines.fused.frames import CodeOptions, FrameBuilder
from penstock.engines.fused.restartable_query import GROUPS, LastingQuery
from penstock.engines.fused.sinks.writers import ConsoleSample, CountingWriter, make_writers, write_batch
from penstock.engines.fused.sources.readers import read_source, schemas_of_run
from penstock.engines.fused.sources.topic_notices import lost_messages
from penstock.engines.fused.sources.topics import ToldGroups, connector_notes, covered_of, lag_of, read_by_us
from penstock.report.figures import waiting_notes
from penstock.runs.config import RunConfig
from penstock.spark import load_source
from penstock.spark.internals.checkpoint import CheckpointLog, append_last_batch, closing_batch
from penstock.spark.internals.error_messages import in_one_line
from penstock.spark.internals.listeners import PassCounter
from penstock.spark.load_source import BatchBound
from penstock.spark.region_function import CAREFUL_BATCH, Accounts, segments
from penstock.spark.session.embedded import with_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.engines.fused.frames import Frames
    from penstock.report.report import Audit, BatchObservation
    from penstock.spark.region_function import BatchRecords, WorkerName


# Specification of a fused query.


@dataclass(frozen=True)
class FusedSpec:
    """Specification of a fused query. `threads` are those of each operator in ONE slot."""

    run: str
    """Names the run for good, in files and tables of sinks too."""
    pipeline: Pipeline
    code: Mapping[str, Logic]
    threads: Mapping[str, int]
    slots: int
    folder: Path
    """Folder of the run, on this machine."""
    checkpoint: str
    """Spark's checkpoint: reachable from the driver and every executor."""
    config: RunConfig = field(default_factory=RunConfig)
    load: Load | None = None
    most_rows: int = 1_000_000
    """The most tuples of the load one batch takes in, over all slots."""
    batch_seconds: float | None = None
    """Seconds of work that batches are resized to hold; then `most_rows` is only the first size."""
    environment: Mapping[str, str] = field(default_factory=dict)
    audit: bool = False
    close_windows: bool = False
    """With `until_end`: the run will not be resumed, so windows open at the end are closed and sent."""
    save_files: Callable[[], None] = lambda: None
    """Makes the files of `folder` durable. Called before Spark commits a batch."""


# Size of the Arrow batches that code gets.
#
# Spark bounds batches by rows and by bytes, and after every row asks how many bytes the batch has by now: half of the
# time of a query whose code is vectorised goes there. If all columns have a fixed width, a bound in rows is a bound in
# bytes, and Spark need not look. Rows with text, lists or maps are looked at as Spark does.


MOST_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LOOK = "2147483647"
"""Value with which Spark does not check the bytes of a batch."""
BATCH_BYTES = 64 * 2**20
"""At most, as Spark's own bound."""


def row_bytes(kind: pa.DataType) -> int | None:
    """Return the bytes of a value, including the byte for null; None: that depends on the value."""
    if pa.types.is_struct(kind):
        inside = [row_bytes(field.type) for field in kind]
        return None if None in inside else 1 + sum(size for size in inside if size is not None)
    if pa.types.is_null(kind):
        return 1
    if not pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        return None
    return 1 + -(-int(kind.bit_width) // 8)


def bounded_by_rows(schemas: Iterable[pa.Schema], most_rows: int) -> dict[str, str]:
    """The settings of a query whose code gets such rows, where batches hold at most `most_rows` (0: any number).

    With w bytes in the widest row: `min(most_rows, BATCH_BYTES / w)`. Empty: Spark has to look.
    """
    sizes = [row_bytes(pa.struct(list(schema))) for schema in schemas]
    widths = [size for size in sizes if size is not None]
    if not widths or len(widths) < len(sizes):
        return {}
    fit = max(1, BATCH_BYTES // max(widths))
    return {MOST_ROWS: str(min(most_rows, fit) if most_rows > 0 else fit), MOST_BYTES: NO_LOOK}


def settings_for(session: SparkSession, schemas: Iterable[pa.Schema]) -> Mapping[str, str]:
    """Return the settings; nothing if the user has set a limit of bytes."""
    if session.conf.get(MOST_BYTES, None) is not None:
        return {}
    return bounded_by_rows(schemas, int(session.conf.get(MOST_ROWS) or 0))


# Context that a query starts in: settings of its session, and properties of the thread.


NONE = cast("str", None)
"""Local property of Spark's for no value."""


@contextmanager
def as_queries_start(session: SparkSession, to_code: Iterable[pa.Schema], careful_batch: int | None) -> Iterator[None]:
    """A query that starts inside sends rows of the schemas `to_code`; tasks of `careful_batch` go row by row. Session
    and thread are left as they were."""
    context = session.sparkContext
    context.setLocalProperty(CAREFUL_BATCH, NONE if careful_batch is None else str(careful_batch))
    try:
        with with_settings(session, settings_for(session, to_code)):
            yield
    finally:
        context.setLocalProperty(CAREFUL_BATCH, NONE)


# End of a run in a session that stays open: its workers close all that its code opened, though they live on.


MOST_ROUNDS = 3
_CLOSED = "host string, worker bigint, failures array<string>"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CloseRun:
    """For `DataFrame.mapInArrow`: reports which worker has closed its part of the run, and any error."""

    run: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        failures = segments.close_run(self.run)
        yield pa.record_batch(
            [pa.array([socket.gethostname()]), pa.array([os.getpid()]), pa.array([failures], pa.list_(pa.string()))],
            names=["host", "worker", "failures"],
        )


def close_in_workers(session: SparkSession, run: str, workers: Collection[WorkerName]) -> list[str]:
    """Ask all of `workers`, and return what could not be closed.

    Spark gives a task to the worker that has been idle for longest: of twice as many tasks as there are workers one
    comes to each. Workers without an answer are gone, and have closed before, or close when they end.
    """
    left, failures = set(workers), list[str]()
    for _ in range(MOST_ROUNDS):
        if not left:
            break
        tasks = 2 * len(left)
        try:
            rows = session.range(0, tasks, 1, tasks).mapInArrow(CloseRun(run), _CLOSED).collect()
        except Exception as error:  # any error of Py4J: the reason why the run ended matters more
            _LOG.warning("run %s: its workers close what they opened when they end: %s", run, error)
            break
        failures += [line for row in rows for line in row.failures]
        closed = left & {(row.host, row.worker) for row in rows}
        if not closed:
            break
        left -= closed
    return failures


CLOSED_BEFORE = (
    "its input had ended before it went on: what was open then was closed; what came since is for another run"
)


class FusedQuery:
    """A query that runs. `show` gets (sink, tuple as JSON) for consoles."""

    def __init__(
        self,
        session: SparkSession,
        spec: FusedSpec,
        show: Callable[[str, str], None] | None = None,
    ) -> None:
        self._session = session
        self._spec = spec
        self._driven_by_load = is_driven_by_load(spec.pipeline)
        if self._driven_by_load and spec.load is None:
            raise BadInputError(f"pipeline '{spec.pipeline.name}': its source emits what is asked for: give a rate")
        self._bounds_batches = self._driven_by_load or bool(read_by_us(session, spec.pipeline))
        """Whether a source of ours bounds its batches as the run asks."""
        self._lag: dict[str, int] = {}
        self._groups = ToldGroups(session, spec.pipeline)
        spec.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (spec.folder / "crumbs").mkdir(exist_ok=True, mode=0o700)
        self._console = ConsoleSample(show)
        self._audits = AuditFolder(spec.folder / "audit") if spec.audit else None
        self._accounts = Accounts(session.sparkContext)
        self._frames = self._build()
        self._writers = make_writers(session, spec)
        load = spec.load if self._driven_by_load else None
        context = session.sparkContext
        local_slots = context.defaultParallelism if str(context.master).startswith("local") else None
        reads = reads_of_sources(self._frames.frame, len(spec.pipeline.sources))
        self._observer = BatchObserver(spec.pipeline, spec.code, load, local_slots=local_slots, reads=reads)
        passes = PassCounter(session)
        self.shares = BatchShares(passes)
        self._written = WrittenRows(spec.pipeline, spec.code, passes)
        self._records: dict[int, Any] = {}
        self._not_closed: list[str] = []
        self._last_batch = closing_batch(session, spec.checkpoint)
        """The one that closes all windows: none behind it may begin to write."""
        self._was_closing = self._last_batch is not None
        self._is_counted_by_spark = self._may_be_counted_by_spark()
        self._write_failed: BadInputError | RunFailedError | None = None
        self._begun_before = -1
        """The last batch that was under way before the query was started."""
        self._drained = threading.Event()
        """Set if no batch may begin to write: Spark's own sources cannot be held."""
        self._bound: BatchBound | None = None
        if self._bounds_batches:
            self._bound = BatchBound(spec.folder, spec.most_rows, spec.slots, spec.batch_seconds)
        with in_one_line(f"pipeline '{spec.pipeline.name}'"):
            self._query = LastingQuery(self._start)

    # -- making it -------------------------------------------------------------------------------------------------

    def _build(self) -> Frames:
        spec = self._spec
        options = CodeOptions(
            run=spec.run,
            code=spec.code,
            threads=spec.threads,
            audit=spec.audit,
            keep_dead_letters=spec.config.dead_letters is not None,
            environment=spec.environment,
            crumbs=str(spec.folder / "crumbs"),
            slots=spec.slots,
        )
        schemas = schemas_of_run(self._session, spec, options)
        frames: list[DataFrame] = []

        def load() -> DataFrame:
            """One frame, however many read it: the load is emitted once."""
            if not frames:
                asked = cast("Load", spec.load)  # checked when the query was made
                frames.append(load_source.load_frame(self._session, asked, spec.slots, spec.folder))
            return frames[0]

        def read(operator: Operator) -> DataFrame:
            return read_source(self._session, operator, spec.slots, spec.folder)

        made = FrameBuilder(self._session, spec.pipeline, options, self._accounts.accumulator, load, schemas, read)
        return made.build()

    def _may_be_counted_by_spark(self) -> bool:
        """Return whether nothing has to be done for a batch. Then Spark's sink that keeps nothing is used, which spares
        its rows the way from one plan to the next that `foreachBatch` has. Not if the end of the input must be
        enforced."""
        if self._was_closing:
            return False
        only = self._frames.sinks[0] if len(self._frames.sinks) == 1 else None
        return isinstance(self._writers.get(only or ""), CountingWriter) and self._audits is None and not self._shown

    def _start(self, careful: bool) -> StreamingQuery:
        """`careful`: the batch that is next goes row by row."""
        spec = self._spec
        self._begun_before = CheckpointLog(self._session, spec.checkpoint, "offsets").last()
        stream = self._frames.frame.writeStream
        stream = stream.format("noop") if self._is_counted_by_spark else stream.foreachBatch(self._write)
        stream = (
            stream.outputMode(self._frames.mode.value)
            .option("checkpointLocation", spec.checkpoint)
            .queryName(f"{spec.pipeline.name}-{spec.run}")
        )
        if spec.config.until_end and not self._driven_by_load:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=f"{spec.config.batch_interval_ms} milliseconds")
        with as_queries_start(self._session, self._frames.to_code, self._committed + 1 if careful else None):
            return stream.start()

    # -- a batch ---------------------------------------------------------------------------------------------------

    def _write(self, batch: DataFrame, number: int) -> None:
        """Give every sink its part, in one pass over the data. Called by `foreachBatch`."""
        if self._drained.is_set():
            raise RunFailedError("the run was drained: the batch is left to whoever goes on with it")
        if self._last_batch is not None and number > self._last_batch:
            raise RunFailedError("the input had ended: what came later is for another run")
        self._write_failed = None
        several = len(self._frames.sinks) > 1 or self._shown
        frame = batch.persist() if several else batch
        try:
            for sink in self._frames.sinks:
                part = self.shares.observed(sink, self._frames.of_sink(frame, sink))
                write_batch(self._writers[sink], sink, self._written.observed(number, sink, part), number)
                if sink in self._shown:
                    self._console.take(sink, part)
            self._account_for(frame, number)
            self._spec.save_files()
        except (BadInputError, RunFailedError) as error:
            self._write_failed = error
            raise
        finally:
            if several:
                frame.unpersist()
        self.shares.collect()

    def _account_for(self, frame: DataFrame, number: int) -> None:
        def work_out() -> BatchRecords:
            CountingWriter().write(frame, number)
            return self._accounts.take(number)

        records = self._accounts.take(number)
        if self._audits is not None:
            # the batch that closes all windows takes in nothing
            was_begun = number <= self._begun_before and number != self._last_batch
            records = self._audits.account_for(number, records, work_out if was_begun else None)
        self._records[number] = records

    @property
    def _shown(self) -> set[str]:
        if not self._console.wanted:
            return set()
        return {n for n, operator in self._spec.pipeline.operators.items() if operator.console}

    # -- while it runs ---------------------------------------------------------------------------------------------

    def begin(self, is_given_up: Callable[[], bool] = lambda: False) -> float:
        """Begin the load once the query is ready for it, unless it is given up before; return the time it began. Other
        sources began when the query was started, without waiting for their first batch."""
        began = now()
        if self._driven_by_load:
            with self._better_said():
                self._query.wait_until_ready(is_given_up)
            if not is_given_up():
                began = load_source.begin(self._spec.folder)
        self._observer.began = began
        return began

    def poll(self) -> list[BatchObservation]:
        """Batches committed since the last look; raises if the query ended for good."""
        if not self._query.is_active and not self._drained.is_set() and not self._has_closed:
            with self._better_said():
                self._query.check()
        batches = []
        for progress in self._query.new_progress():
            number = progress.batchId
            records = self._accounts.take(number) if self._is_counted_by_spark else self._records.pop(number, None)
            batch = self._observer.observe(progress, records, self._written.of_batch(progress))
            self._lag = lag_of(progress) or self._lag
            self._groups.tell(progress)
            if self._bound is not None:
                self._bound.resize(batch, covered_of(progress))
            if batch is not None:
                batches.append(batch)
        return batches

    @contextmanager
    def _better_said(self) -> Iterator[None]:
        """Raise the error of writing a batch instead of Spark's, which repeats it less clearly. An error before the
        first batch is bad input."""
        try:
            yield
        except RunFailedError as error:
            if self._write_failed is not None:
                raise self._write_failed from None
            if CheckpointLog(self._session, self._spec.checkpoint, "offsets").last() < 0:
                raise BadInputError(f"{self._whose_option(str(error))}: {error}") from error
            raise

    def _whose_option(self, complaint: str) -> str:
        """The source that has an option which a complaint of Spark's names; else the pipeline."""
        pipeline = self._spec.pipeline
        for name in pipeline.sources:
            if any(f"'{option}'" in complaint for option in pipeline.operators[name].options):
                return f"source '{name}'"
        return f"pipeline '{pipeline.name}'"

    @property
    def progress(self) -> list[StreamingQueryProgress]:
        """Return Spark's progress of the last batches."""
        return self._query.recent_progress

    @property
    def ended(self) -> bool:
        """Everything there is was taken in (`until_end`)."""
        return self._query.ended or (not self._query.is_active and self._has_closed)

    @property
    def _has_closed(self) -> bool:
        """The last batch is committed: a complaint behind it is none."""
        return self._last_batch is not None and self._committed >= self._last_batch

    @property
    def _committed(self) -> int:
        return CheckpointLog(self._session, self._spec.checkpoint, "commits").last()

    @property
    def is_ready(self) -> bool:
        return self._query.is_ready

    @property
    def is_working(self) -> bool:
        return self._query.is_working

    @property
    def idle_at(self) -> float | None:
        """When it last looked for tuples and found none, in seconds since the epoch; None: there were some."""
        return self._query.idle_at

    def spread_over(self, slots: int) -> None:
        """Cut sources of ours for `slots` slots from the next batch on; Spark's own sources cut as they do."""
        if self._bounds_batches:
            load_source.spread_over(self._spec.folder, slots)
            if self._spec.batch_seconds is None:
                load_source.bound_batches(self._spec.folder, max(1, self._spec.most_rows * slots // self._spec.slots))

    def drain(self) -> None:
        """Take in nothing more, and finish the batch under way."""
        if self._driven_by_load:  # with topics beside it, it is unknown when all is quiet
            load_source.hold(self._spec.folder)
            self._query.drain()
        else:
            self._query.finish_batch(self._drained)

    def stop(self) -> None:
        self._query.stop()
        for writer in self._writers.values():
            writer.close()
        self._groups.close()
        if any(logic.close is not None for logic in self._spec.code.values()):
            self._not_closed += close_in_workers(self._session, self._spec.run, self._accounts.workers)

    def audit(self) -> Audit | None:
        """Over all processes that ever ran it; only when the query was stopped."""
        if self._audits is None:
            return None
        return self._audits.audit(self._committed, self._observer.reached)

    @property
    def first_errors(self) -> tuple[str, ...]:
        """First errors of dead letters, one line each."""
        return tuple(
            f"operator '{operator}'{'' if number is None else f', tuple {number}'}: {error}"
            for operator, number, error in self._observer.first_errors
        )

    @property
    def held_back(self) -> dict[str, int]:
        """Return how many rows operators of Spark's may still have to send, by kind. Groups that are sent with every
        change hold nothing back."""
        shown = {} if self._frames.mode is OutputMode.APPEND else {GROUPS}
        return {what: count for what, count in self._query.held_back().items() if what not in shown}

    def close_windows(self, is_given_up: Callable[[], bool]) -> dict[str, int]:
        """Send on rows that wait for the watermark, after the end of the input. Return what was closed, by kind; empty:
        none was open, or it cannot be closed."""
        before = self.held_back
        if not before or not self._query.has_watermark or self._was_closing:
            return {}
        last = append_last_batch(self._session, self._spec.checkpoint)
        if last is None:
            return {}
        self._last_batch = last
        self._query.run_last_batch(is_given_up)
        if self._committed < last:
            why = self._query.failure or "it was stopped"
            raise RunFailedError(f"the input ended, and its open windows could not be closed: {why}")
        after = self.held_back
        return {what: count - after.get(what, 0) for what, count in before.items() if count > after.get(what, 0)}

    @property
    def notes(self) -> tuple[str, ...]:
        careless = [sink for sink, writer in self._writers.items() if not writer.exactly_once]
        twice = [f"sink '{sink}': a batch that is run again may be there twice" for sink in careless]
        topics = connector_notes(self._session, self._spec.pipeline)
        topics += waiting_notes(self._lag)
        topics += lost_messages(self._spec.folder).notes
        closed = (CLOSED_BEFORE,) if self._was_closing else ()
        query = (*self._query.notes, *closed)
        counted = (*self._observer.notes, *self._written.notes)
        not_closed = [f"what code opened could not be closed: {line}" for line in dict.fromkeys(self._not_closed)]
        return (*query, *counted, *self._unaudited(), *twice, *topics, *not_closed, *self._groups.notes)

    def _unaudited(self) -> list[str]:
        unaudited = unaudited_by(self._spec.pipeline, sparks_own_code(self._spec.code))
        if unaudited is None or not self._driven_by_load:
            return []
        return [
            f"ids are not audited: operator '{unaudited}' is Spark's own and reads the source, so that behind it "
            "tuples are not told apart"
        ]

    @property
    def lag(self) -> dict[str, int]:
        """Return messages that waited when the last batch was made, by topic/partition."""
        return dict(self._lag)
