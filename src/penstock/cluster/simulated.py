"""A cluster of which nothing is real: nodes, slots and applications are entries in its books."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, ClusterError, nearest
from penstock.cluster.books import amounts_left, check_requests, choose_slots, why_not_free
from penstock.cluster.contract import (
    DEADLINE_SECONDS,
    AcquisitionState,
    AppSession,
    ClusterEvent,
    ClusterEventKind,
    ClusterManager,
    Holder,
    NodeRequest,
    NodeState,
    SlotAcquisition,
    SlotRequest,
)
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB, read_cluster
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Node, Slot
from penstock.cluster.topology import Cluster as Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.contract import AppId, AppRequest, ClusterAddress

DEFAULT_NODES, DEFAULT_SLOTS = 2, 2


def equal_nodes(count: int, slots: int) -> Topology:
    """Return nodes n1, n2, ... of one rack with the memory of usual slots."""
    capacity = {CPU: CPU_POINTS_PER_SLOT * slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * slots}
    return Topology(tuple(Node(f"n{number}", "r1", slots, capacity) for number in range(1, count + 1)))


class SimulatedCluster(ClusterManager):
    """Grants slots as soon as they are free. It has a provider: nodes are added like the last one."""

    def __init__(self, topology: Topology | None = None, master: str = "simulated") -> None:
        self.master = master
        self._topology = topology or equal_nodes(DEFAULT_NODES, DEFAULT_SLOTS)
        self._dead: set[str] = set()
        self._held: dict[Slot, Holder] = {}
        self._apps: dict[AppId, AppRequest] = {}
        self._pending: list[SlotAcquisition] = []
        self._refused: list[ClusterEvent] = []
        self._opened = self._started = 0
        self._lock = threading.RLock()

    @property
    def pins(self) -> bool:
        return True

    def nodes(self) -> Sequence[NodeState]:
        with self._lock:
            holders: dict[str, list[Holder]] = {node.name: [] for node in self._topology.nodes}
            for slot, holder in self._held.items():
                holders[slot.node].append(holder)
            return [
                NodeState(
                    node.name,
                    node.name not in self._dead,
                    node.name,
                    node.rack,
                    node.slots,
                    MappingProxyType(dict(node.capacity)),
                    MappingProxyType(
                        dict.fromkeys(node.capacity, 0.0)
                        if node.name in self._dead
                        else dict(amounts_left(node, holders[node.name]))
                    ),
                    node.labels,
                    node.price,
                )
                for node in self._topology.nodes
            ]

    def holdings(self) -> Mapping[Slot, Holder]:
        with self._lock:
            return dict(self._held)

    def topology(self) -> Topology:
        return self._topology

    def session(self, app: AppRequest) -> AppSession:
        with self._lock:
            self._opened += 1
            name = f"simulated-{self._opened:04d}"
            self._apps[name] = app
        if app.executors:
            self.acquire(name, [SlotRequest()] * app.executors)
        return AppSession(name, on_close=lambda: self._end(name))

    def _end(self, app: AppId) -> None:
        with self._lock:
            self._apps.pop(app, None)
            for acquisition in [each for each in self._pending if each.app == app]:
                acquisition.fail("the application has ended")
            self._held = {slot: holder for slot, holder in self._held.items() if holder.application != app}
            self._grant()

    def acquire(self, app: AppId, slots: Sequence[SlotRequest], deadline: float = DEADLINE_SECONDS) -> SlotAcquisition:
        with self._lock:
            default = self._known(app).memory_mb
            sized = [replace(request, memory_mb=request.memory_mb or default) for request in slots]
            check_requests(sized, self.nodes())
            acquisition = SlotAcquisition(app, sized, deadline)
            self._pending.append(acquisition)
            self._grant()
        if acquisition.state is AcquisitionState.PENDING:
            timer = threading.Timer(acquisition.seconds_left, self._expire, (acquisition,))
            timer.daemon = True
            timer.start()
        return acquisition

    def _known(self, app: AppId) -> AppRequest:
        if app not in self._apps:
            raise ClusterError(f"application '{app}' was not started here; start it with session()")
        return self._apps[app]

    def _grant(self) -> None:
        """Give free slots to those who wait, the oldest first."""
        for acquisition in list(self._pending):
            if acquisition.state is AcquisitionState.PENDING:
                name, open_requests = self._apps[acquisition.app].name, acquisition.missing
                chosen = choose_slots(list(open_requests.values()), self.nodes(), self._held)
                given = {place: slot for place, slot in zip(open_requests, chosen, strict=True) if slot is not None}
                for place, slot in given.items():
                    self._started += 1
                    asked = open_requests[place]
                    self._held[slot] = Holder(
                        acquisition.app, name, str(self._started), asked.cores, float(asked.memory_mb or 0)
                    )
                acquisition.grant(given)
            if acquisition.state is not AcquisitionState.PENDING:
                self._pending.remove(acquisition)

    def _expire(self, acquisition: SlotAcquisition) -> None:
        with self._lock:
            if acquisition.state is not AcquisitionState.PENDING:
                return
            nodes = self.nodes()
            missing = acquisition.missing.values()
            acquisition.expire("; ".join(dict.fromkeys(why_not_free(each, nodes, self._held) for each in missing)))
            self._refused.append(
                ClusterEvent(ClusterEventKind.EXECUTOR_REFUSED, application=acquisition.app, why=acquisition.why)
            )
            self._grant()

    def release(self, app: AppId, slots: Sequence[Slot]) -> None:
        with self._lock:
            self._known(app)
            for slot in slots:
                if slot not in self._held or self._held[slot].application != app:
                    raise ClusterError(f"slot {slot} is not held by application '{app}'")
            for slot in slots:
                del self._held[slot]
            self._grant()

    def refusals(self) -> Sequence[ClusterEvent]:
        return tuple(self._refused)

    def add_nodes(self, request: NodeRequest) -> Sequence[NodeState]:
        if request.size is not None:
            raise ClusterError(f"nodes of a simulated cluster have one size, not '{request.size}'")
        with self._lock:
            taken = {node.name for node in self._topology.nodes}
            free = (name for number in range(1, 10**6) if (name := f"n{number}") not in taken)
            made = [replace(self._topology.nodes[-1], name=next(free)) for _ in range(request.count)]
            self._topology = replace(self._topology, nodes=(*self._topology.nodes, *made))
            self._grant()
            names = {node.name for node in made}
            return [node for node in self.nodes() if node.name in names]

    def remove_node(self, name: str) -> None:
        with self._lock:
            self.lose_node(name)
            self._topology = self._topology.only(
                place for place, node in enumerate(self._topology.nodes) if node.name != name
            )
            self._dead.discard(name)  # another node may get its name

    def lose_node(self, name: str) -> None:
        """Make a node die, with the executors on it."""
        with self._lock:
            if self._topology.find(name) is None:
                known = nearest(name, [node.name for node in self._topology.nodes])
                raise BadInputError(f"node '{name}' is not in the cluster; {known}")
            self._dead.add(name)
            self._held = {slot: holder for slot, holder in self._held.items() if slot.node != name}

    def restore_node(self, name: str) -> None:
        """Let a node that died come back, empty."""
        with self._lock:
            self._dead.discard(name)
            self._grant()


def open_simulated(address: ClusterAddress) -> ClusterManager:
    """Open `simulated`, or `simulated:FILE` with the nodes of a cluster file."""
    file = address.master.partition(":")[2]
    return SimulatedCluster(read_cluster(Path(file)) if file else None, address.master)
