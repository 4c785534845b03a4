"""A real Spark standalone cluster on one machine: a Master, and a Worker for every node.

Every Worker offers a custom resource named after its node, one address per slot. An executor that asks for one of
`resource_name("n2")` runs on n2 and nowhere else, and holds one of its slots.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, ClusterError
from penstock.base.processes import (
    LOOPBACK,
    end,
    find,
    free_port,
    kill,
    kill_marked,
    machine_memory_mb,
    marked,
    start,
    tree,
)
from penstock.base.state_folder import locked, state_folder
from penstock.cluster.cores import cores_here
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB, NodesEntry, build_cluster, read_cluster
from penstock.cluster.slot_resources import resource_name
from penstock.cluster.topology import MEMORY, Cluster
from penstock.spark.clusters.local.guard import guarded
from penstock.spark.clusters.local.namespaces import MASTER
from penstock.spark.clusters.local.state import (
    KEPT,
    ClusterNode,
    RunningCluster,
    forget,
    read_state,
    write_cluster_file,
    write_secret,
    write_session_settings,
    write_state,
)
from penstock.spark.clusters.standalone.daemons import LOWEST_SLOT_MB, master_command, own_environment, worker_command
from penstock.spark.clusters.standalone.master_page import ALIVE, DEAD, ListedApplication, MasterPage, fetch_page
from penstock.spark.session.java import find_java, spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.base.process_identity import ProcessIdentity


# Status of a cluster, from the Master's page, the processes and the state file together.


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """`state` is what the Master says (ALIVE, DEAD, ...), or UNKNOWN where it says nothing."""

    name: str
    rack: str
    slots: int
    used: int
    state: str
    pid: int | None
    process_alive: bool

    @property
    def alive(self) -> bool:
        return self.state == ALIVE and self.process_alive

    @property
    def free(self) -> int:
        """Slots an executor could still get: none on a node that is not alive."""
        return self.slots - self.used if self.alive else 0


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    master_url: str
    web_url: str
    master_alive: bool
    nodes: tuple[NodeStatus, ...]
    applications: tuple[ListedApplication, ...]
    authenticate: bool = True

    @property
    def dead(self) -> tuple[str, ...]:
        """Nodes that cannot be used, in declared order."""
        return tuple(node.name for node in self.nodes if not node.alive)

    @property
    def healthy(self) -> bool:
        return self.master_alive and not self.dead

    def document(self) -> dict[str, Any]:
        return {
            "master_url": self.master_url,
            "web_url": self.web_url,
            "master_alive": self.master_alive,
            "authenticate": self.authenticate,
            "nodes": [
                {
                    "name": node.name,
                    "rack": node.rack,
                    "slots": node.slots,
                    "used": node.used,
                    "free": node.free,
                    "state": node.state,
                    "pid": node.pid,
                    "process_alive": node.process_alive,
                }
                for node in self.nodes
            ],
            "dead": list(self.dead),
            "applications": [
                {"id": application.id, "name": application.name, "state": application.state}
                for application in self.applications
            ],
        }


def describe(state: RunningCluster, page: MasterPage | None, running: list[ProcessIdentity]) -> ClusterStatus:
    """Somebody else's Master may answer at the old address: then ours is gone."""
    if page is not None and page.url != state.master_url:
        page = None
    pids = {daemon.pid for daemon in running}
    nodes = []
    for node in state.nodes:
        seen = page.worker(node.name) if page is not None else None
        state_there = "UNKNOWN" if page is None else DEAD if seen is None else seen.state
        pid = node.worker.pid if node.worker is not None else None
        used = seen.used if seen is not None else 0
        nodes.append(NodeStatus(node.name, node.rack, node.slots, used, state_there, pid, pid in pids))
    return ClusterStatus(
        state.master_url,
        state.web_url,
        page is not None and state.master is not None and state.master.pid in pids,
        tuple(nodes),
        page.applications if page is not None else (),
        state.authenticate,
    )


# The cluster requested on this machine: that of a file, or a number of equal nodes.


MOST_NODES_HERE = 64
"""Every node is a Java process of about 200 MB."""


