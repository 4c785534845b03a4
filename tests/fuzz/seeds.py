"""A good file of every kind, to be made wrong."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.main import run
from penstock.control.attached.batch_sources import PROGRESS

EXAMPLES = Path(__file__).parents[2] / "examples"

PIPELINE = """
name: words
operators:
  lines: {kind: source}
  split: {model: parse_xml}
  count: {model: pi}
  out:   {kind: sink}
streams:
  - {from: lines, to: split}
  - {from: split, to: count, selectivity: 3, grouping: fields, key: word}
  - {from: count, to: out, selectivity: 0.1, constant: 1}
"""
PLAIN = """
name: plain
operators: {s: {kind: source}, x: {model: pi}, y: {model: parse_xml}, o: {kind: sink}}
streams: [{from: s, to: x}, {from: x, to: y, weight: 0.5}, {from: x, to: o, weight: 0.5}, {from: y, to: o}]
"""
DECLARED = """
name: declared
operators:
  s: {kind: source, threads: 1, cpu: 10, memory_mb: 50}
  x: {threads: 4, cpu: 50, memory_mb: 500}
  o: {kind: sink, threads: 1, cpu: 5, memory_mb: 50}
streams: [{from: s, to: x}, {from: x, to: o}]
"""
PROFILED = """
name: counted
operators: {spout: {kind: source}, parse: {model: parse}, split: {model: split}, count: {model: count}}
streams: [{from: spout, to: parse}, {from: parse, to: split}, {from: split, to: count, selectivity: 2}]
"""
MODELS = {
    "models": {
        "geocode": {
            "points": [
                {"threads": 1, "rate": 12, "cpu": 0.08, "memory": 0.05},
                {"threads": 8, "rate": 60, "cpu": 0.4, "memory": 0.1},
            ]
        }
    }
}
CLUSTER = """
nodes:
  - {count: 3, slots: 4, rack: r1, memory_mb: 14336, size: D3}
  - {name: big, slots: 8, rack: r2, cpu: 800, resources: {gpu: 2}, price: 1.2, speed: 2, bandwidth_mbps: 100}
dimensions:
  gpu: {hard: true, weight: 0}
"""
TRACE = "time,rate\n0,5\n1,10\n2,20\n3,0\n"
MEASURED = {
    "pipeline": "plain",
    "mode": "placed",
    "offered_rate": 5.0,
    "sustained_rate": 5.0,
    "stable": True,
    "latency_ms": {"p50": 5.0, "p95": 9.0, "p99": 10.0},
    "slots": [{"node": "n1", "slot": 0, "cpu": 0.5, "memory_mb": 100.0}],
}
RUN = {
    "pipeline": "plain",
    "master": "spark://127.0.0.1:9",
    "generation": 0,
    "plan": "plan-000.json",
    "emitted": {"s": 5},
    "load": {"spells": [[1.0, 5.0]], "repeats": True},
    "routing": "shuffle",
    "segmenter": "ends",
    "segments": [["s"], ["x"], ["y"], ["o"]],
}
FUSED_RUN = {
    "format": 2,
    "engine": "fused",
    "run": "mine",
    "pipeline": "plain",
    "given": "linear",
    "load": {"spells": [[1.0, 5.0]], "repeats": True},
    "slots": 2,
    "threads": {"x": 1},
    "checkpoint": "none",
    "started": "20260101-000000",
}
CONDUCTOR = {"pid": 999_999_999, "started": 5.0}
STATE = {
    "id": "x",
    "folder": "none",
    "master_url": "spark://127.0.0.1:9",
    "web_url": "http://127.0.0.1:9",
    "authenticate": True,
    "master": {"pid": 999_999_999, "started": 5.0},
    "nodes": [
        {"name": "n1", "rack": "r1", "slots": 2, "memory_mb": 1024.0, "worker": {"pid": 999_999_998, "started": 5.0}}
    ],
}


def offsets_of_batch(number: int) -> bytes:
    """As Spark writes them into a checkpoint: batch n has read 1,000 n (n + 1) / 2 rows, a row takes 1 ms."""
    began, total = 1_000_000 + 500 * number * (number - 1), 500 * number * (number + 1)
    return f'v1\n{{"batchTimestampMs":{began}}}\n{{"in": {{"0": {total}, "1": 0}}}}'.encode()


def event_log() -> bytes:
    """Of a query on one executor with two cores: 0.2 s a batch, 0.5 ms a row."""
    events: list[dict[str, Any]] = [
        {"Event": "SparkListenerExecutorAdded", "Executor ID": "0", "Executor Info": {"Total Cores": 2}}
    ]
    for number in range(6):
        rows = 1000 * (number + 1)
        stages = [{"Stage ID": 0, "Parent IDs": [], "Number of Tasks": 4}]
        words = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": str(number)}
        progress = {
            "id": "q-1",
            "name": "counts",
            "timestamp": f"2026-11-16T10:00:{number * 2:02}.000Z",
            "batchId": number,
            "numInputRows": rows,
            "durationMs": {"triggerExecution": 200 + rows // 2, "queryPlanning": 150},
            "stateOperators": [{"numRowsTotal": 50, "memoryUsedBytes": 2048, "allUpdatesTimeMs": 3}],
            "sources": [{"endOffset": {"in": {"0": 600}}, "latestOffset": {"in": {"0": 700}}}],
        }
        events.append({"Event": "SparkListenerJobStart", "Stage Infos": stages, "Properties": words})
        events.append({"Event": PROGRESS, "progress": progress})
    return "".join(json.dumps(event) + "\n" for event in events).encode()


@dataclass(frozen=True)
class Seed:
    """A file by the name calls use: what it is called on the disk, and what is in it. In a folder with others, some."""

    path: str
    content: bytes

    @property
    def as_json(self) -> bool | None:
        return {"json": True, "yaml": False}.get(self.path.rpartition(".")[2])


def printed(*words: str) -> bytes:
    """What a command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(list(words)) == 0
    return out.getvalue().encode()


