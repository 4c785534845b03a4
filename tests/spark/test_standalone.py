"""One real standalone cluster on this machine, from its start to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

import penstock
from penstock.base.errors import ClusterError
from penstock.base.processes import find, marked
from penstock.cli.main import run
from penstock.cluster.file import read_cluster
from penstock.cluster.slot_resources import resource_name
from penstock.cluster.topology import CPU, MEMORY, Cluster, Node
from penstock.spark.clusters.local.lifecycle import (
    cluster_status,
    cluster_up,
    kill_worker,
    running_cluster,
    start_worker,
)

PLACED = """
import json, os, sys
from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession
from penstock.cluster.slot_resources import resource_name

def where(batches):
    import pandas as pd
    from pyspark import TaskContext
    for _ in batches:
        held = TaskContext.get().resources()
        slots = [f"{name}/{one.addresses[0]}" for name, one in sorted(held.items())]
        yield pd.DataFrame({"folder": [os.getcwd()], "slot": [",".join(slots)]})

name = resource_name(sys.argv[1])
builder = SparkSession.builder.appName("placed")
for key, value in {
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
executor = ExecutorResourceRequests().cores(1).memory("512m").resource(name, 1).resource("slot", 1)
task = TaskResourceRequests().cpus(1).resource(name, 1).resource("slot", 1)
profile = ResourceProfileBuilder().require(executor).require(task).build
rows = session.range(0, 1, 1, 1).mapInPandas(where, "folder string, slot string", profile=profile).collect()
print(json.dumps([row.asDict() for row in rows]), flush=True)
sys.stdin.read()
session.stop()
"""


@pytest.mark.long("test_placed.py goes through all but names, addresses and messages")
def test_a_real_cluster_places_survives_a_death_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = "b.1 x"  # a name that cannot be a resource's name as it is
    capacity = MappingProxyType({CPU: 200.0, MEMORY: 2048.0})
    wanted = Cluster((Node("a", "r1", 2, capacity), Node(node, "r2", 2, capacity)))
    folder = tmp_path / "state"
    with running_cluster(cluster=wanted, folder=folder, patience=300) as state:
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
            [sys.executable, "-c", PLACED, node],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_CONF_DIR": str(state.conf_folder),
            },
        ) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            assert driver.stderr is not None
            line = driver.stdout.readline()
            assert line, driver.stderr.read()
            (row,) = json.loads(line)
            work = folder / "work" / resource_name(node)
            assert Path(row["folder"]).is_relative_to(work)
            on_node, any_slot = row["slot"].split(",")
            assert on_node in {f"{resource_name(node)}/0", f"{resource_name(node)}/1"}
            assert any_slot in {f"slot/{node}/0", f"slot/{node}/1"}

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
