"""What another user of the same machine can see of a cluster and use of it: nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from other_user import as_another_user, needs_root, readable_below, remember_entries
from penstock.base.clock import Stopwatch, pause
from penstock.connectors.commit import Commit
from penstock.runs.folder import RunFolder
from penstock.spark.clusters.local.lifecycle import cluster_status, running_cluster
from penstock.spark.clusters.local.state import RunningCluster

PATIENCE_SECONDS = 90.0
OF_A_CLUSTER = pytest.mark.long("a cluster of its own, and two sessions that are not let in")

INTRUDER = """
import sys
from pathlib import Path
from penstock.spark.session.cluster import start_cluster_session
start_cluster_session(sys.argv[1], Path(sys.argv[2]), "intruder", {}, secret=sys.argv[3] or None)
"""


# A session of its own process: this one has the session that all tests share.
OWNER = """
import sys
from penstock.spark.session.cluster import cluster_session
with cluster_session(sys.argv[1], "owner", secret=sys.stdin.readline().strip()) as session:
    print(session.sparkContext.getConf().get("spark.authenticate.secret"), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """A folder everybody can look into: what is hidden there is hidden by itself."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cluster(public: Path) -> Iterator[RunningCluster]:
    with running_cluster(1, 1, folder=public / "cluster", memory_mb=768, patience=300) as state:
        yield state


def command_lines() -> str:
    return "\n".join(" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))


@needs_root
@OF_A_CLUSTER
def test_nothing_of_a_cluster_can_be_read(cluster: RunningCluster) -> None:
    secret = cluster.secret()
    assert secret is not None
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, cluster.master_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        print(secret, file=owner.stdin, flush=True)
        assert owner.stdout.readline().strip() == secret  # it is in use, so look for it
        assert remember_entries(cluster.folder) > 10
        lines = str(as_another_user(command_lines))
        assert as_another_user(lambda: readable_below(cluster.folder)) == []
        print(file=owner.stdin, flush=True)
    assert "org.apache.spark.deploy.master.Master" in lines  # they can be seen at all
    assert "pyspark-shell" in lines
    assert secret not in lines
    logs = "".join(path.read_text(errors="replace") for path in cluster.log_folder.iterdir())
    assert secret not in logs


@OF_A_CLUSTER
def test_the_output_of_executors_is_shown_to_nobody_without_the_token(cluster: RunningCluster) -> None:
    [worker] = json.loads(fetched(f"{cluster.web_url}/json/")[1])["workers"]
    pages = (
        "/",
        "/json/",
        "/logPage/?appId=a&executorId=0&logType=stderr",
        "/log/?appId=a&executorId=0&logType=stderr",
    )
    token = (cluster.conf_folder / "web-token").read_text().strip()
    assert str(cluster.secret()) not in token
    for page in (*pages, "/metrics/json/", "/static/webui.js", "/environment/"):
        assert fetched(worker["webuiaddress"] + page)[0] == HTTPStatus.FORBIDDEN, page
        assert fetched(worker["webuiaddress"] + page, f"{token[:-2]}xx")[0] == HTTPStatus.FORBIDDEN, page
    for page in pages:
        assert fetched(worker["webuiaddress"] + page, token)[0] == HTTPStatus.OK, page


def fetched(url: str, token: str = "") -> tuple[int, str]:
    """Status and text."""
    question = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    try:
        with urllib.request.urlopen(question, timeout=20) as answer:  # noqa: S310 - our own Worker
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, ""


@needs_root
def test_nothing_of_a_run_can_be_read(public: Path) -> None:
    run = RunFolder(public / "runs" / "mine")
    run.create()
    run.add_plan({"pipeline": "mine"}, [])
    run.checkpoint.create()
    run.checkpoint.write(Commit(run="mine", conductor=1, generation=0, epoch=1, plan="plan-000"))
    assert remember_entries(run.path) > 1
    assert as_another_user(lambda: readable_below(run.path)) == []
    assert as_another_user(lambda: os.access(run.path.parent, os.X_OK)) is False


@needs_root
def test_the_check_of_files_can_fail(public: Path) -> None:
    folder = public / "careless"
    folder.mkdir(mode=0o755)
    (folder / "file").write_text("seen")
    remember_entries(folder)
    assert as_another_user(lambda: readable_below(folder)) == [str(folder), str(folder / "file")]


@OF_A_CLUSTER
@pytest.mark.parametrize("secret", ["", "w" * 64], ids=["none", "a wrong one"])
def test_who_does_not_know_the_secret_gets_no_job(cluster: RunningCluster, tmp_path: Path, secret: str) -> None:
    log = tmp_path / "java.log"
    with subprocess.Popen(
        [sys.executable, "-c", INTRUDER, cluster.master_url, str(log), secret],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    ) as intruder:
        watch = Stopwatch()
        try:
            while "Failed to connect to master" not in (log.read_text(errors="replace") if log.exists() else ""):
                assert intruder.poll() is None
                assert watch.seconds() < PATIENCE_SECONDS
                pause(0.2)
            assert cluster_status(cluster.folder).applications == ()
        finally:
            for process in psutil.Process(intruder.pid).children(recursive=True):
                process.kill()
            intruder.kill()
