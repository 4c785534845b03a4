"""Nodes in racks, their slots, and how far apart two threads are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from penstock.base.errors import BadInputError, nearest

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
