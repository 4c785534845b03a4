"""Several machines on one: a placed and a fused run between hosts with addresses of their own, a link cut meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.clock import Stopwatch, pause
from penstock.spark.clusters.local.lifecycle import RunningCluster, cluster_status, running_cluster
from penstock.spark.clusters.local.namespaces import DRIVER, NamespaceNetwork, why_not

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=f"no network namespaces here: {why_not()}"),
    pytest.mark.long("a cluster of its own between hosts, and a link that must be cut for seconds"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("hosts") / "cluster"
    with running_cluster(2, 1, folder=folder, memory_mb=768, namespaces=True) as state:
        yield state


def network_of(cluster: RunningCluster) -> NamespaceNetwork:
    assert cluster.network is not None
    return cluster.network


def on_driver(cluster: RunningCluster, *words: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("run_between_hosts.py")
    command = cluster.on_host(DRIVER, [sys.executable, str(script), str(cluster.folder), *words])
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> dict[str, object]:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-3000:]
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def test_hosts_have_addresses_of_their_own_and_the_master_is_seen_from_here(cluster: RunningCluster) -> None:
    assert cluster.master_url.startswith("spark://10.77.0.1:")
    assert cluster_status(cluster.folder).healthy


def test_a_placed_run_goes_on_behind_a_link_that_was_cut(cluster: RunningCluster) -> None:
    """n2 is cut off for longer than a process may be silent: what ran there is lost, and nothing else."""
    process = on_driver(cluster, "placed")
    flowing, watch = cluster.folder / "flowing", Stopwatch()
    while not flowing.exists() and process.poll() is None and watch.seconds() < 180:
        pause(0.2)
    network_of(cluster).cut("n2")
    pause(6.5)
    network_of(cluster).restore("n2")
    (cluster.folder / "restored").touch()
    found = said(process)
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["generations"] > 1  # type: ignore[operator] # a number
    assert found["hosts"] == ["10.77.0.3", "10.77.0.4"]
    assert found["rows"] == found["emitted"]


def test_a_fused_run_between_hosts(cluster: RunningCluster) -> None:
    found = said(on_driver(cluster, "fused"))
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["emitted"] > 0  # type: ignore[operator] # a number
