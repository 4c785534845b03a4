"""Nodes in racks, their slots, and how far apart two threads are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.exclusions import BY_HAND
from penstock.cluster.resources import DEFAULT_DIMENSIONS, Dimension
from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
    """Nodes that take no threads now, and why (`penstock.cluster.exclusions`)."""
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
