"""The machines of a plan: nodes in racks, their slots, how far apart two threads are, and sizes that can be rented."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import Amount, Count, Name, Spec, check, parse_yaml, read_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# Named amounts of things a node offers and a thread demands.


CPU = "cpu"
"""Points of CPU; 100 points are one core."""

MEMORY = "memory_mb"
"""Megabytes of memory."""

MachineMemory = Annotated[float, Field(ge=0.001, allow_inf_nan=False, strict=True)]
"""Megabytes of a machine: enough to be an amount when it is divided among slots."""

CPU_POINTS_PER_SLOT = 100.0


@dataclass(frozen=True, slots=True)
class Dimension:
    """One axis of the resource space.

    A hard dimension may never be exceeded. A soft one may, and by how much is reported. `weight` scales the
    squared difference between what a node has left and what a thread demands, in units of the resource.
    """

    name: str
    hard: bool
    weight: float


DEFAULT_DIMENSIONS = (Dimension(CPU, hard=False, weight=1e-4), Dimension(MEMORY, hard=True, weight=1e-6))
"""R-Storm's view: CPU degrades gracefully, memory does not. Weights turn points into cores and MB into GB."""


# Nodes that take no threads now: set aside by hand, or for a time after they failed.


BY_HAND = "by hand"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node takes nothing until a moment (seconds since the epoch), or until somebody lets it in again."""

    node: str
    reason: str = BY_HAND
    until: float | None = None

    def holds(self, at: float) -> bool:
        return self.until is None or at < self.until


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A node that fails `failures` times within `within_seconds` is set aside for `for_seconds` after the last."""

    failures: int = 3
    within_seconds: float = 600.0
    for_seconds: float = 1800.0


def after_failures(
    failed_at: Mapping[str, Sequence[float]], at: float, rule: FailureRule | None = None
) -> list[Exclusion]:
    """The nodes to set aside for their failures, given when each failed (rising), as of a moment.

    The node counts by its last `failures` failures: t[-1] - t[-failures] <= within_seconds.
    """
    rule = rule or FailureRule()
    exclusions = []
    for node, moments in failed_at.items():
        past = [moment for moment in moments if moment <= at]
        if len(past) < rule.failures or past[-1] - past[-rule.failures] > rule.within_seconds:
            continue
        until = past[-1] + rule.for_seconds
        if at < until:
            exclusions.append(Exclusion(node, f"failed {rule.failures} times within {rule.within_seconds:g} s", until))
    return exclusions


def in_force(exclusions: Iterable[Exclusion], at: float) -> dict[str, str]:
    """Excluded nodes and why, as of a moment; of several for one node the first counts."""
    table: dict[str, str] = {}
    for exclusion in exclusions:
        if exclusion.holds(at):
            table.setdefault(exclusion.node, exclusion.reason)
    return table


DEFAULT_BANDWIDTH_MBPS = 1000.0
BYTES_PER_MEGABIT = 125_000.0


class Distance(IntEnum):
    """How far a tuple travels between two threads; the value is its network cost."""

    SAME_SLOT = 0
    SAME_NODE = 1
    SAME_RACK = 2
    OTHER_RACK = 3


class Slot(NamedTuple):
    """Slot `number` (from 0) of the node named `node`."""

    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}/{self.number}"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: a rack, a number of slots, and a capacity in every dimension of its cluster."""

    name: str
    rack: str
    slots: int
    capacity: Mapping[str, float]
    size: str | None = None
    price: float | None = None
    speed: float = 1.0
    """How fast its cores are, where those the models were measured on are 1."""
    bandwidth_mbps: float = DEFAULT_BANDWIDTH_MBPS
    """Megabits per second to and from other nodes."""
    labels: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()
    """Only operators that tolerate all of them may be here."""

    def __post_init__(self) -> None:
        for what, value in (("speed", self.speed), ("bandwidth_mbps", self.bandwidth_mbps)):
            if not 0 < value < math.inf:
                raise BadInputError(f"node '{self.name}': {what}: expected a finite number above 0, found {value:g}")


