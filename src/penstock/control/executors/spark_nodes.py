"""The nodes of the standalone cluster of this machine: what its Master says, more Workers as processes, fewer."""

from __future__ import annotations

import logging
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.clock import pause
from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.control.core.incoming import NodeJoined, NodeLost
from penstock.control.core.records import NodeRecord
from penstock.control.core.states import NodeState
from penstock.errors import PenstockError
from penstock.spark.standalone.cluster import add_node, cluster_status, find_cluster, remove_node

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.control.core.incoming import Observation

log = logging.getLogger("penstock.control")
ASK_SECONDS = 1.0


class SparkNodes:
    """The Master is asked in a thread of its own: one that hangs keeps nobody."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._alive: set[str] = set()
        self._seen: list[Observation] = []
        self._ended = threading.Event()
        self._ask()
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.is_set():
            pause(ASK_SECONDS)
            try:
                self._ask()
            except PenstockError as error:
                log.warning("%s", error)

    def _ask(self) -> None:
        known = {node.name: node for node in find_cluster(self._folder).nodes}
        alive = {node.name for node in cluster_status(self._folder).nodes if node.alive}
        with self._lock:
            self._seen += [NodeLost(name) for name in sorted(self._alive - alive)]
            self._seen += [
                NodeJoined(_record(name, node.rack, node.slots, node.memory_mb))
                for name, node in known.items()
                if name in alive - self._alive
            ]
            self._alive = alive

    def observe(self, now: float) -> list[Observation]:
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def acquire(self, count: int, size: str | None) -> list[NodeRecord]:
        made = [add_node(self._folder) for _ in range(count)]
        return [_record(node.name, node.rack, node.slots, node.memory_mb) for node in made]

    def release(self, name: str) -> None:
        remove_node(name, self._folder)


def _record(name: str, rack: str, slots: int, memory_mb: float) -> NodeRecord:
    capacity = MappingProxyType({CPU: CPU_POINTS_PER_SLOT * slots, MEMORY: memory_mb * slots})
    return NodeRecord(name, rack, slots, NodeState.JOINING, 0.0, capacity)
