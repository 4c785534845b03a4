"""Fused execution: one query, in which every slot runs the whole pipeline on its share of the stream."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch, pause
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import topological_order
from penstock.errors import PenstockError
from penstock.report.report import summarise
from penstock.spark import load_source
from penstock.spark.fused_function import OUTPUT_SCHEMA, FusedFunction
from penstock.spark.ledger import Ledger
from penstock.spark.process_tree import java_process, tree_usage
from penstock.spark.segment import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.report.report import BatchObservation, Report

POLL_SECONDS = 0.2
DRAIN_SECONDS = 60.0


class RunFailedError(PenstockError):
    """Spark stopped the query; the message is the first line of its reason."""


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

    def steps(self) -> tuple[Step, ...]:
        """Operators but the sources, in topological order: tuples enter at whatever a source feeds."""
        order = [name for name in topological_order(self.pipeline) if name not in self.pipeline.sources]
        position = {name: index for index, name in enumerate(order)}
        position.update(dict.fromkeys(self.pipeline.sources, -1))
        numbers = {id(stream): number for number, stream in enumerate(self.pipeline.streams, start=1)}
        steps = []
        for name in order:
            inputs = self.pipeline.inputs(name)
            reads = []
            for stream in inputs:
                only_way = len(inputs) == 1 and len(self.pipeline.outputs(stream.sender)) == 1
                reads.append((position[stream.sender], 0 if only_way else numbers[id(stream)]))
            is_sink = self.pipeline.operators[name].kind is Kind.SINK and name not in self.logic
            steps.append(Step(name, None if is_sink else self.logic[name], self.threads.get(name, 1), tuple(reads)))
        return tuple(steps)


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
) -> Report:
    """Run for `seconds` past the first batch, drain, audit, and report what happened past the warm-up."""
    with _scratch() as folder:
        ledger = Ledger(folder / "ledger")
        session.dataSource.register(load_source.LoadSource)
        load_source.bound_batches(folder, run.most_rows)
        options = load_source.options(run.load, run.slots, folder)
        function = FusedFunction(folder.name, run.steps(), tuple(run.environment.items()))
        frame = session.readStream.format(load_source.NAME).options(**options).load()
        query = (
            frame.mapInArrow(function, OUTPUT_SCHEMA)
            .writeStream.foreachBatch(ledger.write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .queryName(f"{run.pipeline.name}-{folder.name}")
            .trigger(processingTime=f"{run.interval_ms} milliseconds")
            .start()
        )

        def tell(batch: BatchObservation) -> None:
            _resize(run, folder, batch)
            if watch is not None:
                watch(batch)

        try:
            _wait_until_ready(query)
            java = java_process(session)
            used, ran = tree_usage(java).cpu_seconds, Stopwatch()
            load_source.begin(folder)
            _watch(query, ledger, seconds, tell)
            load_source.hold(folder)
            _drain(query)
            used, elapsed = tree_usage(java).cpu_seconds - used, ran.seconds()
        finally:
            query.stop()
        _note_backlogs(query, ledger)
        own = sum(slot.cpu_seconds for batch in ledger.batches for slot in batch.slots)
        engine_cpu = max(0.0, used - own) / elapsed
        return summarise(ledger.batches, run.load.mean_rate, warm_up, ledger.audit(), engine_cpu)


def _wait_until_ready(query: StreamingQuery) -> None:
    """Until the query has asked its source for the first time."""
    while "Waiting" not in query.status["message"]:
        pause(POLL_SECONDS / 4)
        _check(query)


def _resize(run: FusedRun, folder: Path, batch: BatchObservation) -> None:
    wall = max((slot.wall_seconds for slot in batch.slots), default=0.0)
    if run.batch_seconds is not None and batch.tuples and wall > 0:
        wanted = batch.tuples * min(run.batch_seconds / wall, _LARGEST_STEP)
        load_source.bound_batches(folder, max(run.slots, int(wanted)))


_LARGEST_STEP = 20.0
"""The first batches tell little: no batch is more than so many times the one before."""


def _watch(query: StreamingQuery, ledger: Ledger, seconds: float, watch: Callable[[BatchObservation], None]) -> None:
    since: Stopwatch | None = None
    seen = 0
    while since is None or since.seconds() < seconds:
        pause(POLL_SECONDS)
        _check(query)
        batches = ledger.batches
        if batches and since is None:
            since = Stopwatch()
        for batch in batches[seen:]:
            watch(batch)
        seen = len(batches)


def _drain(query: StreamingQuery) -> None:
    """Sources have stopped; wait until the batch under way is committed and nothing is left to do."""
    waited = Stopwatch()
    idle = 0
    while idle < 2 and waited.seconds() < DRAIN_SECONDS:
        pause(POLL_SECONDS)
        _check(query)
        idle = idle + 1 if not query.status["isTriggerActive"] and not query.status["isDataAvailable"] else 0


def _check(query: StreamingQuery) -> None:
    if not query.isActive:
        raise RunFailedError(f"Spark stopped the query: {_reason(str(query.exception()))}")


def _reason(text: str) -> str:
    """The line of a Spark error that says what happened: the last exception named before the query's description."""
    lines = [line.strip() for line in text.partition("=== Streaming Query ===")[0].splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return named[-1] if named else lines[0] if lines else "it did not say why"


def _note_backlogs(query: StreamingQuery, ledger: Ledger) -> None:
    for progress in query.recentProgress:
        source = progress["sources"][0]
        if source["endOffset"] and source["latestOffset"]:
            ahead = json.loads(source["latestOffset"])["tuples"] - json.loads(source["endOffset"])["tuples"]
            ledger.note_backlog(progress["batchId"], ahead)
