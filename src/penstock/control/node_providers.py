"""A provider as the controller sees it: who joined and who was lost, from what `list` says.

It is asked in a thread of its own: one that hangs keeps nobody. What it says is checked against what was asked for: a
node nobody asked for is not taken in, and one that was released and is still listed is not used again.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import Amount, Count, Name, Positive, Spec, check, read_value
from penstock.cluster.contract import NodeRequest, open_cluster
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.control.contracts import NodeOffer, ProvidedNode, ProviderError, SeenNodes
from penstock.control.core.messages import NodeJoined, NodeLost
from penstock.control.core.records import NodePhase, NodeRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cluster.contract import ClusterManager
    from penstock.cluster.contract import NodeState as ManagedNode
    from penstock.control.contracts import Provider, ProviderSetting
    from penstock.control.core.messages import Observation


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
        # a released node that is still listed costs money: release it again
        self._to_release = [node.name for node in released]
        alive = {name for name, node in known.items() if node.alive}
        self._seen += [NodeLost(name) for name in sorted(self._alive - alive)]
        self._seen += [NodeJoined(record(known[name])) for name in sorted(alive - self._alive)]
        self._alive = alive

    def observe(self, now: float) -> list[Observation]:
        with self._lock:
            seen, self._seen = self._seen, []
        return seen

    def seen(self) -> SeenNodes | None:
        return self._provider.seen if isinstance(self._provider, ClusterProvider) else None

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
    usual = {CPU: CPU_POINTS_PER_SLOT * node.slots, MEMORY: memory * node.slots}
    capacity = MappingProxyType(usual | dict(node.capacity or {}))
    return NodeRecord(node.name, node.rack, node.slots, NodePhase.JOINING, 0.0, capacity, node.price)


# Nodes by the user's own commands (ssh, a cloud's command line), read from a file.
#
# {"acquire": ["my-cloud", "create", "{name}", "--join", "{master}"], "release": ["my-cloud", "delete", "{name}"],
# "list": ["my-cloud", "list"], "slots": 2, "price": 0.2, "timeout_seconds": 60}
#
# `list` prints one JSON array of {"name", "slots"?, "rack"?, "price"?, "alive"?}. No shell reads the commands; a name
# is letters, digits and dashes. A command that fails, takes too long or prints anything else is an error that names it;
# its action counts as not done.


Words = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=4000)], ...], Field(min_length=1, max_length=200)]
MOST_OUTPUT = 4_000_000
MOST_NODES = 100_000


class ProviderCommands(Spec):
    acquire: Words
    release: Words
    list: Words
    slots: Count = 1
    price: Amount | None = None
    prefix: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "node"
    timeout_seconds: Positive = 60.0


class ListedNode(Spec):
    name: Name
    slots: Count | None = None
    rack: Name = "r1"
    price: Amount | None = None
    alive: bool = True


class ListedNodes(Spec):
    nodes: Annotated[tuple[ListedNode, ...], Field(max_length=MOST_NODES)]


def _commands_of(options: str) -> ProviderCommands:
    if not options:
        raise BadInputError("node provider 'command': expected command:FILE")
    return read_value(ProviderCommands, Path(options))


class CommandProvider:
    def __init__(self, commands: ProviderCommands, master: str = "") -> None:
        self._commands = commands
        self._master = master
        self._made = 0

    @classmethod
    def offer(cls, options: str) -> NodeOffer:
        commands = _commands_of(options)
        return NodeOffer(commands.slots, commands.price)

    @classmethod
    def make(cls, options: str, setting: ProviderSetting) -> CommandProvider:
        return cls(_commands_of(options), setting.master)

    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        """One command for every node; the first that fails ends it, and those before it are still coming."""
        taken = {node.name for node in self.list()}
        asked: list[ProvidedNode] = []
        for _ in range(count):
            name = self._next_name(taken)
            try:
                self._run("acquire", self._commands.acquire, name=name, size=size or "")
            except ProviderError:
                if asked:
                    return asked
                raise
            asked.append(ProvidedNode(name, self._commands.slots, price=self._commands.price))
        return asked

    def _next_name(self, taken: set[str]) -> str:
        while True:
            self._made += 1
            name = f"{self._commands.prefix}-{self._made}"
            if name not in taken:
                return name

    def release(self, name: str) -> None:
        self._run("release", self._commands.release, name=name)

    def list(self) -> list[ProvidedNode]:
        printed = self._run("list", self._commands.list)
        try:
            rows: Any = json.loads(printed or "[]")
        except ValueError as error:
            shown = " ".join(printed.split())[:80]
            raise ProviderError(f"provider command list: expected a JSON array, found '{shown}'") from error
        try:
            listed = check(ListedNodes, {"nodes": rows}, "list").nodes
        except BadInputError as error:
            raise ProviderError(f"provider command {error}") from error
        names = [node.name for node in listed]
        if len(set(names)) < len(names):
            raise ProviderError("provider command list: it names a node twice")
        own = self._commands
        return [
            ProvidedNode(
                node.name, node.slots or own.slots, node.rack, None, own.price if node.price is None else node.price,
                node.alive,
            )
            for node in listed
        ]  # fmt: skip

    def _run(self, what: str, words: tuple[str, ...], **values: str) -> str:
        """`{name}`, `{size}` and `{master}` are put in; nothing else is."""
        filled = [self._filled(word, values) for word in words]
        seconds = self._commands.timeout_seconds
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command, no shell
                filled, capture_output=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired as error:
            raise ProviderError(f"provider command {what} took more than {seconds:g} s: {filled[0]}") from error
        except OSError as error:
            raise ProviderError(f"provider command {what}: {filled[0]}: {error.strerror or error}") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise ProviderError(f"provider command {what} ended with {done.returncode}: {lines[-1][:200]}")
        if len(done.stdout) > MOST_OUTPUT:
            raise ProviderError(f"provider command {what} printed {len(done.stdout):,} bytes")
        return done.stdout.decode(errors="replace")

    def _filled(self, word: str, values: dict[str, str]) -> str:
        for key, value in {**values, "master": self._master}.items():
            word = word.replace("{" + key + "}", value)
        return word


# Nodes of a cluster manager that has a provider: the cluster of this machine starts Workers, a simulated one enters
# them in its books.


class ClusterProvider:
    def __init__(self, cluster: ClusterManager, price: float | None = None) -> None:
        self._cluster = cluster
        self._price = price
        self.seen: SeenNodes | None = None
        """Last answer of the manager."""

    @classmethod
    def offer(cls, options: str) -> None:
        if options:
            raise BadInputError(f"node provider 'local' has no options, found '{options[:80]}'")

    @classmethod
    def make(cls, options: str, setting: ProviderSetting) -> ClusterProvider:
        return cls(open_cluster(setting.master or None, folder=setting.folder), setting.price)

    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        try:
            return [self._provided(node) for node in self._cluster.add_nodes(NodeRequest(count, size))]
        except PenstockError as error:
            raise ProviderError(str(error)) from error

    def release(self, name: str) -> None:
        try:
            self._cluster.remove_node(name)
        except PenstockError as error:
            raise ProviderError(str(error)) from error

    def list(self) -> list[ProvidedNode]:
        try:
            nodes = self._cluster.nodes()
            holdings = None if nodes is None else self._cluster.holdings()
        except PenstockError as error:
            raise ProviderError(str(error)) from error
        if nodes is None:
            raise ProviderError(f"the manager at {self._cluster.master} does not answer")
        self.seen = SeenNodes({node.name: node for node in nodes}, holdings)
        return [self._provided(node) for node in nodes if node.slots is not None]

    def _provided(self, node: ManagedNode) -> ProvidedNode:
        price = node.price if self._price is None else self._price
        # a node whose rack is not known is far from every other
        rack = f"rack of {node.name}" if node.rack is None else node.rack
        return ProvidedNode(node.name, node.slots or 1, rack, None, price, node.alive, node.capacity)
