"""What `test_namespaces.py` runs on the driver's host: a placed or a fused run, and what came of it as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

import penstock
from penstock.base.clock import Stopwatch, pause
from penstock.connectors.checkpoint import FolderCheckpoint
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.planning.files import write_plan
from penstock.spark.clusters.local.lifecycle import find_cluster

SOON_UP = {"spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Executors live for seconds: what Java's second compiler would do is not worth its time."""


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def line(folder: Path) -> Pipeline:
    code = Logic(same, schema="value bigint")
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        *(Operator(name=name, logic=code, threads=1, cpu=90, memory_mb=64) for name in ("a", "b")),
        Operator(name="out", kind=Kind.SINK, format="parquet", options={"path": str(folder / "out")}),
    ]
    ways = (("src", "a"), ("a", "b"), ("b", "out"))
    return Pipeline.of("line", operators, [Stream(sender=a, receiver=b) for a, b in ways])


def placed(folder: Path) -> dict[str, Any]:
    pipeline = line(folder)
    planned = penstock.plan(pipeline, 200, cluster=find_cluster().cluster_file, placer="round-robin")
    write_plan(planned, folder / "p.json")
    run = folder / "run"
    handle = penstock.start(folder / "p.json", 200.0, engine="placed", folder=run, given=pipeline, warm_up=1.0)
    while handle.progress is None and handle.await_end(0.2) is None:
        pass
    (folder / "flowing").touch()
    watch = Stopwatch()
    while not (folder / "restored").exists() and watch.seconds() < 60:
        pause(0.2)
    before = handle.last_batch
    while handle.last_batch == before and watch.seconds() < 120:
        pause(0.2)
    pause(2.0)
    result = handle.drain()
    commit = FolderCheckpoint(run).last()
    workers = {place.worker.rpartition("@")[2].partition(":")[0] for place in result.places if place.worker}
    return {
        **summary(result),
        "generations": 0 if commit is None else commit.generation,
        "hosts": sorted(workers),
        "rows": ds.dataset(folder / "out", format="parquet").count_rows(),
    }


def fused(folder: Path) -> dict[str, Any]:
    cluster = find_cluster()
    result = penstock.run(
        line(folder / "fused"),
        200.0,
        slots=2,
        seconds=3.0,
        warm_up=0.5,
        folder=folder / "fused-run",
        master=cluster.master_url,
        secret_file=cluster.secret_file,
        settings=SOON_UP,
    )
    return summary(result)


def summary(result: Any) -> dict[str, Any]:
    audit = result.report.audit
    return {"lost": audit.lost, "doubled": audit.duplicated, "emitted": audit.emitted}


if __name__ == "__main__":
    os.environ["PENSTOCK_STATE"] = sys.argv[1]
    home = Path(sys.argv[1])
    print(json.dumps({"placed": placed, "fused": fused}[sys.argv[2]](home)))
