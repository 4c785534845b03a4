"""The contract of placement policies: the slot of each thread.

A placer gets a `PlacementRequest` (one pipeline) and a `Room` (the remaining resources of the cluster) and returns a
`Placement` or a `Refusal`. It never changes the room: the caller commits an answer with `Room.take`, all of it or
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from penstock.base.tolerance import settled
from penstock.cluster.topology import MEMORY
from penstock.dataflow.pipeline import ANYWHERE, UNCONSTRAINED, SharedPer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.base.errors import Refusal
    from penstock.cluster.topology import Cluster, Node, Slot
    from penstock.dataflow.pipeline import OperatorConstraints, PipelineConstraints
    from penstock.modelling.model import Model
    from penstock.planning.allocation.contract import Pattern, ThreadBundle
    from penstock.planning.placement.constraints import Constraint


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """Threads to place. `demand` is that of one thread, in the order of the room's dimensions."""

    name: str
    threads: int
    demand: tuple[float, ...]
    bundles: tuple[tuple[int, ThreadBundle], ...] = ()
    """Counted bundles of a model-based allocation, in slots; empty where only demands were declared."""
    single_thread: tuple[float, float] | None = None
    """Cpu and memory (in slots) of one thread alone at its peak, if a model knows them."""
    local_cpu: float | None = None
    """Points of CPU of one thread when all it talks to is on its node; None: the cpu of `demand`, wherever that is."""
    moving_cpu: float = 0.0
    """Points of CPU per tuple/s one thread sends to or receives from another node, on top of `local_cpu`."""
    model: Model | None = None
    rate: float = 0.0
    """Tuples/s the operator receives, if the request is that of a plan."""
    constraints: OperatorConstraints = ANYWHERE


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One pipeline to place. Streams are pairs of positions in `operators`.

    Operators stand in topological order in a plan, because that is the order of its allocation, and as declared in a
    file of a whole cluster, whose pipelines may have cycles.
    """

    pipeline: str
    operators: tuple[OperatorRequest, ...]
    streams: tuple[tuple[int, int], ...]
    sources: tuple[int, ...]
    slot_memory: float | None = None
    """The most memory (MB) one slot may take of this pipeline; None: its share of the node
    (`Room.slot_memory`)."""
    explain: bool = False
    """Ask for a reason with every placed bundle."""
    rates: tuple[float, ...] = ()
    """Tuples/s of each stream; empty if no rate was asked for."""
    traffic: tuple[float, ...] = ()
    """Bytes per second on every stream; empty if they are not known."""
    current: Mapping[str, Mapping[Slot, int]] = field(default_factory=dict)
    """Threads that run, by operator, on machines that are still there; only placers that `KeepsCurrent`
    look at it."""
    patterns: tuple[tuple[int, Pattern], ...] = ()
    """Contents of the slots, if the allocator decided them; only placer `joint` follows them."""
    constraints: PipelineConstraints = UNCONSTRAINED
    owner: str | None = None
    streams_worth: float | None = None
    """Value of its streams in average streams, relative to pipelines placed together with it; None: their number."""
    beside: Beside | None = None
    """The rest of the pipeline, if only some of its threads are to be placed; only placers that `Finishes` look at
    it."""

    @property
    def threads(self) -> int:
        return sum(operator.threads for operator in self.operators)


@dataclass(frozen=True, slots=True)
class Beside:
    """A whole pipeline, its threads that stay, and the nodes these are on."""

    request: PlacementRequest
    rows: Mapping[Slot, Mapping[str, int]]
    nodes: Mapping[str, Node]


class PlacedBundle(NamedTuple):
    """`threads` further threads of `operator` on one slot."""

    operator: str
    threads: int
    slot: Slot
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Every thread of one pipeline on a slot.

    Bundles stand in the order they were decided: the first bundle of an operator holds its threads 1..n, the
    next the following ones.
    """

    pipeline: str
    placer: str
    bundles: tuple[PlacedBundle, ...]

    def by_slot(self) -> dict[Slot, dict[str, int]]:
        """Threads of each operator on each used slot, both in order of first use."""
        table: dict[Slot, dict[str, int]] = {}
        for operator, threads, slot, _ in self.bundles:
            row = table.setdefault(slot, {})
            row[operator] = row.get(operator, 0) + threads
        return table


