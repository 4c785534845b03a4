"""The cluster that lives here, without what runs on it: for `penstock plan --cluster live`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, ClusterError, RunError
from penstock.base.files import read_text
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node, Slot
from penstock.engines.run_index import is_fused, list_runs, placed_or_found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.engines.run_index import Run
    from penstock.planning.plan import Plan
    from penstock.service.client import Client


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
    from penstock.service.local import controller_folder, read_running  # noqa: PLC0415 - needs the extra `control`
    from penstock.spark.clusters.standalone.state import state_folder  # noqa: PLC0415 - needs the extra `spark`

    home = state_folder(folder)
    if home.is_dir() and read_running(controller_folder(home)) is not None:
        return _of_controller(folder)
    return _of_master(folder)


def _of_controller(folder: str | Path | None) -> LiveCluster:

    with connect(folder=folder) as client:
        alive = [node for node in client.nodes() if node["state"] == "alive"]
    nodes = tuple(Node(node["name"], node["rack"], node["slots"], node["capacity"]) for node in alive)
    return LiveCluster(nodes, {node["name"]: tuple(node["free_slots"]) for node in alive})


def _of_master(folder: str | Path | None) -> LiveCluster:
    from penstock.spark.clusters.standalone.cluster import cluster_status, find_cluster  # noqa: PLC0415 - extra `spark`

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


# `penstock.runs()`: the runs of this user, and how they stand.


def runs() -> list[Run]:
    """Runs that live, were lost with their process, failed, or ended in a folder of their own, the newest last."""
    return list_runs()


# `penstock.rescale(...)`: more or fewer slots for a run, while it goes on.


PATIENCE_SECONDS = 90.0


def rescale(run: str | Path, slots: int, *, patience: float = PATIENCE_SECONDS) -> float:
    """Ask a fused run on a cluster for other executors; its query is not restarted. A placed run is planned anew, by
    its own policies, for so many slots. The seconds that took.

    `run` is its folder, or the name that `runs` shows.
    """
    from penstock.engines.placed.run_folder import RunFolder  # noqa: PLC0415
    from penstock.runs.run_folder import FusedRunFolder  # noqa: PLC0415 - psutil belongs to the extra

    if slots < 1:
        raise BadInputError(f"slots=: expected at least 1, found {slots}")
    folder = placed_or_found(run)
    if isinstance(folder, Path) and is_fused(folder):
        return float(FusedRunFolder(folder).ask("rescale", patience, slots=slots)["seconds"])
    placed = RunFolder(folder)
    if placed.held_by is None:
        raise RunError(f"{folder}: nothing runs '{placed.description.pipeline}' now; penstock resume goes on with it")
    return float(placed.ask("rescale", patience, slots=slots)["seconds"])


# `penstock.connect(...)`: a client of a controller, with the verbs as methods.


def connect(url: str | None = None, token: str | None = None, *, folder: str | Path | None = None) -> Client:
    """A controller by its address and token; without, the one `penstock.up()` started on this machine."""
    from penstock.service import client  # noqa: PLC0415 - needs the extra `control`

    return client.connect(url, token, folder)


# `penstock.dashboard()`: a link that opens the page of the controller, once.


def dashboard(*, read_only: bool = False, folder: str | Path | None = None) -> str:
    """The code in the link logs one browser in and is then used up; it is good for ten minutes. It stands behind the
    `#`, which browsers keep to themselves. With `read_only` whoever opens it may look and change nothing."""
    from penstock.service.client import Client  # noqa: PLC0415 - needs the extra `control`
    from penstock.service.local import find_controller  # noqa: PLC0415

    controller = find_controller(folder)
    token = read_text(controller.read_token_file if read_only else controller.token_file).strip()
    with Client(controller.url, token) as client:
        return f"{controller.url}/#code={client.login_code()}"