@dataclass(frozen=True)
class Cluster:
    """Nodes in declared order, and the dimensions in which they are measured."""

    nodes: tuple[Node, ...]
    dimensions: tuple[Dimension, ...] = DEFAULT_DIMENSIONS
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Nodes that take no threads now, and why (`penstock.cluster.topology`)."""
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {node.name: position for position, node in enumerate(self.nodes)}
        object.__setattr__(self, "_index", MappingProxyType(index))
        for name in self.excluded:
            if name not in index:
                raise BadInputError(f"excluded node '{name}' does not exist; {nearest(name, index)}")

    def node(self, name: str) -> Node:
        return self.nodes[self._index[name]]

    def position(self, name: str) -> int:
        """The place of a node in declared order."""
        return self._index[name]

    def find(self, name: str) -> int | None:
        """The place of a node, or None where there is none of that name."""
        return self._index.get(name)

    def without(self, names: Iterable[str], reason: str = BY_HAND) -> Cluster:
        """The same cluster with further nodes excluded."""
        return replace(self, excluded={**dict.fromkeys(names, reason), **self.excluded})

    def only(self, positions: Iterable[int]) -> Cluster:
        """The cluster of some of the nodes alone, in their order."""
        nodes = tuple(self.nodes[position] for position in positions)
        names = {node.name for node in nodes}
        excluded = {name: reason for name, reason in self.excluded.items() if name in names}
        return Cluster(nodes, self.dimensions, excluded)

    @cached_property
    def tainted(self) -> bool:
        """Whether any node has taints, so that not everybody may be everywhere."""
        return any(node.taints for node in self.nodes)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every slot, node by node."""
        return tuple(Slot(node.name, index) for node in self.nodes for index in range(node.slots))

    @property
    def price(self) -> float | None:
        """What the cluster costs per hour; unknown if the price of any node is."""
        prices = [node.price for node in self.nodes if node.price is not None]
        return sum(prices) if len(prices) == len(self.nodes) else None

    def distance(self, a: Slot, b: Slot) -> Distance:
        if a == b:
            return Distance.SAME_SLOT
        if a.node == b.node:
            return Distance.SAME_NODE
        if self.node(a.node).rack == self.node(b.node).rack:
            return Distance.SAME_RACK
        return Distance.OTHER_RACK


# Sizes of machines that can be rented, and which of them to take.


DEFAULT_CATALOGUE = "azure-d"


class Size(Spec):
    """One size of machine. `price` is per hour."""

    name: Name
    slots: Count
    memory_mb: MachineMemory
    price: Amount


class CatalogueFile(Spec):
    name: Name
    about: str = ""
    currency: str = "USD"
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Sizes in order of rising slots, ties by price."""

    name: str
    sizes: tuple[Size, ...]
    currency: str = "USD"

    def price_of(self, size: str | None) -> float | None:
        return next((known.price for known in self.sizes if known.name == size), None)


class Acquisition(StrEnum):
    COVER = "cover"
    """The published rule: as many of the largest as fit whole, then the one smallest size that covers the rest."""
    EXACT = "exact"
    """Fill the rest with ever smaller sizes, so that no slot is bought in vain where size 1 exists."""


def acquire(slots: int, sizes: Sequence[int], acquisition: Acquisition = Acquisition.COVER) -> list[int]:
    """Sizes (in slots) of the machines to rent for `slots` slots.

    cover: `floor(slots / largest)` of the largest; the remainder r, if any, by the smallest size >= r.
    exact: `floor(r / size)` of every size from the largest down; what is left by the smallest size.
    """
    rising = sorted(set(sizes))
    largest = rising[-1]
    taken = [largest] * (slots // largest)
    rest = slots % largest
    if acquisition is Acquisition.EXACT:
        for size in reversed(rising[:-1]):
            taken += [size] * (rest // size)
            rest %= size
    if rest:
        taken.append(next(size for size in rising if size >= rest))
    return taken


def rent(slots: int, catalogue: Catalogue, acquisition: Acquisition) -> Cluster:
    """A cluster of at least `slots` slots in one rack; of equally large sizes the cheapest."""
    cheapest = {size.slots: size for size in reversed(catalogue.sizes)}
    nodes = []
    for number, wanted in enumerate(acquire(slots, list(cheapest), acquisition), start=1):
        size = cheapest[wanted]
        capacity = {CPU: CPU_POINTS_PER_SLOT * size.slots, MEMORY: size.memory_mb}
        nodes.append(Node(f"n{number}", "r1", size.slots, MappingProxyType(capacity), size.name, size.price))
    return Cluster(tuple(nodes))


def with_prices(cluster: Cluster, catalogue: Catalogue) -> Cluster:
    """The cluster with the catalogue's price for every node of a size it knows and no price of its own."""
    nodes = (
        node if node.price is not None else replace(node, price=catalogue.price_of(node.size)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(nodes))


def known_catalogues() -> list[str]:
    folder = resources.files("penstock.cluster") / "catalogues"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def find_catalogue(name_or_path: str) -> Catalogue:
    """A catalogue built in by name, or from a file."""
    if name_or_path in known_catalogues():
        text = (resources.files("penstock.cluster") / "catalogues" / f"{name_or_path}.yaml").read_text("utf-8")
        return parse_catalogue(parse_yaml(text, name_or_path), name_or_path)
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml", ".json"} and not path.exists():
        raise BadInputError(f"unknown catalogue '{name_or_path}'; {nearest(name_or_path, known_catalogues())}")
    return parse_catalogue(read_document(path), name_or_path)


def parse_catalogue(data: Any, where: str) -> Catalogue:
    spec = check(CatalogueFile, data, where)
    if not spec.sizes:
        raise BadInputError(f"{where}: sizes: expected at least one size")
    names = [size.name for size in spec.sizes]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadInputError(f"{where}: sizes[{position}].name: size '{name}' is declared twice")
    return Catalogue(spec.name, tuple(sorted(spec.sizes, key=lambda size: (size.slots, size.price))), spec.currency)
