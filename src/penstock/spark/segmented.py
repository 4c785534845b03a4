"""Embedded execution of pipelines that aggregate: segments between the aggregations, joined by channels.

Every segment runs in all slots as one streaming query each; an aggregation is one query with its state. The mechanism
is that of placed execution, without slots of their own: there is one process for everything.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import now, pause
from penstock.cluster.topology import Slot
from penstock.report.report import EMBEDDED_NODE
from penstock.spark.bundles import make_bundles, segments_between_aggregates
from penstock.spark.file_feed import FileFeed
from penstock.spark.fused import arrow_schema
from penstock.spark.placed_run import POLL_SECONDS, PlacedRun, PlacedSetup
from penstock.spark.sinks import ends_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.report.report import Report
    from penstock.spark.fused import FusedRun, Hooks

TICKET_SECONDS = 1.0
INTERVAL_MS = 100


def has_aggregates(pipeline: Pipeline) -> bool:
    return any(operator.aggregate is not None for operator in pipeline.operators.values())


def segments_of(pipeline: Pipeline, slots: int) -> list[tuple[str, ...]]:
    """With several slots a source is a segment of its own: it emits in one place, what follows it runs in all."""
    cut: list[tuple[str, ...]] = []
    for segment in segments_between_aggregates(pipeline):
        sources = [name for name in segment if name in pipeline.sources]
        if slots == 1 or not sources:
            cut.append(segment)
            continue
        cut += [(name,) for name in sources]
        if rest := tuple(name for name in segment if name not in sources):
            cut.append(rest)
    return cut


def run_segmented(session: SparkSession, run: FusedRun, seconds: float, warm_up: float, hooks: Hooks) -> Report:
    """Run for `seconds`, drain, audit, and report what happened past the warm-up."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-run-"))
    try:
        feed = FileFeed(folder, run.indexes)
        ends = ends_of(run.pipeline, run.logic, run.dead_letters, arrow_schema)
        ends.make_folders()
        bundles = make_bundles(
            run.pipeline,
            {**run.logic, **feed.logic},
            _threads(run.pipeline, run.logic, run.threads, run.slots),
            run.load,
            lambda _, threads: float(threads),
            segments=segments_of(run.pipeline, run.slots),
        )
        most_rows = -(-run.most_rows // run.slots)
        setup = PlacedSetup(
            folder,
            run.load,
            run.environment,
            lambda bundle: _first_rows(run.load) if bundle.load is not None else most_rows,
            TICKET_SECONDS,
            INTERVAL_MS,
            executor_memory_mb=None,
            feed=feed,
            ends=ends,
            show=hooks.show,
        )
        placed = PlacedRun(session, setup, bundles)
        try:
            placed.start()
            placed.begin()
            placed.watch(seconds, lambda: hooks.interrupted or _is_over(run, feed, placed))
            held, backlog = now(), placed.dispatcher.backlog
            placed.drain()
            pause(POLL_SECONDS)
        finally:
            placed.stop()
        return placed.report(held, warm_up, backlog)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _first_rows(load: Load) -> int:
    return max(100, int(load.peak_rate * TICKET_SECONDS))


def _is_over(run: FusedRun, feed: FileFeed, placed: PlacedRun) -> bool:
    return run.until_end and min(placed.dispatcher.emitted.values()) >= (feed.tuples or 0) and placed.dispatcher.idle


def _threads(
    pipeline: Pipeline, logic: Mapping[str, Logic], threads: Mapping[str, int], slots: int
) -> dict[Slot, dict[str, int]]:
    each = {name: threads.get(name, 1) if name in logic else 1 for name in pipeline.operators}
    return {Slot(EMBEDDED_NODE, number): dict(each) for number in range(slots)}
