"""Fused execution: one query, in which every slot runs the whole pipeline on its share of the stream."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.clock import Stopwatch, pause
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import topological_order
from penstock.errors import BadInputError
from penstock.report.report import summarise
from penstock.spark import load_source
from penstock.spark.file_feed import FileFeed
from penstock.spark.fused_function import OUTPUT_SCHEMA, FusedFunction
from penstock.spark.ledger import Ledger
from penstock.spark.process_tree import java_process, tree_usage
from penstock.spark.query import POLL_SECONDS, LastingQuery, RunFailedError
from penstock.spark.segment import Step
from penstock.spark.sinks import Sample, ends_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.report.report import BatchObservation, Report
    from penstock.spark.file_index import FileIndex
    from penstock.spark.interrupts import Interrupt

__all__ = ["FusedRun", "Hooks", "RunFailedError", "run_fused"]


@dataclass(frozen=True)
class FusedRun:
    """What to run and how. `threads` are those of each operator in ONE slot."""

    pipeline: Pipeline
    logic: Mapping[str, Logic]
    threads: Mapping[str, int]
    load: Load
    slots: int
    most_rows: int
    """The most tuples one batch takes in, over all slots."""
    batch_seconds: float | None = None
    """Where given, `most_rows` is only the beginning: batches are resized to hold so many seconds of work."""
    interval_ms: int = 100
    environment: Mapping[str, str] = field(default_factory=dict)
    indexes: Mapping[str, FileIndex] = field(default_factory=dict)
    """The files of sources that have some."""
    dead_letters: Path | None = None
    """A folder for files of dead letters."""
    until_end: bool = False
    """End as soon as every row of all files has been taken in."""

    def steps(self) -> tuple[Step, ...]:
        return fused_steps(self.pipeline, self.logic, self.threads)


def fused_steps(pipeline: Pipeline, logic: Mapping[str, Logic], threads: Mapping[str, int]) -> tuple[Step, ...]:
    """Operators in topological order. A source without code is no step: what enters is what it sends."""
    sources = pipeline.sources
    order = [name for name in topological_order(pipeline) if name not in sources or name in logic]
    position = dict.fromkeys(sources, -1) | {name: index for index, name in enumerate(order)}
    numbers = {id(stream): number for number, stream in enumerate(pipeline.streams, start=1)}
    steps = []
    for name in order:
        inputs = pipeline.inputs(name)
        reads = [] if name not in sources else [(-1, 0)]
        for stream in inputs:
            only_way = len(inputs) == 1 and len(pipeline.outputs(stream.sender)) == 1
            reads.append((position[stream.sender], 0 if only_way else numbers[id(stream)]))
        is_sink = pipeline.operators[name].kind is Kind.SINK
        code = logic.get(name) if is_sink else logic[name]
        steps.append(Step(name, code, threads.get(name, 1), tuple(reads), delivers=is_sink))
    return tuple(steps)


@dataclass(frozen=True)
class Hooks:
    """Who hears of what while a pipeline runs: batches, tuples for the console; and who may ask for the end."""

    watch: Callable[[BatchObservation], None] | None = None
    show: Callable[[str, str], None] | None = None
    interrupt: Interrupt | None = None

    @property
    def interrupted(self) -> bool:
        return self.interrupt is not None and self.interrupt.asked


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-run-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_fused(
    session: SparkSession,
    run: FusedRun,
    seconds: float,
    warm_up: float,
    watch: Callable[[BatchObservation], None] | None = None,
    hooks: Hooks | None = None,
) -> Report:
    """Run for `seconds` past the first batch, drain, audit, and report what happened past the warm-up."""
    hooks = hooks or Hooks(watch)
    with _scratch() as folder:
        feed = FileFeed(folder, run.indexes)
        run = replace(run, logic={**run.logic, **feed.logic})
        ends = ends_of(run.pipeline, run.logic, run.dead_letters, arrow_schema)
        ends.make_folders()
        function = FusedFunction(folder.name, run.steps(), tuple(run.environment.items()), ends)
        started: list[float] = []

        def due(at: float) -> int:
            count = run.load.due(at - started[0]) if started else 0
            return count if feed.tuples is None else min(count, feed.tuples)

        show = Sample(hooks.show).take if hooks.show is not None else None
        ledger = Ledger(folder / "ledger", due, show)
        load_source.bound_batches(folder, run.most_rows)
        query = LastingQuery(lambda: start_query(session, run, folder, function, ledger))
        try:
            query.wait_until_ready()
            java = java_process(session)
            used, ran = tree_usage(java).cpu_seconds, Stopwatch()
            started.append(load_source.begin(folder))
            _watch(query, run, ledger, feed, folder, seconds, hooks)
            load_source.hold(folder)
            query.drain()
            used, elapsed = tree_usage(java).cpu_seconds - used, ran.seconds()
        finally:
            query.stop()
            ends.settle(folder.name, ledger.committed)
        own = sum(slot.cpu_seconds for batch in ledger.batches for slot in batch.slots)
        engine_cpu = max(0.0, used - own) / elapsed
        offered = _offered(run.load, ledger.batches, started[0], warm_up)
        report = summarise(ledger.batches, offered, warm_up, ledger.audit(), engine_cpu, started[0])
        return replace(report, notes=(*report.notes, *query.notes, *_end_of_files(feed, ledger)))


def arrow_schema(words: str) -> Any:
    """A schema in Spark's words ("word string, length int") as Arrow's."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark loads only when it is used
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        return to_arrow_schema(cast("StructType", StructType.fromDDL(words)))
    except PySparkException as error:
        raise BadInputError(f"schema '{words}': {str(error).splitlines()[0]}") from error


