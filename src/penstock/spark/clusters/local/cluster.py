"""The standalone cluster that `penstock cluster up` has started on this machine, as a cluster manager."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, ClusterError
from penstock.base.processes import find
from penstock.base.state_folder import state_folder
from penstock.cluster.contract import OWN, NodeRequest, NodeState
from penstock.cluster.file import read_cluster
from penstock.cluster.topology import CPU, MEMORY
from penstock.spark.clusters.local.lifecycle import add_node, find_cluster, page_of, remove_node
from penstock.spark.clusters.local.namespaces import MASTER
from penstock.spark.clusters.local.state import read_state
from penstock.spark.clusters.standalone.cluster import StandaloneCluster, workers_by_node
from penstock.spark.session.secret import read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.contract import ClusterAddress, ClusterManager
    from penstock.cluster.topology import Cluster as Topology
    from penstock.spark.clusters.local.state import RunningCluster
    from penstock.spark.clusters.standalone.master_page import MasterPage, WorkerEntry

_LOG = logging.getLogger(__name__)


class LocalCluster(StandaloneCluster):
    """Reads nodes from the files of the cluster, which know more of them than Spark's Master, and from the Master which
    of them are alive and free."""

    def __init__(self, state: RunningCluster, secret: str | None = None) -> None:
        super().__init__(state.master_url, state.secret() if secret is None else secret, state.web_url)
        self._state = state
        self._topology = read_cluster(state.cluster_file) if state.cluster_file.exists() else None

    @property
    def pins(self) -> bool:
        return True

    @property
    def is_on_this_machine(self) -> bool:
        return True

    def _look(self) -> RunningCluster:
        """Read the files again: nodes come and go. Files that cannot be read, or are gone, change nothing."""
        try:
            state = read_state(self._state.folder)
            if state is not None and state != self._state and state.master_url == self.master:
                self._topology, self._state = read_cluster(state.cluster_file), state
        except BadInputError as error:
            _LOG.warning("%s", error)
        return self._state

    def topology(self) -> Topology | None:
        self._look()
        return super().topology() if self._topology is None else self._topology

    def _page(self) -> MasterPage | None:
        page = page_of(self._state)
        return page if page is not None and page.url == self.master else None

    def _application_pages(self, page: MasterPage) -> dict[str, str]:
        network = self._state.network
        if network is None:
            return super()._application_pages(page)
        return network.seen_from(MASTER, lambda: super(LocalCluster, self)._application_pages(page))

    def nodes(self) -> Sequence[NodeState] | None:
        state = self._look()
        page = self._page()
        if page is None:
            return None
        workers = workers_by_node(page)
        states = []
        for node in state.nodes:
            runs = node.worker is not None and find(node.worker) is not None
            states.append(self._of_file(node.name, node.rack, node.slots, workers.get(node.name), runs=runs))
        return states

    def _of_file(self, name: str, rack: str, slots: int, worker: WorkerEntry | None, *, runs: bool) -> NodeState:
        """Return a node with the capacity of the cluster's file. The Master does not count its custom resources."""
        place = None if self._topology is None else self._topology.find(name)
        known = None if self._topology is None or place is None else self._topology.nodes[place]
        seen = NodeState(name, alive=False) if worker is None else self._state_of(name, worker)
        capacity = dict(seen.capacity if known is None else known.capacity)
        alive = seen.alive and runs
        free: dict[str, float | None] = dict.fromkeys(capacity, None if alive else 0.0)
        if alive:
            part = (seen.free.get(CPU) or 0.0) / seen.capacity[CPU]
            free[CPU] = part * capacity[CPU]
            free[MEMORY] = min(capacity[MEMORY], seen.free.get(MEMORY) or 0.0)
        return replace(
            seen,
            alive=alive,
            rack=rack,
            slots=slots,
            capacity=MappingProxyType(capacity),
            free=MappingProxyType(free),
            labels=frozenset() if known is None else known.labels,
            price=None if known is None else known.price,
        )

    def add_nodes(self, request: NodeRequest) -> Sequence[NodeState]:
        if request.size is not None:
            raise ClusterError(f"nodes of this machine have one size, not '{request.size}'")
        made = {add_node(self._state.folder).name for _ in range(request.count)}
        return [
            self._of_file(node.name, node.rack, node.slots, None, runs=False)
            for node in self._look().nodes
            if node.name in made
        ]

    def remove_node(self, name: str) -> None:
        remove_node(name, self._state.folder)


def open_own(address: ClusterAddress) -> ClusterManager:
    """Open the cluster of the state folder, or of FOLDER for the master `cluster:FOLDER`; its secret is in that folder
    if no file is given."""
    named = address.master.partition(":")[2] if address.master.startswith(f"{OWN}:") else ""
    state = find_cluster(address.folder or named or None)
    return LocalCluster(state, None if address.secret_file is None else read_secret(address.secret_file))


def open_spark(address: ClusterAddress) -> ClusterManager:
    """Open the cluster at a Master: the own one, if it is at that address, else any other."""
    home = state_folder(address.folder)
    own = read_state(home) if home.is_dir() else None
    if own is not None and own.master_url == address.master:
        return open_own(address)
    secret = None if address.secret_file is None else read_secret(address.secret_file)
    return StandaloneCluster(address.master, secret, address.web_url, address.racks)
