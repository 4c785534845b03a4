"""Counts, averages and ranks of the documents' applications, placed on a cluster, against answers worked out another
way: what a fused run sends, a placed run sends too."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import application_answers as answers
import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.dataflow.pipeline import Pipeline
from penstock.spark.clusters.local.lifecycle import running_cluster
from penstock.spark.clusters.local.state import RunningCluster

RATE, PATIENCE_SECONDS, WINDOWS = 500, 120.0, 3
SINKS: dict[str, dict[str, answers.Expected]] = {
    "top-n": {"sink": answers.top_words},
    "twitter-sentiment": {
        "archived": answers.values(1),
        "averages": answers.averages,
        "trends": answers.trends,
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(2, 1, folder=tmp_path_factory.mktemp("cluster"), memory_mb=1024) as running:
        yield running


def rows_of(log: EmbeddedLog, topic: str) -> list[dict[str, Any]]:
    made = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            made += [json.loads(value) for value in batch["value"].to_pylist()]
    # a row with one column `value` is its value
    rows = [row if isinstance(row, dict) else {"value": row} for row in made]
    return [{**row, "first": json.loads(row["first"])} if "first" in row else row for row in rows]


def ends(rows: list[dict[str, Any]]) -> list[float]:
    return sorted({row["window_end"] for row in rows if "window_end" in row})


@pytest.mark.usefixtures("own_runs")
@pytest.mark.parametrize("name", SINKS)
def test_what_is_final_arrives_once(
    name: str, cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(cluster.folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    log, sinks = EmbeddedLog(tmp_path / "log"), SINKS[name]
    topics = {sink: "rows" if len(sinks) == 1 else f"rows-{sink}" for sink in sinks}
    for topic in topics.values():
        log.create(topic, 1)
    written = penstock.writing_to(name, f"log:{tmp_path / 'log'}/rows")
    assert isinstance(written, Pipeline)
    plan = penstock.plan(written, RATE, cluster=cluster.folder / "cluster.yaml", placer="round-robin")
    assert len(set(plan.placement.by_slot())) == 2
    run = penstock.start(plan, engine="placed", folder=tmp_path / "run")
    watch = Stopwatch()
    windowed = [topic for sink, topic in topics.items() if sink != "archived"]
    while not all(len(ends(rows_of(log, topic))) >= WINDOWS for topic in windowed):
        assert run.exception() is None
        assert watch.seconds() < PATIENCE_SECONDS, {topic: len(rows_of(log, topic)) for topic in topics.values()}
        pause(0.5)
    audit = run.stop().report.audit
    assert (audit.dead, audit.lost or 0, audit.duplicated or 0) == (0, 0, 0)
    for sink, topic in topics.items():
        rows, expected = rows_of(log, topic), sinks[sink](audit.emitted)
        if sink != "archived":
            last = ends(rows)[-1]
            expected = [row for row in expected if row["window_end"] <= last]
        assert answers.frozen(rows) == answers.frozen(expected)
