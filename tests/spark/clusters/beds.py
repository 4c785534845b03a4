"""Clusters to try the contract with: simulated, the one of this machine, and the same by its Master's address only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.base.clock import Stopwatch, pause
from penstock.cluster.contract import AppRequest, ClusterManager, SlotRequest, open_cluster
from penstock.cluster.file import parse_cluster
from penstock.cluster.simulated import SimulatedCluster
from penstock.spark.clusters.local.lifecycle import kill_worker, start_worker
from penstock.spark.clusters.local.state import RunningCluster

NODES = {
    "nodes": [
        {"name": "n1", "slots": 2, "rack": "left", "memory_mb": 1536},
        {"name": "n2", "slots": 1, "rack": "right", "memory_mb": 768},
    ]
}
"""Two nodes in two racks: three slots of 768 MB."""
OTHER = """
import sys
from pathlib import Path
from penstock.cluster.contract import AppRequest, SlotRequest
from penstock.cluster.contract import open_cluster
master, secret, web, node, number = sys.argv[1:]
cluster = open_cluster(master, secret_file=Path(secret), web_url=web)
with cluster.session(AppRequest("other", pinned=True, memory_mb=512)) as app:
    cluster.acquire(app.id, [SlotRequest(node, int(number))]).result()
    print("held", flush=True)
    sys.stdin.read()
"""
PATIENCE = 40.0


def until(is_so: Callable[[], object]) -> None:
    """Wait for what a manager learns with its next heartbeat."""
    watch = Stopwatch()
    while not is_so():
        assert watch.seconds() < PATIENCE, "it did not come about"
        pause(0.1)


@dataclass
class Bed:
    """`cluster` and the hand that hurts it."""

    cluster: ClusterManager
    kill: Callable[[str], None]
    restore: Callable[[str], None]
    other: Callable[[str, int], AbstractContextManager[None]]
    """A context in which another application holds a slot."""
    has_provider: bool = True
    enough: float = 10.0
    """Seconds in which an executor comes."""


def simulated() -> Bed:
    cluster = SimulatedCluster(parse_cluster(NODES, "nodes"))

    @contextmanager
    def other(node: str, number: int) -> Iterator[None]:
        with cluster.session(AppRequest("other", pinned=True, memory_mb=512)) as app:
            cluster.acquire(app.id, [SlotRequest(node, number)]).result()
            yield

    return Bed(cluster, cluster.lose_node, cluster.restore_node, other, enough=0.5)


def real(state: RunningCluster, *, by_address: bool) -> Bed:
    """By its folder, or by nothing but the address of its Master and its page, and the secret."""
    secret = state.secret_file
    assert secret is not None
    elsewhere = state.folder.parent / "elsewhere"

    def opened() -> ClusterManager:
        if by_address:
            return open_cluster(state.master_url, secret_file=secret, folder=elsewhere, web_url=state.web_url)
        return open_cluster(folder=state.folder)

    @contextmanager
    def other(node: str, number: int) -> Iterator[None]:
        words = [state.master_url, str(secret), state.web_url, node, str(number)]
        process = subprocess.Popen(
            [sys.executable, "-c", OTHER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.communicate("")

    return Bed(
        opened(),
        lambda node: kill_worker(node, state.folder),
        lambda node: (start_worker(node, state.folder), None)[1],
        other,
        has_provider=not by_address,
    )


def written(folder: Path) -> Path:
    """A cluster file with the nodes."""

    file = folder / "nodes.json"
    file.write_text(json.dumps(NODES), encoding="utf-8")
    return file
