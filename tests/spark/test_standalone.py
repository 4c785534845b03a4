"""A standalone cluster on this machine: names, files, what the Master's page says, and one real cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli.main import run
from penstock.cluster.catalogue import Acquisition, find_catalogue, rent
from penstock.cluster.file import cluster_document, parse_cluster, read_cluster
from penstock.cluster.resources import CPU, MEMORY
from penstock.cluster.topology import Cluster, Node
from penstock.errors import BadInputError, ClusterError
from penstock.spark import daemons, standalone
from penstock.spark.cluster_state import (
    ClusterNode,
    Process,
    RunningCluster,
    locked,
    read_state,
    state_folder,
    write_secret,
    write_state,
)
from penstock.spark.daemons import (
    Settled,
    offered_resources,
    properties_text,
    resource_name,
    worker_command,
    worker_cores,
    worker_memory_mb,
)
from penstock.spark.foreground import is_loopback, master_host, read_secret, run_master, run_worker
from penstock.spark.master_page import parse_page
from penstock.spark.processes import MARK, Daemon, end, find, marked, start, tree
from penstock.spark.standalone import (
    cluster_down,
    cluster_status,
    cluster_up,
    describe,
    kill_worker,
    requested_cluster,
    running_cluster,
    shortfalls_on,
    start_worker,
)

# --- names


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("n1", "node-n1"),
        ("big-2", "node-big-2"),
        ("b.1", "node-b_2e1"),  # a dot would end the name in a setting's key
        ("a_b", "node-a_5fb"),  # the escape character itself
        ("memory", "node-memory"),  # a word of Spark's own
        ("né", "node-n_c3_a9"),  # UTF-8: c3 a9
        ("a b=c", "node-a_20b_3dc"),
    ],
)
def test_nodes_become_names_of_resources(node: str, name: str) -> None:
    assert resource_name(node) == name


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab_-.5fé ", min_size=1), min_size=2, max_size=2, unique=True))
def test_different_nodes_get_different_names(nodes: list[str]) -> None:
    assert resource_name(nodes[0]) != resource_name(nodes[1])


# --- the cluster asked for


@pytest.mark.parametrize(
    ("nodes", "racks", "expected"),
    [
        # rack of node i (from 0) is floor(i R / N): 0 0 0; 0 0 1 (0, 2/3, 4/3); 0 0 1 1 2 (0, 3/5, 6/5, 9/5, 12/5)
        (3, None, ["r1", "r1", "r1"]),
        (3, 2, ["r1", "r1", "r2"]),
        (5, 3, ["r1", "r1", "r2", "r2", "r3"]),
        (2, 2, ["r1", "r2"]),
    ],
)
def test_nodes_are_spread_over_racks_in_blocks(nodes: int, racks: int | None, expected: list[str]) -> None:
    found = requested_cluster(nodes, 2, None, racks, None)
    assert [node.rack for node in found.nodes] == expected
    assert [node.name for node in found.nodes] == [f"n{number}" for number in range(1, nodes + 1)]


def test_equal_nodes_have_the_names_and_memory_of_a_plan() -> None:
    found = requested_cluster(2, 4, None, None, None)
    rented = rent(16, find_catalogue("azure-d"), Acquisition.COVER)  # 8 + 8 slots
    assert [node.name for node in found.nodes] == [node.name for node in rented.nodes]
    assert found.nodes[0].capacity[MEMORY] == 4 * 3584
    assert requested_cluster(1, 3, 1000, None, None).nodes[0].capacity == {CPU: 300, MEMORY: 3000}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((None, None, None, None, None), "expected nodes and slots, or a cluster file"),
        ((2, None, None, None, None), "expected nodes and slots"),
        ((2, 2, None, 3, None), "racks: expected 1 to 2"),
        ((2, 2, 511, None, None), "node 'n1': 511 MB for a slot, expected at least 512"),
        ((2, 0, None, None, None), "expected at least 1 of each"),
        ((65, 1, None, None, None), "65 nodes, expected at most 64"),
        ((2, None, None, None, Cluster(())), "give either"),
    ],
)
def test_clusters_that_cannot_be(given_: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        requested_cluster(*given_)


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "cluster",
    [
        requested_cluster(3, 2, 700.5, 2, None),
        read_cluster(EXAMPLES / "cluster.yaml"),
        parse_cluster(
            {
                "nodes": [
                    {"slots": 4, "size": "D3", "price": 0.25, "cpu": 150},
                    {"name": "yes", "slots": 1, "rack": "2", "resources": {"gpu": 2}},
                ],
                "dimensions": {"gpu": {"weight": 0.5}, "cpu": {"hard": True}},
            },
            "here",
        ),
    ],
)
def test_the_file_written_is_read_as_the_same_cluster(cluster: Cluster) -> None:
    text = yaml.safe_dump(cluster_document(cluster), sort_keys=False)
    assert parse_cluster(yaml.safe_load(text), "there") == cluster


# --- what the processes are told


def test_a_worker_offers_an_address_for_every_slot() -> None:
    assert offered_resources("b.1", 3) == [
        {"id": {"componentName": "spark.worker", "resourceName": "node-b_2e1"}, "addresses": ["0", "1", "2"]}
    ]


def test_slots_limit_a_worker_not_cores_or_memory() -> None:
    assert (worker_cores(2), worker_cores(10)) == (64, 160)
    # 2 slots of 700.5 MB are 1401 MB, 3 are 2101.5; 1024 for Spark's default executor.
    assert (worker_memory_mb(2, 700.5), worker_memory_mb(3, 700.5)) == (2425, 3126)


def test_backslashes_survive_a_properties_file() -> None:
    assert properties_text({"a": "b\\c", "d": "e"}) == "a=b\\\\c\nd=e\n"


def test_a_worker_is_told_its_node_and_the_secret_stays_out_of_files(tmp_path: Path) -> None:
    settled = Settled("mark", tmp_path, secret="hush" * 8)
    command = worker_command(settled, "b.1", 2, 1024, "spark://h:1")
    assert command[1:4] == ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
    assert command[-1] == "spark://h:1"
    text = (tmp_path / "conf" / "node-b_2e1.properties").read_text()
    assert "spark.worker.resource.node-b_2e1.amount=2\n" in text
    assert "spark.authenticate=true\n" in text
    assert "hush" not in text + " ".join(command)


def test_what_the_environment_says_about_other_sparks_is_left_out(tmp_path: Path) -> None:
    given_ = {"SPARK_WORKER_CORES": "1", "SPARK_CONF_DIR": "/x", "SPARK_LOCAL_DIRS": "/fast", "HOME": "/h"}
    made = daemons.environment(Settled("m", tmp_path), given_)
    assert "SPARK_WORKER_CORES" not in made
    assert made["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert (made["SPARK_LOCAL_DIRS"], made["HOME"], made[MARK]) == ("/fast", "/h", "m")
    assert made["SPARK_LOCAL_IP"] == "127.0.0.1"


# --- what the Master's page says


def worker_on_page(node: str, state: str, heartbeat: int, used: list[str]) -> dict[str, Any]:
    name = resource_name(node)
    return {
        "state": state,
        "lastheartbeat": heartbeat,
        "resources": {name: {"name": name, "addresses": ["0", "1"]}},
        "resourcesused": {name: {"name": name, "addresses": used}},
    }


def page_of(*workers: dict[str, Any], url: str = "spark://127.0.0.1:1") -> str:
    applications = [{"id": "app-1", "name": "mine", "state": "RUNNING", "cores": 3}]
    return json.dumps({"url": url, "status": "ALIVE", "workers": workers, "activeapps": applications})


def a_state(folder: Path) -> RunningCluster:
    nodes = [
        ClusterNode(name=name, rack="r1", slots=2, memory_mb=1024, worker=Process(pid=pid, started=5))
        for name, pid in (("n1", 11), ("n2", 12), ("n3", 13))
    ]
    return RunningCluster(
        id="x",
        folder=folder,
        master_url="spark://127.0.0.1:1",
        web_url="http://127.0.0.1:2",
        master=Process(pid=10, started=5),
        nodes=tuple(nodes),
    )


RUNNING = [Daemon(pid, 5) for pid in (10, 11, 12, 13)]


def test_a_status_joins_the_page_and_the_processes(tmp_path: Path) -> None:
    page = parse_page(
        page_of(
            worker_on_page("n1", "DEAD", 9, ["0", "1"]),  # died before; the next one is its successor
            worker_on_page("n1", "ALIVE", 7, ["1"]),
            worker_on_page("n2", "DEAD", 7, ["0"]),
        )
    )
    found = describe(a_state(tmp_path), page, RUNNING)
    assert [(node.name, node.state, node.used, node.free) for node in found.nodes] == [
        ("n1", "ALIVE", 1, 1),
        ("n2", "DEAD", 0, 0),
        ("n3", "DEAD", 0, 0),
    ]
    assert found.dead == ("n2", "n3")
    assert found.master_alive
    assert not found.healthy
    assert found.document()["applications"] == [{"id": "app-1", "name": "mine", "state": "RUNNING"}]


def test_a_worker_whose_process_is_gone_is_dead_before_the_master_notices(tmp_path: Path) -> None:
    page = parse_page(page_of(*(worker_on_page(name, "ALIVE", 1, []) for name in ("n1", "n2", "n3"))))
    assert describe(a_state(tmp_path), page, RUNNING).healthy
    assert describe(a_state(tmp_path), page, RUNNING[:-1]).dead == ("n3",)


@pytest.mark.parametrize("page", [None, parse_page(page_of(url="spark://127.0.0.1:999"))])
def test_no_master_or_somebody_elses_is_a_dead_one(tmp_path: Path, page: Any) -> None:
    found = describe(a_state(tmp_path), page, RUNNING)
    assert not found.master_alive
    assert {node.state for node in found.nodes} == {"UNKNOWN"}


def test_promises_beyond_the_machine_are_noted(tmp_path: Path) -> None:
    # 3 nodes of 2 slots of 1024 MB: 6 slots, 6144 MB.
    assert shortfalls_on(a_state(tmp_path), 6, 6144) == []
    assert len(shortfalls_on(a_state(tmp_path), 5, 6143)) == 2


# --- state


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    write_state(state)
    assert read_state(tmp_path) == state
    assert [daemon.pid for daemon in state.daemons] == [11, 12, 13, 10]
    with pytest.raises(BadInputError, match="unknown node 'n9'"):
        state.node("n9")


def test_sessions_get_the_secret_and_nobody_else(tmp_path: Path) -> None:
    write_secret(tmp_path, "s" * 64)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    state = a_state(tmp_path).model_copy(update={"authenticate": True})
    assert state.session_settings()["spark.authenticate.secret"] == "s" * 64
    assert "ssss" not in state.model_dump_json()
    assert a_state(tmp_path).session_settings() == {"spark.master": "spark://127.0.0.1:1"}


def test_the_folder_is_the_one_given_or_told_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_STATE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert state_folder(None) == tmp_path / "penstock" / "cluster"
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "told"))
    assert state_folder(None) == tmp_path / "told"
    assert state_folder(tmp_path / "given") == tmp_path / "given"


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ClusterError, match="another command"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


# --- processes


def sleeper(mark: str, script: str = "sleep 60 & sleep 60; true") -> Daemon:
    return start(["/bin/sh", "-c", script], {**os.environ, MARK: mark}, None)


def test_a_recycled_number_is_not_the_process() -> None:
    own = psutil.Process()
    assert find(Daemon(own.pid, own.create_time())) == own
    assert find(Daemon(own.pid, own.create_time() - 60)) is None


def test_ending_a_tree_leaves_nothing(tmp_path: Path) -> None:
    daemon = sleeper(str(tmp_path))
    while daemon.pid not in [process.pid for process in marked(str(tmp_path))]:
        assert find(daemon)  # its environment shows a moment after it started
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


def test_down_ends_what_an_up_that_was_killed_had_started(tmp_path: Path) -> None:
    state = RunningCluster(
        id=f"left in {tmp_path}".replace("/", "-"), folder=tmp_path, nodes=a_state(tmp_path).nodes[:0]
    )
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
        assert find(state.master.daemon)
        started.append(state)
        raise KeyboardInterrupt

    monkeypatch.setattr(standalone, "fetch_page", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cluster_up(2, 1, folder=folder)
    assert started[0].master is not None
    assert find(started[0].master.daemon) is None
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


# --- the command


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("up", 2, "expected nodes and slots, or a cluster file"),
        ("up --nodes 2 --slots 2 --cluster missing.yaml", 2, "give either"),
        ("up --cluster missing.yaml", 2, "missing.yaml: cannot be read"),
        ("up --nodes 0 --slots 2", 2, "--nodes"),
        ("status", 1, "no cluster runs in"),
        ("worker --master nonsense --node n1 --slots 1", 2, "expected spark://host:port"),
        ("worker --master spark://10.0.0.1:7077 --node n1 --slots 1", 2, "say by --host"),
        ("worker --master spark://localhost:7077 --node n1 --slots 1 --memory 10", 2, "at least 512 MB"),
        ("master --secret-file missing", 2, "missing: cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    words: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "none"))
    assert run(["cluster", *words.split()]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_ending_no_cluster_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "down", "--folder", str(tmp_path / "none")]) == 0
    assert "nothing to end" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_a_master_url_names_a_host() -> None:
    assert master_host("spark://machine-1.lan:7077") == "machine-1.lan"


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("short\n")
    with pytest.raises(BadInputError, match="at least 16 characters"):
        read_secret(file)
    file.write_text("long enough to do\n")
    assert read_secret(file) == "long enough to do"


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


# --- one real cluster

PLACED = """
import json, os, sys
from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession
from penstock.spark.cluster_state import read_state
from penstock.spark.standalone import resource_name
from pathlib import Path

