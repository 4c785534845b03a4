"""A standalone cluster by the address of its Master: nodes, cores, memory and holders as its pages say.

Workers that Penstock starts (`penstock cluster worker`) offer their node's name, slots and rack as resources; executors
can be pinned there. Other Workers are nodes named by their host, with cores and memory and no numbered slots.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.cluster.contract import Holder, ManagedNode
from penstock.cluster.slot_resources import RACK, SLOT
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Slot
from penstock.spark.clusters.spark_cluster import SparkCluster
from penstock.spark.clusters.standalone.daemons import DEFAULT_EXECUTOR_MB
from penstock.spark.clusters.standalone.master_page import ALIVE, fetch_page, fetch_text, listed_executors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.clusters.standalone.master_page import MasterPage, WorkerEntry

WEB_PORT = 8080


class StandaloneCluster(SparkCluster):
    def __init__(
        self,
        master: str,
        secret: str | None = None,
        web_url: str | None = None,
        racks: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(master, secret)
        hosts = [each.rpartition(":")[0] for each in master.removeprefix("spark://").split(",")]
        self._web_urls = [f"http://{host}:{WEB_PORT}" for host in hosts] if web_url is None else [web_url]
        self._ports = {each.rpartition(":")[2] for each in master.split(",")}
        self._racks = racks or {}
        self._numbers: dict[tuple[str, str], Slot] = {}
        """Slots counted for executors that asked for none by its number, by application and executor."""

    @property
    def pins(self) -> bool:
        """Whether all Workers that live offer slots by name."""
        page = self._page()
        alive = [worker for worker in page.workers if worker.state == ALIVE] if page is not None else []
        return bool(alive) and all(SLOT in worker.offered for worker in alive)

    def _page(self) -> MasterPage | None:
        """Return the page of the Master that leads."""
        for url in self._web_urls:
            page = fetch_page(url)
            if page is not None and page.status == ALIVE and page.url.rpartition(":")[2] in self._ports:
                return page
        return None

    def _application_pages(self, page: MasterPage) -> dict[str, str]:
        """Return the text of the page of each application."""
        texts = {}
        for application in page.applications:
            for url in self._web_urls:
                text = fetch_text(f"{url}/app/?appId={quote(application.id)}")
                if text is not None:
                    texts[application.id] = text
                    break
        return texts

    def nodes(self) -> Sequence[ManagedNode] | None:
        page = self._page()
        if page is None:
            return None
        return [self._state_of(name, worker) for name, worker in workers_by_node(page).items()]

    def _state_of(self, name: str, worker: WorkerEntry) -> ManagedNode:
        slots = len(worker.offered[SLOT].addresses) if SLOT in worker.offered else None
        used = len(worker.used[SLOT].addresses) if SLOT in worker.used else 0
        alive = worker.state == ALIVE
        capacity, free = own_amounts(worker)
        if slots is not None:
            # cores of such a Worker are as good as unlimited, and its memory has room for an executor beside its slots
            capacity[CPU], free[CPU] = CPU_POINTS_PER_SLOT * slots, CPU_POINTS_PER_SLOT * (slots - used)
            if MEMORY in capacity:
                capacity[MEMORY] -= DEFAULT_EXECUTOR_MB
                free[MEMORY] = min(capacity[MEMORY], free[MEMORY] or 0.0)
        rack = worker.offered[RACK].addresses[0] if RACK in worker.offered else self._racks.get(name)
        left = free if alive else dict.fromkeys(capacity, 0.0)
        return ManagedNode(name, alive, worker.host, rack, slots, MappingProxyType(capacity), MappingProxyType(left))

    def holdings(self) -> Mapping[Slot, Holder] | None:
        page = self._page()
        if page is None:
            return None
        nodes = {worker.id: name for name, worker in workers_by_node(page).items()}
        names = {application.id: application.name for application in page.applications}
        held: dict[Slot, Holder] = {}
        unnumbered: list[tuple[Slot, Holder]] = []
        for application, text in self._application_pages(page).items():
            for entry in listed_executors(text):
                holder = Holder(application, names[application], entry.id, entry.cores, entry.memory_mb)
                if entry.slot is not None and entry.named:
                    held[entry.slot] = holder
                elif entry.slot is not None or entry.worker in nodes:
                    unnumbered.append((entry.slot or Slot(nodes[entry.worker], 0), holder))
        numbers = {}
        for wanted, holder in unnumbered:
            key = (holder.application, str(holder.executor))
            slot = self._numbers.get(key, wanted)
            if slot in held:
                slot = next(each for n in range(len(held) + 1) if (each := Slot(wanted.node, n)) not in held)
            held[slot], numbers[key] = holder, slot
        self._numbers = numbers
        return held


def workers_by_node(page: MasterPage) -> dict[str, WorkerEntry]:
    """Return the Worker of each node: the one that lives, else the last that was there."""
    workers: dict[str, WorkerEntry] = {}
    hosts = [worker.host for worker in page.workers if worker.state == ALIVE]
    for worker in sorted(page.workers, key=lambda each: (each.state == ALIVE, each.last_heartbeat)):
        several = hosts.count(worker.host) > 1
        workers[worker.node or (f"{worker.host}:{worker.port}" if several else str(worker.host))] = worker
    return dict(sorted(workers.items()))


def own_amounts(worker: WorkerEntry) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return capacity and free amounts as the Master counts them, without the resources that only name slots."""
    capacity: dict[str, float] = {}
    free: dict[str, float | None] = {}
    for name, total, used, factor in (
        (CPU, worker.cores, worker.cores_used, CPU_POINTS_PER_SLOT),
        (MEMORY, worker.memory_mb, worker.memory_used_mb, 1.0),
    ):
        if total is not None:
            capacity[name] = total * factor
            free[name] = None if used is None else (total - used) * factor
    for name, offered in worker.offered.items():
        if worker.node is None or not (name in {SLOT, RACK} or name.startswith(("node-", "slot-"))):
            capacity[name] = float(len(offered.addresses))
            free[name] = capacity[name] - (len(worker.used[name].addresses) if name in worker.used else 0)
    return capacity, free
