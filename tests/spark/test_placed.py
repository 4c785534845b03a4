"""A plan on a real standalone cluster, and the worst day of its life: everything that can be killed is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

import penstock
from penstock.api import live
from penstock.api.plans import plan
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import RunError
from penstock.cli.main import run as run_command
from penstock.planning.files import write_plan
from penstock.spark.clusters.local.lifecycle import kill_worker, running_cluster, start_worker
from penstock.spark.clusters.local.state import RunningCluster

PIPELINE = """
name: eventful
operators:
  source: {kind: source}
  check: {run: "placed_operators:not_a_thousand", threads: 1, cpu: 20, memory_mb: 64}
  left: {run: "placed_operators:same", threads: 1, cpu: 20, memory_mb: 64}
  right: {run: "placed_operators:twice", threads: 2, cpu: 20, memory_mb: 64}
  join: {run: "placed_operators:same", threads: 1, cpu: 20, memory_mb: 64}
  sink: {kind: sink, parquet: OUT}
streams:
  - {from: source, to: check}
  - {from: check, to: left}
  - {from: check, to: right, grouping: fields, key: value}
  - {from: left, to: join}
  - {from: right, to: join, selectivity: 2}
  - {from: join, to: sink}
"""
PATIENCE = 150.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(2, 2, folder=tmp_path_factory.mktemp("cluster"), memory_mb=768) as running:
        yield running


class Conductor:
    """A run that is conducted by a command, in a process of its own: one Python process can have only one Spark."""

    def __init__(self, cluster: RunningCluster, folder: Path, *words: str) -> None:
        environment = {
            **os.environ,
            "PENSTOCK_STATE": str(cluster.folder),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
        }
        self._messages = folder / f"{words[0]}.messages"
        with self._messages.open("wb") as messages:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words, "--json"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )

    @property
    def messages(self) -> str:
        return self._messages.read_text("utf-8", "replace")

    def result(self) -> dict[str, Any]:
        written, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, self.messages
        return dict(json.loads(written))

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def wait_for(what: str, is_so: Callable[[], bool], run: Conductor) -> None:
    waited = Stopwatch()
    while not is_so():
        assert run.process.poll() is None, f"ended while waiting for {what}: {run.messages}"
        assert waited.seconds() < PATIENCE, f"no {what} within {PATIENCE:g} s: {run.messages}"
        pause(0.1)


def committed(folder: Path) -> int:
    """The last epoch that was."""
    return max((int(file.stem) for file in (folder / "commits").glob("*.json")), default=0)


def generation(folder: Path) -> int:
    """That of the last epoch that was committed."""
    last = max((folder / "commits").glob("*.json"), key=lambda file: int(file.stem))
    return int(json.loads(last.read_text("utf-8"))["generation"])


def more_committed(folder: Path, run: Conductor, after: str) -> None:
    before = committed(folder)
    wait_for(f"epochs after {after}", lambda: committed(folder) > before + 1, run)


def go_on_with(folder: Path, plan_file: Path) -> None:
    """A change that finds no executors within its half minute is refused, and the run goes on as it was: on a machine
    that is busy it is asked for again."""
    for attempt in range(3):
        try:
            assert penstock.rescale(folder, plan=plan_file) > 0
            return
        except RunError as error:
            if attempt == 2 or "did not start within" not in str(error):
                raise


def executors(cluster: RunningCluster, node: str) -> list[psutil.Process]:
    worker = cluster.node(node).worker
    assert worker is not None
    found = []
    for process in psutil.Process(worker.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "--executor-id" in process.cmdline():
                found.append(process)
    return found


WORDS = ("--seconds", "600", "--warm-up", "1")


@pytest.fixture
def plans(cluster: RunningCluster, tmp_path: Path) -> list[Path]:
    """Two, which put the same bundles elsewhere."""
    pipeline, files = tmp_path / "eventful.yaml", [tmp_path / "first.json", tmp_path / "second.json"]
    pipeline.write_text(PIPELINE.replace("OUT", str(tmp_path / "out")), encoding="utf-8")
    for placer, file in zip(("r-storm", "round-robin"), files, strict=True):
        write_plan(plan(pipeline, 200, cluster=cluster.folder / "cluster.yaml", placer=placer), file)
    return files


def test_nothing_is_lost_whatever_dies(cluster: RunningCluster, tmp_path: Path, plans: list[Path]) -> None:
    folder = tmp_path / "run"
    run = Conductor(cluster, tmp_path, "run", str(plans[0]), "--placed", *WORDS, "--folder", str(folder))
    try:
        wait_for("the first epochs", lambda: committed(folder) > 2, run)

        executors(cluster, "n1")[0].kill()
        more_committed(folder, run, "the death of an executor")

        # another plan, without a drain; drained and resumed; then the plan on three slots
        go_on_with(folder, plans[1])
        more_committed(folder, run, "going on with another plan")
        live.pause(folder, keep_executors=True)
        assert penstock.resume(folder).seconds >= 0
        penstock.rescale(folder, 3)
        more_committed(folder, run, "going on with three slots after a drain")
    finally:
        run.kill()
    run = Conductor(cluster, tmp_path, "runs", "resume", str(folder), *WORDS)
    try:
        more_committed(folder, run, "the death of whoever conducted it")
        live.stop_run(folder)
        check(run.result(), tmp_path / "out")
    finally:
        run.kill()


@pytest.mark.long("a node that is gone, and one that comes back, are waited for")
def test_nothing_is_lost_when_nodes_and_the_master_die(
    cluster: RunningCluster, tmp_path: Path, plans: list[Path]
) -> None:
    folder = tmp_path / "run"
    master = cluster.master
    assert master is not None
    run = Conductor(cluster, tmp_path, "run", str(plans[1]), "--placed", *WORDS, "--folder", str(folder))
    try:
        wait_for("the first epochs", lambda: committed(folder) > 2, run)
        kill_worker("n2", cluster.folder)
        more_committed(folder, run, "the death of a node")
    finally:
        run.kill()

    # without n2, which comes back; then without a Master
    run = Conductor(cluster, tmp_path, "runs", "resume", str(folder), *WORDS)
    try:
        more_committed(folder, run, "the death of whoever conducted it")
        assert "nodes that are not there: n2" in run.messages
        start_worker("n2", cluster.folder)
        wait_for("a word about moving back", lambda: "moving back" in run.messages, run)
        before = generation(folder)
        wait_for("a generation after a node's return", lambda: generation(folder) > before, run)
        psutil.Process(master.pid).kill()
        wait_for("a word about the Master", lambda: "the Master does not answer" in run.messages, run)
        more_committed(folder, run, "the death of the Master")
        live.stop_run(folder)
        check(run.result(), tmp_path / "out")
    finally:
        run.kill()


def check(result: dict[str, Any], sink: Path) -> None:
    assert result["emitted"] > 1000
    assert (result["lost"], result["duplicated"]) == (0, 0)
    assert result["dead"] == result["emitted"] // 1000
    assert result["placement_obeyed"]
    assert {bundle["node"] for bundle in result["bundles"]} == {"n1", "n2"}
    check_colocation(result)
    check_sink(sink, result["emitted"])


def check_sink(folder: Path, emitted: int) -> None:
    """What the sink's own files hold: every tuple three times, on the left and twice on the right, but those that are
    not liked."""
    counts = Counter(ds.dataset(folder, format="parquet").to_table(["penstock_id"])["penstock_id"].to_pylist())
    assert counts == Counter({number: 3 for number in range(emitted) if number % 1000 != 999})


def check_colocation(result: dict[str, Any]) -> None:
    """Bundles planned on one slot ran in one process, others in others: as Spark and the processes say."""
    processes: dict[tuple[str, int], set[int]] = {}
    for bundle in result["bundles"]:
        processes.setdefault((bundle["node"], bundle["slot"]), set()).add(bundle["process"])
    assert all(len(found) == 1 for found in processes.values())
    assert len({process for found in processes.values() for process in found}) == len(processes)


def test_a_plan_for_other_nodes_is_refused(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(cluster.folder))
    file = tmp_path / "plan.json"
    write_plan(plan("linear", 100), file)
    assert run_command(["run", str(file), "--placed", "--seconds", "5", "--warm-up", "1"]) == 2
    errors = capsys.readouterr().err
    assert "of the cluster" in errors
    assert "plan for this cluster (penstock plan --cluster live)" in errors
