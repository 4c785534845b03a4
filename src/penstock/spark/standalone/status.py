"""What the Master's page, the processes and the state file say about a cluster, together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.standalone.master_page import ALIVE, DEAD, ListedApplication, MasterPage

if TYPE_CHECKING:
    from penstock.process_identity import ProcessIdentity
    from penstock.spark.standalone.state import RunningCluster


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
