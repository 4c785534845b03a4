"""Processes that start, end and are ended; a shell script stands in for Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.process_identity import ProcessIdentity, own_identity
from penstock.base.processes import MARK, end, find, marked, start, tree
from penstock.spark.clusters.local import lifecycle as standalone
from penstock.spark.clusters.local.foreground import run_master, run_worker
from penstock.spark.clusters.local.lifecycle import cluster_down, cluster_status, cluster_up
from penstock.spark.clusters.local.state import RunningCluster, read_state, write_state
from penstock.spark.clusters.standalone import daemons


def sleeper(mark: str, script: str = "sleep 60 & sleep 60; true") -> ProcessIdentity:
    daemon = start(["/bin/sh", "-c", script], {**os.environ, MARK: mark}, None)
    while daemon.pid not in [process.pid for process in marked(mark)]:
        assert find(daemon)  # its environment shows a moment after it started
    return daemon


def test_a_recycled_number_is_not_the_process() -> None:
    own = psutil.Process()
    assert find(own_identity()) == own
    assert find(ProcessIdentity(pid=own.pid, started=own.create_time() - 60)) is None


def test_ending_a_tree_leaves_nothing(tmp_path: Path) -> None:
    daemon = sleeper(str(tmp_path))
    assert os.getsid(daemon.pid) == daemon.pid, "Ctrl-C in a terminal must not reach it"
    end(tree(daemon))
    assert find(daemon) is None
    end(marked(str(tmp_path)))
    assert marked(str(tmp_path)) == []


def test_a_process_that_will_not_end_is_made_to(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    daemon = sleeper(str(tmp_path), f"trap '' TERM; touch {ready}; while true; do sleep 0.1; done")
    while not ready.exists():
        assert find(daemon)
    end(tree(daemon), patience=0.3)
    assert find(daemon) is None
    end(marked(str(tmp_path)))


def test_what_is_guarded_is_ended_by_another_process_only_where_ours_was_killed(tmp_path: Path) -> None:
    done = tmp_path / "done"
    inside = "print('inside', flush=True); sys.stdin.read()"
    imports = "import sys\nfrom penstock.spark.clusters.local.guard import guarded"
    script = f"{imports}\nwith guarded(['touch', {str(done)!r}]): {inside}"
    for killed in (False, True):
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ours:
            assert ours.stdout is not None
            assert ours.stdout.readline() == b"inside\n"
            guard = psutil.Process(ours.pid).children()[0]
            if killed:
                ours.kill()
        guard.wait(30)
        assert done.exists() is killed


def test_down_ends_what_an_up_that_was_killed_had_started(tmp_path: Path) -> None:
    state = RunningCluster(id=f"left in {tmp_path}".replace("/", "-"), folder=tmp_path, nodes=())
    write_state(state)
    daemon = sleeper(state.id)
    with pytest.raises(ClusterError, match="did not come up"):
        cluster_status(tmp_path)
    assert cluster_down(tmp_path)
    assert find(daemon) is None
    assert read_state(tmp_path) is None
    assert not cluster_down(tmp_path)


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Instead of Spark's launcher, a shell script."""

    def install(script: str) -> Path:
        launcher = tmp_path / "spark-class"
        launcher.write_text(f"#!/bin/sh\n{script}\n")
        launcher.chmod(0o700)
        monkeypatch.setattr(daemons, "_launcher", lambda: [str(launcher)])
        return tmp_path / "state"

    return install


def test_a_master_that_ends_is_an_error_with_its_last_words(fake_spark: Callable[[str], Path]) -> None:
    folder = fake_spark("echo no such luck >&2; exit 3")
    with pytest.raises(ClusterError, match=r"the Master ended while it started: no such luck; see .*master\.log"):
        cluster_up(1, 1, folder=folder)
    assert read_state(folder) is None


def test_a_master_that_is_silent_is_given_up(fake_spark: Callable[[str], Path]) -> None:
    folder = fake_spark("exec sleep 60")
    with pytest.raises(ClusterError, match=r"did not answer within 0\.2 s"):
        cluster_up(1, 1, folder=folder, patience=0.2)
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "logs"]


def test_an_interrupted_start_ends_what_it_started(
    fake_spark: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_spark("exec sleep 60")
    started: list[RunningCluster] = []

    def interrupted(_: str) -> None:
        state = read_state(folder)
        assert state is not None
        assert state.master is not None
        assert find(state.master)
        started.append(state)
        raise KeyboardInterrupt

    monkeypatch.setattr(standalone, "fetch_page", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cluster_up(2, 1, folder=folder)
    assert started[0].master is not None
    assert find(started[0].master) is None
    assert marked(started[0].id) == []
    assert read_state(folder) is None


def test_without_java_or_spark_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        patch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(BadInputError, match="no Java found"):
            cluster_up(1, 1, folder=tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BadInputError, match=r"needs pyspark; install it with: pip install 'penstock\[spark\]'"):
        cluster_up(1, 1, folder=tmp_path)


def test_a_worker_in_the_foreground_that_ends_is_an_error(fake_spark: Callable[[str], Path]) -> None:
    fake_spark("exit 3")
    with pytest.raises(ClusterError, match="the Worker of 'n1' ended by itself with exit code 3"):
        run_worker("spark://127.0.0.1:7077", "n1", 1, None, "127.0.0.1", None)


def test_a_master_in_the_foreground_ends_with_the_command(fake_spark: Callable[[str], Path], tmp_path: Path) -> None:
    fake_spark(f"sleep 60 & echo $$ $! $SPARK_CONF_DIR > {tmp_path}/told; kill -TERM $PPID; wait")
    with pytest.raises(KeyboardInterrupt):
        run_master("127.0.0.1", 7077, 8080, None)
    shell, child, folder = (tmp_path / "told").read_text().split()
    assert not psutil.pid_exists(int(shell))
    assert not psutil.pid_exists(int(child)) or psutil.Process(int(child)).status() == psutil.STATUS_ZOMBIE
    assert not Path(folder).exists()
