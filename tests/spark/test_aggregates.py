"""Keyed aggregation on real Spark: counts are those of the tuples that were emitted, also when it all starts anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load
from penstock.dataflow.pipeline import Pipeline
from penstock.spark.bundles import make_bundles, segments_between_aggregates
from penstock.spark.fused import FusedRun, Hooks, arrow_schema
from penstock.spark.placed_run import PlacedRun, PlacedSetup
from penstock.spark.segmented import run_segmented
from penstock.spark.sinks import ends_of
from penstock.workloads.operators.words import line, split_words

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own


def word_count(folder: Path, **window: Any) -> Pipeline:
    counting = {"key": "word", "outputs": {"count": "count"}, "fields": "word string", **window}
    return (
        penstock.pipeline("words")
        .source("s")
        .then("split", model="split_words")
        .then("count", aggregate=counting)
        .sink("out", parquet=str(folder))
        .build()
    )


def words_of(first: int, last: int) -> Counter[str]:
    return Counter(word for number in range(first, last) for word in line(number).split())


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def test_counts_are_right_and_no_tuple_is_lost(session: Any, tmp_path: Path) -> None:
    run = FusedRun(word_count(tmp_path), {"split": split_words}, {"split": 1}, Load.constant(150), 2, 200)
    report = run_segmented(session, run, seconds=5, warm_up=1, hooks=Hooks())
    assert report.audit.emitted > 300
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)
    last: dict[str, int] = {}
    for row in rows(tmp_path):
        last[row["word"]] = max(row["count"], last.get(row["word"], 0))
    assert last == words_of(0, report.audit.emitted)


def test_state_survives_a_conductor_that_starts_anew(session: Any, tmp_path: Path) -> None:
    pipeline = word_count(tmp_path / "out")
    load = Load.constant(150)
    threads = {Slot("local", 0): dict.fromkeys(pipeline.operators, 1)}
    bundles = make_bundles(
        pipeline,
        {"split": split_words},
        threads,
        load,
        lambda _, count: float(count),
        segments=segments_between_aggregates(pipeline),
    )
    ends = ends_of(pipeline, {"split": split_words}, None, arrow_schema)
    ends.make_folders()
    setup = PlacedSetup(tmp_path / "run", load, {}, lambda _: 200, executor_memory_mb=None, ends=ends)
    first = PlacedRun(session, setup, bundles)
    first.start()
    first.begin()
    first.watch(3)
    first.queries.stop()
    second = PlacedRun(session, setup, bundles)
    second.start()
    second.begin()
    second.watch(2)
    second.drain()
    second.stop()
    audit = second.dispatcher.audit()
    assert audit.emitted > 300
    assert (audit.lost, audit.duplicated) == (0, 0)
    last: dict[str, int] = {}
    for row in rows(tmp_path / "out"):
        last[row["word"]] = max(row["count"], last.get(row["word"], 0))
    assert last == words_of(0, audit.emitted)


def test_windows_that_are_over_are_sent_once_and_whole(session: Any, tmp_path: Path) -> None:
    pipeline = word_count(tmp_path, window_seconds=1.0, emit="closed")
    run = FusedRun(pipeline, {"split": split_words}, {"split": 1}, Load.constant(100), 1, 200)
    report = run_segmented(session, run, seconds=6, warm_up=1, hooks=Hooks())
    found = rows(tmp_path)
    windows = {(row["window_start"], row["word"]) for row in found}
    assert len(windows) == len(found)
    starts = sorted({row["window_start"] for row in found})
    assert len(starts) >= 2
    assert all(row["window_end"] - row["window_start"] == pytest.approx(1.0) for row in found)
    # windows in the middle hold the words of exactly 100 tuples that follow each other
    emitted = report.audit.emitted
    counts = Counter({row["word"]: row["count"] for row in found if row["window_start"] == starts[1]})
    assert any(words_of(first, first + 100) == counts for first in range(emitted - 99))
