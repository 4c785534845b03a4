"""A keyed aggregation whose state moves: bundles die, and plans with other bundles take its groups over."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from local_processes import code_of, conductor, laid_out
from test_engine import A, B, C, launcher, turn_for, turn_until, wait

from penstock.dataflow.aggregate import Aggregate
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.flow.audit import audit, ways_of
from penstock.flow.states import FlowState
from penstock.spark.placed.local_launcher import LocalLauncher

__all__ = ["launcher"]

WORDS = 37


def word(row: dict[str, Any]) -> dict[str, Any]:
    return {"word": f"w{row['value'] % WORDS}", "amount": float(row["value"])}


def counting() -> Pipeline:
    aggregate = Aggregate(
        key="word",
        outputs={"n": "count", "total": "sum(amount)", "most": "max(amount)"},
        fields="word string, amount double",
    )
    operators = [
        Operator(name="src", kind=Kind.SOURCE),
        Operator(name="split", logic=Logic(word)),
        Operator(name="count", aggregate=aggregate),
        Operator(name="out", kind=Kind.SINK),
    ]
    ways = (("src", "split"), ("split", "count"), ("count", "out"))
    return Pipeline.of("counting", operators, [Stream(sender=a, receiver=b) for a, b in ways])


def test_counts_are_exact_whoever_dies_and_whatever_plan_runs(tmp_path: Path, launcher: LocalLauncher) -> None:
    pipeline = counting()
    code = code_of(pipeline, tmp_path, split=pa.schema([("word", pa.string()), ("amount", pa.float64())]))
    one = laid_out(code, {"src": {A: 1}, "split": {A: 1}, "count": {B: 1}, "out": {C: 1}}, "one")
    three = laid_out(code, {"src": {A: 1}, "split": {A: 1}, "count": {A: 1, B: 1, C: 2}, "out": {C: 1}}, "three")
    run = conductor(tmp_path, one, 800.0, launcher)
    try:
        turn_until(run, lambda: run.run.state is FlowState.FLOWING)
        turn_for(run, 0.6)
        wait(run, run.change(three))
        turn_for(run, 0.6)
        generation = run.run.generation
        os.kill(launcher.processes["count@n1/1"].pid, signal.SIGKILL)
        turn_until(run, lambda: run.run.generation > generation and run.run.state is FlowState.FLOWING)
        turn_for(run, 0.6)
        wait(run, run.change(one))
        turn_for(run, 0.3)
        wait(run, run.drain(end=True))
    finally:
        run.close()
    offset = int(run.run.commit.offsets["src"])
    rows = ds.dataset(tmp_path / "out", format="parquet").to_table().to_pylist()
    last: dict[str, dict[str, Any]] = {}
    for row in rows:
        # a group is sent whenever it changed; its count only grows
        if row["word"] not in last or row["n"] > last[row["word"]]["n"]:
            last[row["word"]] = row
    for number in range(WORDS):
        values = range(number, offset, WORDS)
        found = last[f"w{number}"]
        assert (found["n"], found["total"], found["most"]) == (len(values), sum(values), max(values))
    seen = audit(run.ids, {"src": offset}, ways_of(pipeline, lambda _: 0), made_several=False)
    assert (seen.lost, seen.duplicated) == (0, 0)