def where(batches):
    import pandas as pd
    from pyspark import TaskContext
    for _ in batches:
        held = TaskContext.get().resources()
        slots = [f"{name}/{one.addresses[0]}" for name, one in held.items()]
        yield pd.DataFrame({"folder": [os.getcwd()], "slot": [",".join(slots)]})

name = resource_name(sys.argv[2])
builder = SparkSession.builder.appName("placed")
for key, value in {
    **read_state(Path(sys.argv[1])).session_settings(),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.maxExecutors": "1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")
executor = ExecutorResourceRequests().cores(1).memory("512m").resource(name, 1)
profile = ResourceProfileBuilder().require(executor).require(TaskResourceRequests().cpus(1).resource(name, 1)).build
rows = session.range(0, 1, 1, 1).mapInPandas(where, "folder string, slot string", profile=profile).collect()
print(json.dumps([row.asDict() for row in rows]), flush=True)
sys.stdin.read()
session.stop()
"""


def test_a_real_cluster_places_survives_a_death_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = "b.1 x"  # a name that cannot be a resource's name as it is
    capacity = MappingProxyType({CPU: 200.0, MEMORY: 2048.0})
    wanted = Cluster((Node("a", "r1", 2, capacity), Node(node, "r2", 2, capacity)))
    folder = tmp_path / "state"
    with running_cluster(cluster=wanted, folder=folder, authenticate=True, patience=300) as state:
        assert read_cluster(state.cluster_file) == wanted
        assert penstock.plan("linear", 10, cluster=state.cluster_file).cluster == wanted
        for daemon in state.daemons:
            process = find(daemon)
            assert process is not None
            listening = [one.laddr.ip for one in process.net_connections() if one.status == psutil.CONN_LISTEN]
            assert listening
            assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        with pytest.raises(ClusterError, match="running already"):
            cluster_up(1, 1, folder=folder)
        with pytest.raises(ClusterError, match="runs already"):
            start_worker("a", folder)

        with subprocess.Popen(
            [sys.executable, "-c", PLACED, str(folder), node],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
        ) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            assert driver.stderr is not None
            line = driver.stdout.readline()
            assert line, driver.stderr.read()
            (row,) = json.loads(line)
            work = folder / "work" / resource_name(node)
            assert Path(row["folder"]).is_relative_to(work)
            held, address = row["slot"].split("/")
            assert held == resource_name(node)
            assert address in {"0", "1"}

            busy = cluster_status(folder)
            assert busy.healthy
            assert [(one.name, one.used, one.free) for one in busy.nodes] == [("a", 0, 2), (node, 1, 1)]
            assert [one.name for one in busy.applications] == ["placed"]

            kill_worker(node, folder)
            assert [one for one in marked(state.id) if one.cwd().startswith(str(work))] == []
            capsys.readouterr()
            assert run(["cluster", "status", "--json", "--folder", str(folder)]) == 1
            told = capsys.readouterr()
            assert json.loads(told.out)["dead"] == [node]
            assert told.err == f"error: node {node} is dead\n"
            with pytest.raises(ClusterError, match="does not run"):
                kill_worker(node, folder)
            driver.stdin.close()
            driver.wait(timeout=300)

        start_worker(node, folder, patience=300)
        assert cluster_status(folder).healthy
        assert run(["cluster", "status", "--folder", str(folder)]) == 0
    assert marked(state.id) == []
    assert [find(daemon) for daemon in state.daemons] == [None, None, None]
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "logs"]
