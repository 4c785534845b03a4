"""What a sharing policy is asked and what it answers: how much of the cluster each pipeline gets.

A sharer gets `Tenants` (the cluster and all who want of it) and returns `Shares`. It moves nothing: which nodes
those are, and what has to move for it, is decided by `penstock.planning.sharing.share`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from penstock.base.errors import BadInputError, nearest
from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB, MOST_NODES
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.cluster.topology import Slot


class Divides(StrEnum):
    """What a policy hands out."""

    NODES = "nodes"
    """Whole nodes, each to one pipeline."""
    SLOTS = "slots"
    """Single slots: pipelines share nodes. A share counts slots in nodes, so it may be a fraction."""
    RESOURCES = "resources"
    """Nodes' worth of declared resources: as many as fit in every resource, so perhaps more than there are nodes."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Every pipeline's share in standard nodes, and of those who got less than they can run with, why."""

    policy: str
    nodes: Mapping[str, float]
    waiting: Mapping[str, str]
    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Where policies that divide slots put the workers."""
    takers: tuple[Tenant, ...] = ()
    """In which order pipelines take nodes, where that is not level by level."""


class Sharer(Protocol):
    """One way of dividing a cluster. Pure and deterministic; what nothing else decides, submission order does.

    No policy hands out more than there is or gives a pipeline more than it desires. What else it promises it says
    here, and the tests hold it to that over random clusters.
    """

    name: ClassVar[str]
    published: ClassVar[bool]
    """Kept as its publication has it, weaknesses included."""
    divides: ClassVar[Divides]
    keeps_minima: ClassVar[bool]
    """Nobody gets less than its minimum while all minima fit; when they do not, nobody gets a part it cannot use."""
    wastes_nothing: ClassVar[bool]
    """Nothing stays unused while a pipeline wants it and can use it."""
    obeys_priority: ClassVar[bool]
    """Of two pipelines alike in everything but priority, the higher one never gets less."""

    def share(self, tenants: Tenants) -> Shares: ...


@runtime_checkable
class RejectsLate(Protocol):
    """A policy with a rule of its own for divisions that miss deadlines."""

    def divisions(self, tenants: Tenants) -> Iterator[Shares]:
        """Yield divisions, the fairest first, each one the next to try if the one before it is rejected."""


def late_in(shares: Shares, tenants: Tenants) -> tuple[str, ...]:
    """Return the pipelines that would miss their deadline."""
    return tuple(tenant.name for tenant in tenants.pipelines if shares.nodes[tenant.name] < tenant.in_time)


def short_of_minimum(tenants: Tenants, nodes: Mapping[str, float], reason: str) -> dict[str, str]:
    """The pipelines below their minimum, with how far and the policy's reason."""
    return {
        tenant.name: f"{got_of(nodes[tenant.name], tenant)}; {reason}"
        for tenant in tenants.pipelines
        if nodes[tenant.name] < tenant.minimum
    }


def got_of(got: float, tenant: Tenant) -> str:
    return f"gets {got:g} of at least {tenant.minimum} {counted(tenant.minimum)}"


def counted(nodes: float) -> str:
    return "node" if nodes == 1 else "nodes"


# Tenants of a cluster: pipelines with their desired size and the minimum they need to run.
#
# `desired` and `minimum` count standard nodes. A node with several times the slots of a standard one counts as several,
# so a policy divides one whole number whatever the nodes are like.


MOST_THREADS = 5_000_000
"""Of all pipelines together: every single one is dealt to a slot."""

DEFAULT_SLOTS = 2
"""Slots of a node where only the number of nodes is said: one per core of the machines the publication used."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """What one pipeline asks of the cluster, and what it has been given so far."""

    name: str
    desired: int
    minimum: int = 1
    """Fewer nodes than this are of no use to it."""
    priority: int = 1
    """Level 1 is the highest."""
    workers: int | None = None
    """Slots it wants; None: every slot of the nodes it desires."""
    threads: int | None = None
    """None: one per worker."""
    waited: float = 0.0
    """Seconds since it last had its minimum; 0 while it has it."""
    fairness: float = 1.0
    """Fairness degree so far: what it was given of what it needed, in [0, 1]."""
    needed: int | None = None
    """Nodes its present rate needs; None: the number it desires."""
    in_time: int = 0
    """Nodes with which its response time is predicted to keep its deadline; 0: it has none."""
    resources: Mapping[str, float] | None = None
    """Demand of one node's worth of it; None: all of a standard node."""
    current: tuple[str, ...] = ()
    """Names of the nodes it holds now."""
    layout: Mapping[Slot, tuple[int, ...]] | None = None
    """Which of its threads (from 0) sit on which slot now; None: dealt out in turn."""

    @property
    def wanted(self) -> int:
        """Nodes it can use now: `clamp(needed, minimum, desired)`."""
        return self.desired if self.needed is None else min(max(self.needed, self.minimum), self.desired)