class Room:
    """Remaining resources of a cluster: free amounts per node, and which slots are taken.

    A slot belongs to one pipeline at a time. Slots of a node are handed out in order of their index.
    """

    def __init__(self, cluster: Cluster, *, slot_memory_shared: bool) -> None:
        """`slot_memory_shared`: a slot may use at most its equal share of the node's memory (a slot is a
        quantum of the node, as in a plan); otherwise it may use all of it (a slot is a process, as in
        `place`)."""
        names = [dimension.name for dimension in cluster.dimensions]
        self.cluster = cluster
        self.dimensions = cluster.dimensions
        self.capacity = np.array([[node.capacity[name] for name in names] for node in cluster.nodes], dtype=float)
        self.capacity = self.capacity.reshape(len(cluster.nodes), len(names))
        self.slots = np.array([node.slots for node in cluster.nodes], dtype=np.int64)
        # An excluded node has nothing to offer.
        excluded = [cluster.position(name) for name in cluster.excluded]
        self.capacity[excluded] = 0.0
        self.slots[excluded] = 0
        self.free = self.capacity.copy()
        self.slots_taken = np.zeros_like(self.slots)
        self.reserved = np.zeros(len(cluster.nodes), dtype=bool)
        """Nodes of an isolated pipeline, closed to others."""
        rack_of = {rack: position for position, rack in enumerate(dict.fromkeys(n.rack for n in cluster.nodes))}
        self.rack = np.array([rack_of[node.rack] for node in cluster.nodes], dtype=np.int64)
        self.memory_axis = names.index(MEMORY) if MEMORY in names else None
        memory = (
            self.capacity[:, self.memory_axis] if self.memory_axis is not None else np.full(len(cluster.nodes), np.inf)
        )
        self.slot_memory_shared = slot_memory_shared
        self.slot_memory = memory / np.maximum(self.slots, 1) if slot_memory_shared else memory
        """The most memory (MB) one slot of each node may take."""

    @cached_property
    def settled_limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Capacity and memory of a slot without noise (`penstock.base.tolerance.settled`). They never change."""
        return settled(self.capacity), settled(self.slot_memory)

    def take(
        self,
        placement: Placement,
        demands: Mapping[str, tuple[float, ...]],
        constraints: PipelineConstraints = UNCONSTRAINED,
    ) -> None:
        """Commit a placement: subtract `demands` (of one thread, by operator) and resources that threads share, mark
        its slots as taken and, if the pipeline is isolated, its nodes as reserved."""
        position = self.cluster.position
        nodes = np.array([position(bundle.slot.node) for bundle in placement.bundles], dtype=np.int64)
        if not len(nodes):
            return
        used = np.array([bundle.slot.number + 1 for bundle in placement.bundles], dtype=np.int64)
        amounts = np.array([demands[bundle.operator] for bundle in placement.bundles], dtype=float)
        amounts *= np.array([[bundle.threads] for bundle in placement.bundles], dtype=float)
        np.subtract.at(self.free, nodes, amounts)
        np.maximum.at(self.slots_taken, nodes, used)
        if constraints.isolated:
            self.reserved[nodes] = True
        if self.memory_axis is not None:
            for node, shared in shared_mb(placement, constraints).items():
                self.free[position(node), self.memory_axis] -= shared

    def only(self, mask: NDArray[np.bool_]) -> Room:
        """Return some of the nodes as a room of its own."""
        part = Room(self.cluster.only(np.flatnonzero(mask).tolist()), slot_memory_shared=self.slot_memory_shared)
        part.capacity, part.free = self.capacity[mask], self.free[mask]
        part.slots, part.slots_taken = self.slots[mask], self.slots_taken[mask]
        part.slot_memory, part.reserved = self.slot_memory[mask], self.reserved[mask]
        return part


def shared_mb(placement: Placement, constraints: PipelineConstraints) -> dict[str, float]:
    """The memory a placement's threads share, by node: once per slot or once per node that has any of the sharers."""
    shared_of: dict[str, float] = {}
    if constraints.shared_memory:
        rows = placement.by_slot()
        for shared in constraints.shared_memory:
            holders = [slot for slot, row in rows.items() if any(name in row for name in shared.operators)]
            per = holders if shared.per is SharedPer.SLOT else {slot.node: slot for slot in holders}.values()
            for slot in per:
                shared_of[slot.node] = shared_of.get(slot.node, 0.0) + shared.mb
    return shared_of


class Placer(Protocol):
    """A policy that chooses slots. Deterministic; ties break by declared order.

    `whole_cluster`: whether it can also place many pipelines with declared demands on one cluster (`place`); otherwise
    it needs the bundles of a model-based allocation.
    """

    name: ClassVar[str]
    whole_cluster: ClassVar[bool]
    keeps_resources: ClassVar[bool]
    """Whether in a plan it keeps dimensions beyond cpu and memory."""

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal: ...


@runtime_checkable
class KeepsConstraints(Protocol):
    """A placer that observes the constraints named in `keeps` by itself."""

    keeps: ClassVar[frozenset[Constraint]]


@runtime_checkable
class Repairs(Placer, Protocol):
    """A placer that repairs the placement of a whole cluster if a pipeline does not fit (see `repair`), and takes the
    cheapest of several placements that hold everything (see `penstock.planning.whole_cluster`)."""

    repairs: ClassVar[bool]

    def weighing(self, part: float) -> Placer:
        """The same placer, but for how much of a stream's weight (0 to 1) goes with what passes through it."""


@runtime_checkable
class Finishes(Protocol):
    """A placer that predicts the end of a second's work, and places threads beside those that stay."""

    slack: float
    """Share within which finish times count as equal: of such placements the one with the fewest moves is taken."""

    def finish_seconds(self, whole: Beside) -> float:
        """Return the end of a second's work, in seconds, for the threads of `whole` on their slots."""
        ...


@runtime_checkable
class KeepsCurrent(Protocol):
    """A placer that looks at what runs (`PlacementRequest.current`) and weighs by its own rule what moves."""

    keeps_current: ClassVar[bool]