def make_seeds(folder: Path) -> dict[str, Seed]:
    plain = folder / "plain.yaml"
    plain.write_text(PLAIN)
    words = folder / "words.yaml"
    words.write_text(PIPELINE)
    plans = [folder / f"{name}.json" for name in ("plan", "other", "neighbour")]
    for plan, pipeline, rate in zip(plans, (plain, plain, words), (20, 60, 10), strict=True):
        printed("plan", str(pipeline), "--rate", str(rate), "-o", str(plan))
    return {
        "pipeline": Seed("pipeline.yaml", PIPELINE.encode()),
        "declared": Seed("declared.yaml", DECLARED.encode()),
        "profiled": Seed("profiled.yaml", PROFILED.encode()),
        "models": Seed("models.json", json.dumps(MODELS).encode()),
        "models-csv": Seed("models.csv", (EXAMPLES / "models.csv").read_bytes()),
        "profiles": Seed("profiles.json", (EXAMPLES / "profiles.json").read_bytes()),
        "cluster": Seed("cluster.yaml", CLUSTER.encode()),
        "catalogue": Seed("catalogue.yaml", (EXAMPLES / "catalogue.yaml").read_bytes()),
        "whole-cluster": Seed("whole.yaml", (EXAMPLES / "whole-cluster.yaml").read_bytes()),
        "placement": Seed(
            "placement.json",
            printed("place", str(EXAMPLES / "whole-cluster.yaml"), "--json", "--full", "--no-compare"),
        ),
        "tenants": Seed("tenants.yaml", (EXAMPLES / "tenants.yaml").read_bytes()),
        "plan": Seed("plan.json", plans[0].read_bytes()),
        "other-plan": Seed("other.json", plans[1].read_bytes()),
        "neighbour": Seed("neighbour.json", plans[2].read_bytes()),
        "plain": Seed("plain.yaml", PLAIN.encode()),
        "trace": Seed("trace.csv", TRACE.encode()),
        "measured": Seed("measured.json", json.dumps(MEASURED).encode()),
        "run-folder": Seed("run/run.json", json.dumps(RUN).encode()),
        "conductor": Seed("run/conductor.json", json.dumps(CONDUCTOR).encode()),
        "fused-folder": Seed("runs/mine/run.json", json.dumps(FUSED_RUN).encode()),
        "fused-state": Seed("runs/mine/state.json", json.dumps({"state": "running", "slots": 2}).encode()),
        "elsewhere": Seed("runs/other-00000000.elsewhere", b"/nowhere/at/all"),
        "event-log": Seed("events.log", event_log()),
        "ends": Seed("ends.json", b'{"in": {"0": 16500, "1": 0}}'),
        "checkpoint-folder": Seed("checkpoint/offsets/2", offsets_of_batch(2)),
        **{f"offsets-{n}": Seed(f"checkpoint/offsets/{n}", offsets_of_batch(n)) for n in (0, 1, 3, 4, 5)},
        "cluster-folder": Seed("state/state.json", json.dumps(STATE).encode()),
    }
