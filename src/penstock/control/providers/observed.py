"""A provider as the controller sees it: who joined and who was lost, from what `list` says.

It is asked in a thread of its own: one that hangs keeps nobody. What it says is checked against what was asked for: a
node nobody asked for is not taken in, and one that was released and is still listed is not used again.
"""

from __future__ import annotations

import logging
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.resources import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.control.core.incoming import NodeJoined, NodeLost
from penstock.control.core.records import NodeRecord
from penstock.control.core.states import NodeState
from penstock.control.providers.contract import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.control.core.incoming import Observation
    from penstock.control.providers.contract import ProvidedNode, Provider

log = logging.getLogger("penstock.control")


class ObservedProvider:
    """The `Nodes` of a controller, from any provider. `first` are names that are there from the start; without `every`
    seconds it is asked only when `look` is called."""

    def __init__(self, provider: Provider, first: Iterable[str] | None = None, *, every: float | None = None) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self._asked: set[str] | None = None if first is None else set(first)
        """None: whatever is there at the first look belongs to us."""
        self._released: set[str] = set()
        self._to_release: list[str] = []
        self._warned: set[str] = set()
        self._lingering: list[float | None] = []
        self._alive: set[str] = set()
        self._seen: list[Observation] = []
        self._ended = threading.Event()
        self.trouble: str | None = None
        self.look()
        if every is not None:
            threading.Thread(target=self._watch, args=(every,), name="provider", daemon=True).start()

    def _watch(self, every: float) -> None:
        while not self._ended.wait(every):
            self.look()

    def look(self) -> None:
        """What is to go, then one question; an answer that cannot be used changes nothing, and is said once."""
        self._release()
        try:
            listed = self._provider.list()
        except ProviderError as error:
            if str(error) != self.trouble:
                log.warning("%s", error)
            self.trouble = str(error)
            return
        self.trouble = None
        with self._lock:
            self._take(listed)

    def _take(self, listed: list[ProvidedNode]) -> None:
        if self._asked is None:
            self._asked = {node.name for node in listed}
        known = {node.name: node for node in listed if node.name in self._asked and node.name not in self._released}
        for name in {node.name for node in listed} - set(known) - self._released - self._warned:
            self._warned.add(name)
            log.warning("the provider lists '%s', which nobody asked for: it is not used", name)
        released = [node for node in listed if node.name in self._released]
        self._lingering = [node.price for node in released]
        # one that is still there although it was let go costs money: it is told again
        self._to_release = [node.name for node in released]
        alive = {name for name, node in known.items() if node.alive}
        self._seen += [NodeLost(name) for name in sorted(self._alive - alive)]
        self._seen += [NodeJoined(record(known[name])) for name in sorted(alive - self._alive)]
        self._alive = alive

    def observe(self, now: float) -> list[Observation]:
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def lingering(self) -> list[float | None]:
        with self._lock:
            return list(self._lingering)

    def acquire(self, count: int, size: str | None) -> list[NodeRecord]:
        asked = self._provider.acquire(count, size)
        if len(asked) > count:
            raise ProviderError(f"the provider gave {len(asked)} nodes, {count} were asked for")
        names = {node.name for node in asked}
        with self._lock:
            self._asked = (self._asked or set()) | names
            # a name that is given out again is another node
            self._released -= names
        return [record(node) for node in asked]

    def release(self, name: str) -> None:
        """The node is not used from now on, whatever the provider makes of it when it hears of it."""
        with self._lock:
            self._released.add(name)
            self._alive.discard(name)
            if name not in self._to_release:
                self._to_release.append(name)

    def _release(self) -> None:
        with self._lock:
            names, self._to_release = self._to_release, []
        for name in names:
            try:
                self._provider.release(name)
            except ProviderError as error:
                if name not in self._warned:
                    log.warning("node '%s' may still be running and cost money: %s", name, error)
                self._warned.add(name)

    def close(self) -> None:
        self._ended.set()


def record(node: ProvidedNode) -> NodeRecord:
    memory = node.memory_mb or DEFAULT_SLOT_MEMORY_MB
    capacity = MappingProxyType({CPU: CPU_POINTS_PER_SLOT * node.slots, MEMORY: memory * node.slots})
    return NodeRecord(node.name, node.rack, node.slots, NodeState.JOINING, 0.0, capacity, node.price)