def start_query(
    session: SparkSession, run: FusedRun, folder: Path, function: FusedFunction, ledger: Ledger
) -> StreamingQuery:
    """The one query of a run that meets its source in `folder`."""
    session.dataSource.register(load_source.LoadSource)
    options = load_source.options(run.load, run.slots, folder)
    frame = session.readStream.format(load_source.NAME).options(**options).load()
    return (
        frame.mapInArrow(function, OUTPUT_SCHEMA)
        .writeStream.foreachBatch(ledger.write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .queryName(f"{run.pipeline.name}-{folder.name}")
        .trigger(processingTime=f"{run.interval_ms} milliseconds")
        .start()
    )


def _watch(
    query: LastingQuery, run: FusedRun, ledger: Ledger, feed: FileFeed, folder: Path, seconds: float, hooks: Hooks
) -> None:
    since: Stopwatch | None = None
    seen = 0
    while (since is None or since.seconds() < seconds) and not hooks.interrupted:
        pause(POLL_SECONDS)
        query.check()
        feed.look()
        batches = ledger.batches
        if since is None and (batches or feed.tuples == 0):
            since = Stopwatch()
        for batch in batches[seen:]:
            _resize(run, folder, batch)
            if hooks.watch is not None:
                hooks.watch(batch)
        seen = len(batches)
        if run.until_end and feed.tuples is not None and ledger.taken >= feed.tuples:
            return


def _resize(run: FusedRun, folder: Path, batch: BatchObservation) -> None:
    wall = max((slot.wall_seconds for slot in batch.slots), default=0.0)
    if run.batch_seconds is not None and batch.tuples and wall > 0:
        wanted = batch.tuples * min(run.batch_seconds / wall, _LARGEST_STEP)
        load_source.bound_batches(folder, max(run.slots, int(wanted)))


_LARGEST_STEP = 20.0
"""The first batches tell little: no batch is more than so many times the one before."""


def _offered(load: Load, batches: list[BatchObservation], began: float, warm_up: float) -> float:
    """Tuples/s the load asked for while it was measured."""
    if not batches:
        return load.mean_rate
    return load.rate_between(batches[0].finished - began + warm_up, batches[-1].finished - began)


def _end_of_files(feed: FileFeed, ledger: Ledger) -> tuple[str, ...]:
    if feed.tuples is None or ledger.taken < feed.tuples:
        return ()
    return (f"the files ended: all {feed.tuples:,} rows were taken in",)
