"""The cluster that lives here, without what runs on it: for `penstock plan --cluster live`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.cluster.topology import Cluster, Node, Slot
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.planning.plan import Plan

LIVE = "live"
"""Instead of a cluster file: what the controller that runs here, or else the Master, says is free."""


@dataclass(frozen=True)
class LiveCluster:
    """Nodes that are alive, and the numbers of their slots that nobody has."""

    nodes: tuple[Node, ...]
    free: Mapping[str, tuple[int, ...]]

    @property
    def cluster(self) -> Cluster:
        """As if what is taken were not there: nodes with their free slots and that part of their capacity."""
        left = []
        for node in self.nodes:
            count = len(self.free[node.name])
            if count:
                part = {name: amount * count / node.slots for name, amount in node.capacity.items()}
                left.append(replace(node, slots=count, capacity=part))
        if not left:
            raise ClusterError("no slot of the live cluster is free")
        return Cluster(tuple(left))

    def numbered(self, plan: Plan) -> Plan:
        """The plan with the numbers slots really have: the first free slot of a node may be its third."""

        def real(slot: Slot) -> Slot:
            return Slot(slot.node, self.free[slot.node][slot.number])

        bundles = tuple(bundle._replace(slot=real(bundle.slot)) for bundle in plan.placement.bundles)
        predicted = {real(slot): usage for slot, usage in plan.prediction.slots.items()}
        used = {node.name for node in plan.cluster.nodes}
        return replace(
            plan,
            cluster=Cluster(tuple(node for node in self.nodes if node.name in used)),
            placement=replace(plan.placement, bundles=bundles),
            prediction=replace(plan.prediction, slots=predicted),
        )


def live_cluster(folder: str | Path | None = None) -> LiveCluster:
    """By the controller that runs here; where none does, by the Master of `penstock cluster up`."""
    from penstock.service.settings import controller_folder, read_running  # noqa: PLC0415 - needs the extra `control`
    from penstock.spark.standalone.state import state_folder  # noqa: PLC0415 - needs the extra `spark`

    home = state_folder(folder)
    if home.is_dir() and read_running(controller_folder(home)) is not None:
        return _of_controller(folder)
    return _of_master(folder)


def _of_controller(folder: str | Path | None) -> LiveCluster:
    from penstock.verbs.connect import connect  # noqa: PLC0415 - needs the extra `control`

    with connect(folder=folder) as client:
        alive = [node for node in client.nodes() if node["state"] == "alive"]
    nodes = tuple(Node(node["name"], node["rack"], node["slots"], node["capacity"]) for node in alive)
    return LiveCluster(nodes, {node["name"]: tuple(node["free_slots"]) for node in alive})


def _of_master(folder: str | Path | None) -> LiveCluster:
    from penstock.spark.standalone.cluster import cluster_status, find_cluster  # noqa: PLC0415 - extra `spark`

    memory = {node.name: node.memory_mb for node in find_cluster(folder).nodes}
    alive = [node for node in cluster_status(folder).nodes if node.alive]
    nodes = tuple(
        Node(
            node.name,
            node.rack,
            node.slots,
            {
                CPU: CPU_POINTS_PER_SLOT * node.slots,
                MEMORY: memory.get(node.name, DEFAULT_SLOT_MEMORY_MB) * node.slots,
            },
        )
        for node in alive
    )
    return LiveCluster(nodes, {node.name: tuple(range(node.used, node.slots)) for node in alive})
