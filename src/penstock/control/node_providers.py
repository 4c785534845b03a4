"""A provider as the controller sees it: who joined and who was lost, from what `list` says.

It is asked in a thread of its own: one that hangs keeps nobody. What it says is checked against what was asked for: a
node nobody asked for is not taken in, and one that was released and is still listed is not used again.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import Amount, Count, Name, Positive, Spec, check, read_value, write_text
from penstock.cluster.contract import NodeRequest, open_cluster
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY
from penstock.control.contracts import NodeOffer, ProvidedNode, ProviderError, ProviderSetting, SeenNodes
from penstock.control.core.messages import NodeJoined, NodeLost
from penstock.control.core.records import NodePhase, NodeRecord
from penstock.control.registry import NODE_PROVIDERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.cluster.contract import ClusterManager
    from penstock.cluster.contract import NodeState as ManagedNode
    from penstock.cluster.topology import Cluster
    from penstock.control.contracts import Provider
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


# The nodes of one deployment: those of a cluster that are free, and more from a provider, which go when it ends.


COME_SECONDS = 120.0
"""Seconds until a node that was acquired and has not joined the cluster is given up."""
LOOK_SECONDS = 0.5


class LeftNodes(Spec):
    """File that names the nodes to release if this process is killed."""

    provider: str
    options: str
    master: str
    folder: str
    names: tuple[Name, ...] = ()


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Inside the block Ctrl-C and SIGTERM wait for its end: half an acquisition or release would leave nodes that cost
    money. Only the main thread receives signals; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda got, _frame: asked.append(got))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt


@dataclass
class NodePool:
    """Acquires nodes one by one, waits until they have joined the cluster, and releases them.

    Without a `provider` there are only the nodes of the cluster. `left` is a file that names the nodes to release, for
    the guard that does so if this process is killed (`release_left`).
    """

    manager: ClusterManager
    provider: Provider | None = None
    size: str | None = None
    patience: float = COME_SECONDS
    left: tuple[Path, LeftNodes] | None = None
    acquired: list[str] = field(default_factory=list)
    """Names of the nodes that this pool must release."""
    own: set[str] = field(default_factory=set)
    """Applications of the deployment itself: slots they hold are free for it."""

    def cluster(self) -> Cluster:
        """Return the nodes of the cluster that are alive and on which no other application holds a slot."""
        nodes, holdings, known = self.manager.nodes(), self.manager.holdings(), self.manager.topology()
        if nodes is None or holdings is None or known is None:
            raise ProviderError(f"the manager at {self.manager.master} does not answer, or its slots have no names")
        held = {slot.node for slot, holder in holdings.items() if holder.application not in self.own}
        usable = {node.name for node in nodes if node.alive and node.slots and node.name not in held}
        return known.only(place for place, node in enumerate(known.nodes) if node.name in usable)

    def acquire(self, count: int) -> Cluster:
        """Return a cluster of at least `count` nodes; raise `ProviderError` if they do not come."""
        there = self.cluster()
        missing = count - len(there.nodes)
        if missing <= 0:
            return there
        if self.provider is None:
            raise ProviderError(f"{count} nodes are needed, {len(there.nodes)} are free, and no provider adds any")
        asked = [self._acquire_one(count) for _ in range(missing)]
        watch = Stopwatch()
        while True:
            there = self.cluster()
            late = [name for name in asked if there.find(name) is None]
            if not late:
                return there
            if watch.seconds() > self.patience:
                self.drop(late)
                raise ProviderError(
                    f"{len(late)} of {len(asked)} nodes did not join the cluster within {self.patience:g} s: "
                    f"{', '.join(late)}"
                )
            pause(LOOK_SECONDS)

    def _acquire_one(self, count: int) -> str:
        assert self.provider is not None  # noqa: S101 - checked by `acquire`
        with deferred_interrupts():
            given = self.provider.acquire(1, self.size)
            self.acquired += [node.name for node in given]
            self._write_left()
        if len(given) != 1:
            raise ProviderError(f"{count} nodes are needed, and the provider gave {len(given)} when asked for one more")
        return given[0].name

    def dead(self, names: Collection[str]) -> list[str]:
        """Return which of these nodes are not alive now; none if the manager does not answer."""
        nodes = self.manager.nodes()
        alive = None if nodes is None else {node.name for node in nodes if node.alive}
        return [] if alive is None else sorted(name for name in names if name not in alive)

    def drop(self, names: Collection[str]) -> list[str]:
        """Release some of the nodes that were acquired. Return why any could not be."""
        troubles = []
        with deferred_interrupts():
            for name in [own for own in self.acquired if own in names]:
                try:
                    if self.provider is not None:
                        self.provider.release(name)
                except ProviderError as error:
                    troubles.append(f"node '{name}' may still be running and cost money: {error}")
                    continue
                self.acquired.remove(name)
            self._write_left()
        return troubles

    def close(self) -> list[str]:
        """Release all nodes that were acquired. Return why any could not be."""
        return self.drop(self.acquired)

    def _write_left(self) -> None:
        if self.left is not None:
            path, known = self.left
            write_text(path, known.model_copy(update={"names": tuple(self.acquired)}).model_dump_json())


def release_left(path: Path) -> int:
    """Release the nodes that a process left behind when it was killed; return how many could not be."""
    left = read_value(LeftNodes, path)
    if not left.names:
        return 0
    made = NODE_PROVIDERS.load(left.provider).make(left.options, ProviderSetting(Path(left.folder), left.master))
    failed = 0
    for name in left.names:
        try:
            made.release(name)
        except ProviderError as error:
            log.warning("node '%s' may still be running and cost money: %s", name, error)
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(release_left(Path(sys.argv[1])))