def requested_cluster(
    nodes: int | None,
    slots: int | None,
    memory_mb: float | None,
    racks: int | None,
    cluster: Cluster | str | Path | None,
) -> Cluster:
    """The cluster of a file, or `nodes` equal nodes n1, n2, ... spread over racks r1, r2, ... in blocks."""
    if cluster is not None:
        if (nodes, slots, memory_mb, racks) != (None, None, None, None):
            raise BadInputError("a cluster file says nodes, slots, memory and racks itself; give either")
        requested = cluster if isinstance(cluster, Cluster) else read_cluster(Path(cluster))
    else:
        requested = equal_nodes(nodes, slots, memory_mb, racks)
    if len(requested.nodes) > MOST_NODES_HERE:
        raise BadInputError(f"{len(requested.nodes)} nodes, expected at most {MOST_NODES_HERE}: each is a process here")
    for node in requested.nodes:
        slot_mb = node.capacity[MEMORY] / node.slots
        if slot_mb < LOWEST_SLOT_MB:
            raise BadInputError(
                f"node '{node.name}': {slot_mb:g} MB for a slot, expected at least {LOWEST_SLOT_MB}: "
                "an executor does not start with less"
            )
    return requested


def equal_nodes(nodes: int | None, slots: int | None, memory_mb: float | None, racks: int | None) -> Cluster:
    """Node i of N (from 0) stands in rack `floor(i R / N)` (from 0)."""
    if nodes is None or slots is None:
        raise BadInputError("expected nodes and slots, or a cluster file")
    racks = 1 if racks is None else racks
    memory_mb = DEFAULT_SLOT_MEMORY_MB if memory_mb is None else memory_mb
    if nodes < 1 or slots < 1 or not 0 < memory_mb < float("inf"):
        raise BadInputError("nodes, slots and memory: expected at least 1 of each")
    if not 1 <= racks <= nodes:
        raise BadInputError(f"racks: expected 1 to {nodes}, as many as nodes at most, found {racks}")
    entries = [
        NodesEntry(slots=slots, memory_mb=float(memory_mb * slots), rack=f"r{1 + number * racks // nodes}")
        for number in range(nodes)
    ]
    return build_cluster(entries, {}, "cluster")


__all__ = [
    "ClusterStatus",
    "NodeStatus",
    "RunningCluster",
    "add_node",
    "cluster_down",
    "cluster_status",
    "cluster_up",
    "kill_worker",
    "remove_node",
    "resource_name",
    "running_cluster",
    "shortfalls",
    "start_worker",
]

DEFAULT_PATIENCE_SECONDS = 120.0
MASTER_ATTEMPTS = 3
"""A free port may be taken between the moment it is found and the moment the Master binds it."""
POLL_SECONDS = 0.1

_LOG = logging.getLogger(__name__)


def cluster_up(
    nodes: int | None = None,
    slots: int | None = None,
    *,
    memory_mb: float | None = None,
    racks: int | None = None,
    cluster: Cluster | str | Path | None = None,
    folder: str | Path | None = None,
    authenticate: bool = True,
    namespaces: bool = False,
    patience: float = DEFAULT_PATIENCE_SECONDS,
) -> RunningCluster:
    """Start a Master and a Worker per node on this machine, and wait until all are registered.

    Everything binds to 127.0.0.1. Only sessions that know the cluster's secret are let in
    (`RunningCluster.secret_file`); without `authenticate` whoever reaches the Master runs code as you. What was started
    is ended again if anything fails. With `namespaces` Master, driver and every node are hosts of their own, in network
    namespaces of this machine (root only): runs are started on the driver's, by `RunningCluster.on_host`.
    """
    wanted = requested_cluster(nodes, slots, memory_mb, racks, cluster)
    home = state_folder(folder)
    spark_home()
    find_java()
    with locked(home):
        left = read_state(home)
        if left is not None:
            if any(find(daemon) for daemon in left.daemons):
                raise ClusterError(f"a cluster is running already ({left.master_url or home}); end it: {_down(home)}")
            _LOG.warning("ending what an earlier cluster of %s left behind", home)
            _end_all(left)
        shutil.rmtree(home / KEPT, ignore_errors=True)
        state = RunningCluster(
            id=secrets.token_hex(16),
            folder=home,
            authenticate=authenticate,
            namespaces=f"penstock-{secrets.token_hex(3)}" if namespaces else None,
            nodes=tuple(
                ClusterNode(
                    name=node.name, rack=node.rack, slots=node.slots, memory_mb=node.capacity[MEMORY] / node.slots
                )
                for node in wanted.nodes
            ),
        )
        if authenticate:
            write_secret(home, secrets.token_hex(32))
        try:
            # The id first: whatever happens to this process, `down` finds all that it started.
            write_state(state)
            write_cluster_file(state, wanted)
            watch = Stopwatch()
            if state.network is not None:
                state.network.create()
            state = _start_master(state, patience, watch)
            for node in state.nodes:
                state = _start_worker(state, node)
            _wait_for(state, [node.name for node in state.nodes], patience, watch)
        except BaseException:
            _end_all(read_state(home) or state)
            raise
        return state