@dataclass(frozen=True)
class Tenants:
    """A cluster and those who share it, in the order they were submitted."""

    cluster: Cluster
    pipelines: tuple[Tenant, ...]
    slots: int = field(default=DEFAULT_SLOTS)
    """Slots of one standard node."""

    @classmethod
    def of(
        cls, nodes: int | Cluster, pipelines: Iterable[Tenant], slots: int | None = None, where: str = ""
    ) -> Tenants:
        """Checked; `slots` of a standard node: those of the smallest node unless said."""
        prefix = f"{where}: " if where else ""
        if isinstance(nodes, Cluster):
            cluster = nodes
            standard = slots or min((node.slots for node in cluster.nodes), default=DEFAULT_SLOTS)
        else:
            standard = slots or DEFAULT_SLOTS
            cluster = equal_nodes(nodes, standard, where)
        made = cls(cluster, tuple(pipelines), standard)
        try:
            made._check()
        except BadInputError as error:
            raise BadInputError(f"{prefix}{error}") from error
        return made

    def _check(self) -> None:
        if not self.pipelines:
            raise BadInputError("pipelines: expected at least one pipeline")
        if not self.cluster.nodes:
            raise BadInputError("nodes: expected at least one node")
        for node in self.cluster.nodes:
            if node.slots % self.slots:
                raise BadInputError(
                    f"nodes: '{node.name}' has {node.slots} slots, which is no whole number of standard nodes of "
                    f"{self.slots} slots; set `slots` to a divisor of both and count desired and minimum in those"
                )
        threads = 0
        seen: set[str] = set()
        holder: dict[str, str] = {}
        offered = {dimension.name for dimension in self.cluster.dimensions}
        for tenant in self.pipelines:
            where = f"pipeline '{tenant.name}'"
            if tenant.name in seen:
                raise BadInputError(f"{where} is declared twice")
            seen.add(tenant.name)
            _check_amounts(tenant, where)
            threads += self.threads(tenant)
            if threads > MOST_THREADS:
                raise BadInputError(
                    f"{where}: its {self.threads(tenant):,} threads (one for every slot of the nodes it desires, "
                    f"unless `threads` is set) make {threads:,}, more than the limit of {MOST_THREADS:,} for all "
                    "pipelines; lower `desired` or set `threads`"
                )
            for name in tenant.resources or ():
                if name not in offered:
                    raise BadInputError(f"{where}: resources: no node offers '{name}'; {nearest(name, offered)}")
            for node_name in tenant.current:
                if holder.setdefault(node_name, tenant.name) != tenant.name:
                    raise BadInputError(f"{where}: current: node '{node_name}' is held by '{holder[node_name]}' too")
            if len(set(tenant.current)) < len(tenant.current):
                raise BadInputError(f"{where}: current: a node is named twice")

    @cached_property
    def capacity(self) -> int:
        """The whole cluster in standard nodes."""
        return sum(map(self.size, self.cluster.nodes))

    @cached_property
    def needed(self) -> int:
        """All minima together."""
        return sum(tenant.minimum for tenant in self.pipelines)

    def size(self, node: Node) -> int:
        """A node in standard nodes."""
        return node.slots // self.slots

    @cached_property
    def levels(self) -> dict[int, list[Tenant]]:
        """Pipelines by priority, highest level first, in submission order inside one."""
        table: dict[int, list[Tenant]] = {}
        for tenant in sorted(self.pipelines, key=lambda tenant: tenant.priority):
            table.setdefault(tenant.priority, []).append(tenant)
        return table

    def workers(self, tenant: Tenant) -> int:
        return tenant.workers if tenant.workers is not None else tenant.desired * self.slots

    def threads(self, tenant: Tenant) -> int:
        return tenant.threads if tenant.threads is not None else self.workers(tenant)

    def on(self, nodes: int) -> Tenants:
        """The same pipelines on so many standard nodes."""
        return replace(self, cluster=equal_nodes(nodes, self.slots, ""))


def _check_amounts(tenant: Tenant, where: str) -> None:
    for what, whole in (("desired", tenant.desired), ("minimum", tenant.minimum), ("priority", tenant.priority)):
        _check_count(whole, f"{where}: {what}")
    if tenant.minimum > tenant.desired:
        raise BadInputError(f"{where}: minimum {tenant.minimum} is above desired {tenant.desired}")
    if tenant.in_time:
        _check_count(tenant.in_time, f"{where}: in_time")
    for what, count in (("workers", tenant.workers), ("threads", tenant.threads), ("needed", tenant.needed)):
        if count is not None:
            _check_count(count, f"{where}: {what}")
    if not 0 <= tenant.waited < float("inf"):
        raise BadInputError(f"{where}: waited: expected seconds of at least 0, found {tenant.waited:g}")
    if not 0 <= tenant.fairness <= 1:
        raise BadInputError(f"{where}: fairness: expected a share from 0 to 1, found {tenant.fairness:g}")
    for name, amount in (tenant.resources or {}).items():
        if not 0 <= amount < float("inf"):
            raise BadInputError(f"{where}: resources: {name}: expected a finite amount of at least 0, found {amount:g}")
    if tenant.resources is not None and not any(amount > 0 for amount in tenant.resources.values()):
        raise BadInputError(f"{where}: resources: expected at least one amount above 0")


def _check_count(count: object, where: str) -> None:
    """Files are checked when they are read; Python may hand over anything."""
    if not isinstance(count, int) or count < 1:
        raise BadInputError(f"{where}: expected a whole number of at least 1, found {count!r}")


def equal_nodes(count: int, slots: int, where: str) -> Cluster:
    """`count` nodes n1, n2, ... of `slots` slots."""
    if not isinstance(count, int) or not 1 <= count <= MOST_NODES:
        prefix = f"{where}: " if where else ""
        raise BadInputError(f"{prefix}nodes: expected 1 to {MOST_NODES:,} nodes, found {count}")
    capacity = MappingProxyType({CPU: CPU_POINTS_PER_SLOT * slots, MEMORY: DEFAULT_SLOT_MEMORY_MB * slots})
    return Cluster(tuple(Node(f"n{number}", "r1", slots, capacity) for number in range(1, count + 1)))
