"""Files in, Parquet out, on real Spark: every row once, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.report.report import BatchObservation
from penstock.spark.file_index import indexes_of
from penstock.spark.fused import FusedRun, Hooks, run_fused
from penstock.spark.interrupts import Interrupt
from penstock.spark.process_tree import java_process

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own

CHAIN = penstock.pipeline("chain").source("s").then("a", model="pi").sink("out").build()


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def double_or_die_once(row: dict[str, Any]) -> dict[str, Any]:
    flag = Path(os.environ["PENSTOCK_TEST_FLAG"])
    if row["n"] == 250 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"n": row["n"], "double": 2 * row["n"]}


def write_rows(path: Path, first: int, last: int) -> None:
    """Rows first to last (exclusive); row 7 is malformed. Moved into place whole, as writers should."""
    lines = [json.dumps({"n": number}) if number != 7 else "{" for number in range(first, last)]
    path.with_suffix(".part").write_text("\n".join(lines) + "\n")
    path.with_suffix(".part").rename(path)


def test_files_to_parquet_with_a_worker_that_dies(session: Any, tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", 0, 400)
    out, dead = tmp_path / "out", tmp_path / "dead"
    pipeline = (
        penstock.pipeline("p")
        .source("s", files=str(tmp_path / "*.jsonl"))
        .then("work")
        .sink("out", parquet=str(out), console=True)
        .build()
    )
    shown: list[tuple[str, str]] = []
    batches: list[BatchObservation] = []

    def watch(batch: BatchObservation) -> None:
        if not batches:
            write_rows(tmp_path / "later.jsonl", 400, 600)
        batches.append(batch)

    run = FusedRun(
        pipeline,
        {"work": Logic(double_or_die_once, schema="n bigint, double double")},
        {"work": 2},
        Load.constant(300),
        slots=2,
        most_rows=150,
        environment={"PENSTOCK_TEST_FLAG": str(tmp_path / "died")},
        indexes=indexes_of(pipeline),
        dead_letters=dead,
        until_end=True,
    )
    hooks = Hooks(watch, lambda sink, text: shown.append((sink, text)))
    report = run_fused(session, run, seconds=60, warm_up=1, hooks=hooks)
    assert (tmp_path / "died").exists()
    table = pq.read_table(out)
    assert table.schema.names == ["n", "double", "penstock_id"]
    assert str(table.schema.field("double").type) == "double"
    rows = sorted(table.to_pylist(), key=lambda row: row["n"])
    # row n of the files is tuple n; only row 7 is missing, and nothing is there twice
    assert rows == [{"n": n, "double": 2.0 * n, "penstock_id": n} for n in range(600) if n != 7]
    assert not list(out.glob(".*"))
    letters = [json.loads(line) for file in dead.iterdir() for line in file.read_text().splitlines()]
    assert [(letter["operator"], letter["id"]) for letter in letters] == [("s", 7)]
    assert "a.jsonl, row 8: not valid JSON" in letters[0]["error"]
    audit = report.audit
    assert (audit.emitted, audit.lost, audit.duplicated, audit.dead) == (600, 0, 0, 1)
    assert any("the files ended: all 600 rows" in note for note in report.notes)
    assert ("out", json.dumps({"n": 0, "double": 0})) in shown
    assert len(shown) <= 5 * (2 + batches[-1].finished - batches[0].finished)


def source_processes(java: psutil.Process) -> list[psutil.Process]:
    """Those in which Spark asks a Python source for offsets. (Others come and go meanwhile.)"""
    found = []
    for process in java.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "python_streaming_source_runner" in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_a_killed_source_process_loses_and_doubles_nothing(session: Any) -> None:
    killed: list[int] = []
    tuples: list[int] = []
    interrupt = Interrupt()

    def kill_then_go_on(batch: BatchObservation) -> None:
        tuples.append(batch.tuples)
        if not killed:
            for process in source_processes(java_process(session)):
                killed.append(process.pid)
                process.send_signal(signal.SIGKILL)
        elif sum(tuples) > 900 and not interrupt.asked:
            interrupt.ask()

    run = FusedRun(CHAIN, {"a": Logic(same)}, {"a": 1}, Load.constant(300), slots=2, most_rows=300)
    hooks = Hooks(kill_then_go_on, interrupt=interrupt)
    report = run_fused(session, run, seconds=300, warm_up=1, hooks=hooks)
    assert len(killed) == 1
    assert not psutil.pid_exists(killed[0])
    assert any("was started again from its checkpoint" in note for note in report.notes)
    assert report.audit.emitted > 900
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)


def test_an_interrupt_ends_a_run_in_order(session: Any) -> None:
    interrupt = Interrupt()
    run = FusedRun(CHAIN, {"a": Logic(same)}, {"a": 1}, Load.constant(200), slots=2, most_rows=200)
    batches: list[BatchObservation] = []

    def watch(batch: BatchObservation) -> None:
        batches.append(batch)
        if len(batches) == 3:
            interrupt.ask()

    report = run_fused(session, run, seconds=600, warm_up=1, hooks=Hooks(watch, interrupt=interrupt))
    assert report.sustained_rate > 0
    assert report.audit.emitted >= sum(batch.tuples for batch in batches)
    assert (report.audit.lost, report.audit.duplicated) == (0, 0)
    assert [moment.seconds for moment in report.history] == sorted(moment.seconds for moment in report.history)


def test_ctrl_c_prints_the_report_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import penstock\n"
        "p = penstock.pipeline('mine').source('s').then('same', run='mine:same').sink('out', console=True)\n"
        "def same(row):\n    return row\n"
    )
    command = [sys.executable, "-m", "penstock", "run", "mine:p", "--rate", "50", "--seconds", "600", "--slots", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("out: ")
        # as a terminal does: to every process of the group
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert "mine fused on 1 slots: offered 50" in out
    assert "0 lost, 0 duplicated" in out
    assert err.splitlines() == ["interrupted"]
