"""Trials on real Spark. Nothing here depends on how fast the machine is, only on what cannot be faster or smaller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.dataflow.logic import Logic, Per
from penstock.modelling.library import read_models
from penstock.profiling.samples import OperatorSample
from penstock.profiling.trials import TrialQuery

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),  # pyspark's own
    pytest.mark.long("a trial takes its seconds, and is slow beside others"),
]

HUNGER_MB = 200


def waits(row: dict[str, Any]) -> dict[str, Any]:
    threading.Event().wait(0.02)
    return {"text": row["text"]}


def never_content(row: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(f"{row['value']} is not liked")


def open_pantry() -> bytearray:
    return bytearray(b"x" * (HUNGER_MB * 2**20))


def hungry(row: dict[str, Any], pantry: bytearray) -> dict[str, Any]:
    return {"value": row["value"] + pantry[0]}


def test_trials_of_several_operators_in_one_query(session: Any) -> None:
    ticks: list[None] = []
    logic = {"waits": Logic(waits), "hungry": Logic(hungry, open=open_pantry), "raises": Logic(never_content)}
    rows = pa.table({"text": ["something"]})
    samples = {"waits": OperatorSample(rows, sends=rows.schema)}
    with TrialQuery(session, logic, {}, lambda: ticks.append(None), samples) as query:
        engine = query.engine_cost(0.5)
        assert engine.batch_seconds > 0
        assert engine.batch_cpu_seconds > 0
        assert engine.base_memory_mb > 20

        # a tuple's way in and out is microseconds, not milliseconds, and less where no dict is made of it
        by_row = query.handling_cost(Per.ROW, 0.5, 0.2)
        by_column = query.handling_cost(Per.ARROW, 0.5, 0.2)
        assert 0 < by_column.seconds < by_row.seconds < 0.001
        assert 0 < by_column.cpu_seconds <= by_column.seconds

        bench = query.bench("waits", batch_seconds=0.5)
        one = bench.saturate(1, 1.0)
        # a thread that waits 20 ms does at most 50 a second; nothing but the engine needs CPU
        assert 0 < one.rate <= 50
        assert one.operator_cpu <= one.cpu
        assert one.busy <= 1
        assert one.pace is not None
        assert one.pace > 0
        assert 0 <= one.others < 1
        four = bench.saturate(4, 0.5)
        assert four.threads == 4
        assert four.rate <= 200
        # offered four times what is possible, it falls behind; and it does no more than is offered
        assert not bench.try_rate(1, 200.0, 1.0).stable
        assert bench.try_rate(4, 4.0, 1.0).rate <= 5

        bench = query.bench("hungry", batch_seconds=0.2)
        assert bench.saturate(1, 0.5).memory_mb >= HUNGER_MB
        # a fresh worker: what the last operator held is not counted for this one
        assert query.bench("waits", batch_seconds=0.2).saturate(1, 0.5).memory_mb < HUNGER_MB / 2

        message = r"operator 'raises': its code raised for .* tuples of a trial.*ValueError: 0 is not liked"
        with pytest.raises(BadInputError, match=message):
            query.bench("raises", batch_seconds=0.2).saturate(1, 0.5)
    assert ticks
    assert not [query for query in session.streams.active if query.name.startswith("penstock-trials")]


CODE = """
import threading

def text(row):
    return {"text": str(row["value"])}

def slowly(row):
    threading.Event().wait(0.02)
    return {"length": len(row["text"])}
"""

PIPELINE = """
name: p
operators: {s: {kind: source, run: "code_to_profile:text"}, a: {run: "code_to_profile:slowly"}, o: {kind: sink}}
streams: [{from: s, to: a}, {from: a, to: o}]
"""


IMPATIENT = """
from dataclasses import replace
from penstock.cli.main import main
from penstock.inputs import profiling
from penstock.spark.trials import profiling as points

profiling.ENGINE_SECONDS = profiling.HANDLING_SECONDS = 0.2
points.QUICK = replace(points.QUICK, trial_seconds=0.5, batch_seconds=0.1)
main()
"""
"""The command itself, but for how closely it looks: of what it measures only that it is kept matters."""


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "code_to_profile.py").write_text(CODE)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    models = tmp_path / "models.json"
    # its trials need what the source's code makes
    words = ["profile", "p.yaml", "-o", "models.json", "--quick", "--operator", "a"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    waited = Stopwatch()
    while not models.exists() and process.poll() is None and waited.seconds() < 300:
        pause(0.1)
    below = psutil.Process(process.pid).children(recursive=True)
    # as a terminal does: to every process of the group
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    kept = sum(len(model.points) for model in read_models(models))
    assert kept
    assert (out, err) == ("", f"interrupted; {kept} points kept in models.json\n")
    assert below
    _, alive = psutil.wait_procs(below, timeout=30)
    assert alive == []