def _start_master(state: RunningCluster, patience: float, watch: Stopwatch) -> RunningCluster:
    """The Master takes any port and tells it on its page.

    It must be ALIVE before the first Worker calls: one that is turned away tries again only 5 to 15 seconds later.
    """
    log = state.log_folder / "master.log"
    for attempt in range(1, MASTER_ATTEMPTS + 1):
        host = state.environment.host
        web_port = free_port(LOOPBACK)
        web_url = f"http://{host}:{web_port}"
        command = state.on_host(MASTER, master_command(state.environment, 0, web_port))
        daemon = start(command, own_environment(state.environment), log)
        state = state.model_copy(update={"master": daemon, "web_url": web_url})
        write_state(state)
        while find(daemon):
            page = page_of(state)
            if page is not None and page.status == ALIVE:
                state = state.model_copy(update={"master_url": page.url})
                write_state(state)
                write_session_settings(state)
                _LOG.info("Master %s, process %d", page.url, daemon.pid)
                return state
            if watch.seconds() > patience:
                raise ClusterError(f"the Master did not answer within {patience:g} s; see {log}")
            pause(POLL_SECONDS)
        if attempt == MASTER_ATTEMPTS:
            break
    raise ClusterError(f"the Master ended while it started: {_last_line(log)}; see {log}")


def _start_worker(state: RunningCluster, node: ClusterNode) -> RunningCluster:
    environment = state.environment_on(node.name)
    command = worker_command(environment, node.name, node.slots, node.memory_mb, state.master_url, node.rack)
    daemon = start(state.on_host(node.name, command), own_environment(environment), _worker_log(state, node.name))
    _LOG.info("Worker of '%s' with %d slots, process %d", node.name, node.slots, daemon.pid)
    state = state.with_worker(node.name, daemon)
    write_state(state)
    return state


def _wait_for(state: RunningCluster, names: list[str], patience: float, watch: Stopwatch) -> None:
    """Until the Workers of the nodes named are registered; the first that ends instead is an error."""
    while True:
        page = page_of(state)
        missing = [name for name in names if not _alive(page, name)]
        if not missing:
            return
        for name in missing:
            worker = state.node(name).worker
            if worker is None or find(worker) is None:
                log = _worker_log(state, name)
                raise ClusterError(f"the Worker of '{name}' ended while it started: {_last_line(log)}; see {log}")
        if watch.seconds() > patience:
            raise ClusterError(f"no Worker of {', '.join(missing)} within {patience:g} s; see {state.log_folder}")
        pause(POLL_SECONDS)


def _alive(page: MasterPage | None, name: str) -> bool:
    seen = page.worker(name) if page is not None else None
    return seen is not None and seen.state == ALIVE


def _worker_log(state: RunningCluster, node: str) -> Path:
    return state.log_folder / f"{resource_name(node)}.log"


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")


def _down(folder: Path) -> str:
    return "penstock cluster down" if folder == state_folder(None) else f"penstock cluster down --folder {folder}"


def shortfalls(state: RunningCluster) -> list[str]:
    """Where the nodes promise more than this one machine has: plans for them will be too hopeful."""
    return shortfalls_on(state, cores_here(), machine_memory_mb())


def shortfalls_on(state: RunningCluster, cores: int, memory_mb: float) -> list[str]:
    notes = []
    if state.slots > cores:
        notes.append(f"{state.slots} slots share {cores} cores: a plan takes a slot for a whole core")
    promised = sum(node.slots * node.memory_mb for node in state.nodes)
    if promised > memory_mb:
        notes.append(f"the slots promise {promised:,.0f} MB, this machine has {memory_mb:,.0f}")
    return notes


def find_cluster(folder: str | Path | None = None) -> RunningCluster:
    """The cluster of a folder, as its file says."""
    home = state_folder(folder)
    state = read_state(home)
    if state is None:
        raise ClusterError(f"no cluster runs in {home}; start one: penstock cluster up --nodes 2 --slots 2")
    if not state.master_url:
        raise ClusterError(f"the cluster of {home} did not come up; end what is left of it: {_down(home)}")
    return state


def page_of(state: RunningCluster) -> MasterPage | None:
    """The Master's page, as its hosts see it: nobody else reaches it where the cluster has a network of its own."""
    network = state.network
    if network is None:
        return fetch_page(state.web_url)
    return network.seen_from(MASTER, lambda: fetch_page(state.web_url))


