"""Processes that die while a run flows. What counts is what is in the sinks afterwards: every tuple once."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from processes import command, environment_for, flowed

from penstock.base.errors import ClusterError
from penstock.spark.broker.jars import JarSet, fetch

PIPELINE = """
import penstock

pipeline = penstock.pipeline("deaths").source("load")
pipeline.then("same", logic=lambda row: row, schema="value bigint")
pipeline.sink("store", reads="same", format="parquet", options={{"path": "{parquet}"}})
if {jdbc}:
    options = {{"url": "jdbc:sqlite:{database}", "driver": "org.sqlite.JDBC", "dbtable": "tuples"}}
    pipeline.sink("table", reads="same", format="jdbc", options=options)
"""


SQLITE = JarSet("sqlite-jdbc-3.46.1.3", ("org.xerial:sqlite-jdbc:3.46.1.3",), alone=True)
"""What it needs beside itself, Spark has."""
INSTALLED = Path("/usr/share/java/sqlite-jdbc.jar")
"""Where Debian puts it."""


def sqlite_driver() -> tuple[Path | None, str]:
    """As it is installed, or Maven fetches it; and why there is none."""
    if INSTALLED.exists():
        return INSTALLED, ""
    try:
        return fetch(SQLITE)[0], ""
    except ClusterError as error:
        return None, str(error)


def python_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Children of PySpark's daemon: the processes in which tasks run. Some end while they are looked at."""
    workers = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # zombies too
            if "daemon" in " ".join(child.cmdline()) and not child.children():
                workers.append(child)
    return workers


def test_worker_and_driver_are_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    """kill -9 of a worker, then of the driver; `resume` while another resumes; SIGTERM."""
    driver, why_none = sqlite_driver()
    out, database, folder = tmp_path / "out", tmp_path / "tuples.db", tmp_path / "run"
    text = PIPELINE.format(parquet=out, database=database, jdbc=driver is not None)
    (tmp_path / "dying.py").write_text(text)
    environment = environment_for(tmp_path)
    jars = [] if driver is None else ["--conf", f"spark.jars={driver}"]

    words = ["run", "dying:pipeline", "--rate", "1000", "--master", "local[2]", "--folder", str(folder), *jars]
    with command(environment, *words) as first:
        flowed(first, out, 1)
        workers = python_workers(first)
        assert workers
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        flowed(first, out, 2)
        first.kill()

    def runs() -> list[dict[str, Any]]:
        with command(environment, "runs", "--json") as listing:
            found: list[dict[str, Any]] = json.loads(listing.communicate()[0])
            return found

    assert [(run["folder"], run["state"]) for run in runs()] == [(str(folder), "lost")]
    with command(environment, "runs", "resume", str(folder), "--json") as second:
        flowed(second, out, 2)
        with command(environment, "runs", "resume", str(folder)) as third:
            said = third.communicate()[1]
            assert third.returncode == 2
            assert said.count("\n") == 1
            assert "is running: cannot resume it; pause or stop it first" in said
        second.send_signal(signal.SIGTERM)
        printed, complained = second.communicate(timeout=180)
        assert second.returncode == 130, complained
    report = json.loads(printed)
    assert (report["lost"], report["duplicated"]) == (0, 0)
    everything = list(range(report["emitted"]))
    assert sorted(pq.read_table(out)["value"].to_pylist()) == everything
    assert [run["state"] for run in runs()] == ["stopped"]
    if driver is None:
        pytest.skip(f"Parquet held; no JDBC driver of SQLite to try a table with: {why_none}")
    with sqlite3.connect(database) as connection:
        assert [value for (value,) in connection.execute("SELECT value FROM tuples ORDER BY value")] == everything
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert tables == {"tuples", "penstock_batches"}
