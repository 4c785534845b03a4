"""What is known about the cluster of a folder, kept in a file while the cluster runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from penstock.base.errors import BadInputError
from penstock.base.files import Count, Name, Positive, Spec, read_value, write_text
from penstock.base.process_identity import ProcessIdentity
from penstock.base.processes import LOOPBACK
from penstock.cluster.file import cluster_document
from penstock.spark.clusters.local.namespaces import DRIVER, MASTER, NamespaceNetwork
from penstock.spark.clusters.standalone.daemons import ClusterEnvironment
from penstock.spark.session.secret import DEFAULTS, properties_text, read_secret, secret_settings, web_token

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster

STATE = "state.json"
SECRET = "secret"  # noqa: S105 - the name of a file
WEB_TOKEN = "web-token"  # noqa: S105 - the name of a file
CLUSTER = "cluster.yaml"
KEPT = "logs"
"""The folder that outlives its cluster, until the next one: what went wrong is read afterwards."""


class ClusterNode(Spec):
    """A node and its Worker; `memory_mb` is that of one slot."""

    name: Name
    rack: Name
    slots: Count
    memory_mb: Positive
    worker: ProcessIdentity | None = None


class RunningCluster(Spec):
    """A standalone cluster on this machine; `master_url` is empty until its Master answers."""

    id: Name
    folder: Path
    master_url: str = ""
    web_url: str = ""
    authenticate: bool = False
    namespaces: Name | None = None
    """Where every node is a host of its own: what their network namespaces are named after."""
    master: ProcessIdentity | None = None
    nodes: tuple[ClusterNode, ...]

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes)

    @property
    def cluster_file(self) -> Path:
        """The file `penstock plan --cluster` takes to plan for exactly this cluster."""
        return self.folder / CLUSTER

    @property
    def log_folder(self) -> Path:
        return self.folder / KEPT

    @property
    def secret_file(self) -> Path | None:
        """What `--secret-file` takes; None where the cluster lets everybody in."""
        return self.folder / SECRET if self.authenticate else None

    @property
    def conf_folder(self) -> Path:
        """Where the settings are that a session of one's own needs: the Master's address, and the secret if there is
        one. It is started with `SPARK_CONF_DIR` set to this, and nothing stands on its command line."""
        return self.environment.conf

    @property
    def daemons(self) -> list[ProcessIdentity]:
        """Every process that was started, Workers first."""
        workers = [node.worker for node in self.nodes if node.worker is not None]
        return workers if self.master is None else [*workers, self.master]

    @property
    def environment(self) -> ClusterEnvironment:
        return self.environment_on(MASTER)

    def environment_on(self, host: str) -> ClusterEnvironment:
        """`host` is a node, the Master's or the driver's; all are this machine where there are no namespaces."""
        network = self.network
        address = LOOPBACK if network is None else network.address(host)
        return ClusterEnvironment(self.id, self.folder, address, self.secret())

    @property
    def network(self) -> NamespaceNetwork | None:
        """The hosts of the cluster, where it has some."""
        if self.namespaces is None:
            return None
        return NamespaceNetwork(self.namespaces, (MASTER, DRIVER, *(node.name for node in self.nodes)), self.folder)

    def on_host(self, host: str, command: list[str]) -> list[str]:
        """A command that runs on a host of the cluster."""
        network = self.network
        return command if network is None else network.command(host, command)

    def node(self, name: str) -> ClusterNode:
        for node in self.nodes:
            if node.name == name:
                return node
        raise BadInputError(f"unknown node '{name}'; known: {', '.join(node.name for node in self.nodes)}")

    def secret(self) -> str | None:
        return None if self.secret_file is None else read_secret(self.secret_file)

    def with_worker(self, name: str, worker: ProcessIdentity | None) -> RunningCluster:
        nodes = tuple(node.model_copy(update={"worker": worker}) if node.name == name else node for node in self.nodes)
        return self.model_copy(update={"nodes": nodes})


def read_state(folder: Path) -> RunningCluster | None:
    path = folder / STATE
    return read_value(RunningCluster, path) if path.exists() else None


def write_state(state: RunningCluster) -> None:
    write_text(state.folder / STATE, state.model_dump_json(indent=1) + "\n")


def write_secret(folder: Path, secret: str) -> None:
    """Readable by its owner only, from the first moment on."""
    write_text(folder / SECRET, secret + "\n")


def write_session_settings(state: RunningCluster) -> None:
    secret = state.secret()
    settings = {"spark.master": state.master_url, **secret_settings(secret)}
    write_text(state.conf_folder / DEFAULTS, properties_text(settings))
    if secret is not None:
        write_text(state.conf_folder / WEB_TOKEN, web_token(secret) + "\n")


def write_cluster_file(state: RunningCluster, cluster: Cluster) -> None:
    write_text(state.cluster_file, yaml.safe_dump(cluster_document(cluster), sort_keys=False, allow_unicode=True))


def forget(folder: Path) -> None:
    """Remove what only a running cluster needs; the logs stay. The state goes last: it is what finds the rest."""
    for name in ("work", "scratch", "conf"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (CLUSTER, SECRET, STATE):
        (folder / name).unlink(missing_ok=True)