def cluster_status(folder: str | Path | None = None) -> ClusterStatus:
    """What the Master and the machine say about the cluster of a folder."""
    state = find_cluster(folder)
    return describe(state, page_of(state), [daemon for daemon in state.daemons if find(daemon)])


def cluster_down(folder: str | Path | None = None) -> bool:
    """End every process of the cluster of a folder and forget it; False if there was none."""
    home = state_folder(folder)
    if not home.is_dir():
        return False
    with locked(home):
        state = read_state(home)
        if state is None:
            return False
        _end_all(state)
    return True


def _end_all(state: RunningCluster) -> None:
    """Workers and all below them first, then the Master: it must not replace executors of a dying Worker."""
    _LOG.info("ending the cluster of %s", state.folder)
    master = state.master
    workers = [daemon for daemon in state.daemons if daemon != master]
    end(process for daemon in workers for process in tree(daemon))
    # Executors of a Worker that died before, and whatever was being started meanwhile.
    end(process for process in marked(state.id) if master is None or process.pid != master.pid)
    if master is not None:
        end(tree(master))
    kill_marked(state.id)
    if state.network is not None:
        state.network.delete()
    forget(state.folder)


@contextmanager
def running_cluster(
    nodes: int | None = None,
    slots: int | None = None,
    *,
    folder: str | Path,
    memory_mb: float | None = None,
    racks: int | None = None,
    cluster: Cluster | str | Path | None = None,
    authenticate: bool = True,
    namespaces: bool = False,
    patience: float = DEFAULT_PATIENCE_SECONDS,
) -> Iterator[RunningCluster]:
    """A cluster that ends with the block, or with the process."""
    afterwards = f"from {__name__} import cluster_down; cluster_down({str(folder)!r})"
    with guarded([sys.executable, "-P", "-c", afterwards]):
        state = cluster_up(
            nodes,
            slots,
            memory_mb=memory_mb,
            racks=racks,
            cluster=cluster,
            folder=folder,
            authenticate=authenticate,
            namespaces=namespaces,
            patience=patience,
        )
        try:
            yield state
        finally:
            cluster_down(folder)


def kill_worker(node: str, folder: str | Path | None = None) -> None:
    """As if the machine lost its power: the Worker of a node, its executors and their Python workers, at once."""
    worker = find_cluster(folder).node(node).worker
    processes = tree(worker) if worker is not None else []
    if not processes:
        raise ClusterError(f"the Worker of '{node}' does not run")
    _LOG.info("killing the Worker of '%s' and the %d processes below it", node, len(processes) - 1)
    kill(processes)


def start_worker(
    node: str, folder: str | Path | None = None, patience: float = DEFAULT_PATIENCE_SECONDS
) -> RunningCluster:
    """Start the Worker of a node that has none, and wait until it is registered."""
    with locked(state_folder(folder)):
        state = find_cluster(folder)
        wanted = state.node(node)
        if wanted.worker is not None and find(wanted.worker):
            raise ClusterError(f"the Worker of '{node}' runs already")
        state = _start_worker(state, wanted)
        _wait_for(state, [node], patience, Stopwatch())
    return state


def add_node(folder: str | Path | None = None) -> ClusterNode:
    """One more node, like the last one; its Worker registers by and by."""
    with locked(state_folder(folder)):
        state = find_cluster(folder)
        taken = {node.name for node in state.nodes}
        name = next(name for name in (f"n{number}" for number in range(1, 10**6)) if name not in taken)
        added = state.nodes[-1].model_copy(update={"name": name, "worker": None})
        state = state.model_copy(update={"nodes": (*state.nodes, added)})
        if state.network is not None:
            state.network.add(name)
        # planning for the cluster, or moving a run on it, reads its nodes from the file
        known = read_cluster(state.cluster_file)
        write_cluster_file(state, replace(known, nodes=(*known.nodes, replace(known.nodes[-1], name=name))))
        _start_worker(state, added)
    return added


def remove_node(node: str, folder: str | Path | None = None) -> None:
    """End the Worker of a node, and all below it; the cluster has the node no longer."""
    with locked(state_folder(folder)):
        state = find_cluster(folder)
        worker = state.node(node).worker
        if worker is not None:
            end(tree(worker))
        known = read_cluster(state.cluster_file)
        kept = (place for place, there in enumerate(known.nodes) if there.name != node)
        write_cluster_file(state, known.only(kept))
        write_state(state.model_copy(update={"nodes": tuple(kept for kept in state.nodes if kept.name != node)}))
