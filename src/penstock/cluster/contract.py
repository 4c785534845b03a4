"""The contract of a cluster manager: its nodes, who holds what, and how an application gets executors.

Callers are the engines (sessions and executors of one run), the controller (nodes, holders, quotas of all pipelines)
and `penstock plan --cluster live`. Implementations are found by the scheme of the master URL, in `CLUSTERS`.

Rules for implementations:

- A value that the manager does not know is None. It is never guessed.
- Reading methods return within seconds and may be one heartbeat old. `nodes` and `holdings` return None when the
  manager does not answer, which is different from "no nodes".
- A request that can never be met raises at once (`BadInputError`). A request that cannot be met now waits for its
  deadline and then says what was missing.

The planner's pure snapshot of a cluster is `penstock.cluster.topology.Cluster`; `ClusterManager.topology` returns one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, ClusterError
from penstock.base.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.topology import Cluster as Topology
    from penstock.cluster.topology import Slot


AppId = str
"""The id that the manager has given an application."""

DEADLINE_SECONDS = 60.0
POLL_SECONDS = 1.0


# Nodes and who holds what on them.


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as its manager sees it now. Resources are `cpu` (points, 100 are a core), `memory_mb` and custom ones."""

    name: str
    alive: bool = True
    host: str | None = None
    rack: str | None = None
    slots: int | None = None
    """Number of executors it takes; None if the manager counts resources only."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    free: Mapping[str, float | None] = field(default_factory=dict)
    """Amount left of each resource; None for one whose use the manager does not know."""
    labels: frozenset[str] = frozenset()
    price: float | None = None
    """Price per hour."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An application that holds a slot, or an executor of a manager whose slots have no numbers."""

    application: AppId
    name: str = ""
    executor: str | None = None
    cores: float | None = None
    memory_mb: float | None = None

    def __str__(self) -> str:
        return f"'{self.name}', {self.application}"


@dataclass(frozen=True, slots=True)
class Quota:
    """Amounts by resource that the manager admits for an application: of its queue, ResourceQuota or Kueue."""

    name: str
    max: Mapping[str, float] = field(default_factory=dict)
    guaranteed: Mapping[str, float] | None = None
    used: Mapping[str, float] | None = None
    pending: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """Nodes to add. `size` is a name of the provider's; None: like those that are there."""

    count: int = 1
    size: str | None = None


# Applications and their executors.


class Purpose(StrEnum):
    FUSED = "fused"
    """Executors are slots of one query; they come and go while it runs."""
    PLACED = "placed"
    """Every slot has a resource profile of its own, and executors come when tasks are put there."""


@dataclass(frozen=True, slots=True)
class AppRequest:
    """A Spark application to start."""

    name: str
    purpose: Purpose = Purpose.FUSED
    executors: int = 0
    """Executors to start with, on any node; 0 if they are acquired afterwards."""
    pinned: bool = False
    """Executors are acquired on named nodes or slots."""
    memory_mb: int = 1024
    """Memory of an executor that names no other."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark's; they win over those of the manager."""
    log: Path | None = None
    """File for the output of Spark's driver; None: kept only while the application runs."""
    scratch: Path | None = None
    ship_code: bool | None = None
    """Send this installation's modules to executors; None: if they are on other machines."""


@dataclass(slots=True)
class AppSession:
    """An application that runs: `spark` is its SparkSession, None on a simulated cluster. Use it as a context manager;
    the application ends with the block."""

    id: AppId
    spark: Any = None
    executors: Any = None
    """Counts, adds and ends executors of a fused application; None for others."""
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        if self.on_close is not None:
            ending, self.on_close = self.on_close, None
            ending()

    def __enter__(self) -> AppSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ExecutorSize:
    """The size of one executor."""

    memory_mb: int | None = None
    """None takes that of the application."""
    cores: int = 1


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """One executor: on a slot of a node, on any slot of a node, or anywhere. None for `memory_mb` takes that of the
    application."""

    node: str | None = None
    number: int | None = None
    cores: int = 1
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        if self.number is not None and self.node is None:
            raise BadInputError(f"slot {self.number}: name its node")
        if self.cores < 1 or (self.memory_mb is not None and self.memory_mb < 1):
            raise BadInputError(
                f"executor: expected at least 1 core and 1 MB, found {self.cores} and {self.memory_mb or 1}"
            )

    @property
    def size(self) -> ExecutorSize:
        return ExecutorSize(self.memory_mb, self.cores)

    def __str__(self) -> str:
        return "any node" if self.node is None else self.node if self.number is None else f"{self.node}/{self.number}"


class AcquisitionState(StrEnum):
    PENDING = "pending"
    GRANTED = "granted"
    EXPIRED = "expired"
    """The deadline passed. Slots that came by then stay until they are released; the others are not asked for."""
    FAILED = "failed"


class SlotAcquisition:
    """Slots that an application has asked for. The manager grants them in any order; `wait` blocks until it is over."""

    def __init__(self, app: AppId, asked: Sequence[SlotRequest], deadline: float = DEADLINE_SECONDS) -> None:
        self.app = app
        self.asked = tuple(asked)
        self.deadline = deadline
        self.state = AcquisitionState.PENDING
        self.why = ""
        """Reason if it expired or failed."""
        self._granted: dict[int, Slot] = {}
        self._changed = threading.Condition()
        self._watch = Stopwatch()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Slots that have come so far, in the order they were asked for."""
        return tuple(slot for _, slot in sorted(self._granted.items()))

    @property
    def missing(self) -> dict[int, SlotRequest]:
        """Requests that are not granted, by their place in `asked`."""
        return {place: request for place, request in enumerate(self.asked) if place not in self._granted}

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - self._watch.seconds())

    def grant(self, slots: Mapping[int, Slot]) -> None:
        """Grant slots, by the place of the request in `asked`."""
        with self._changed:
            self._granted.update(slots)
            if len(self._granted) == len(self.asked):
                self._end(AcquisitionState.GRANTED, "")

    def expire(self, why: str) -> None:
        with self._changed:
            short = f"{len(self.missing)} of {len(self.asked)} slots did not come within {self.deadline:g} s"
            self._end(AcquisitionState.EXPIRED, f"{short}: {why}" if why else short)

    def fail(self, why: str) -> None:
        with self._changed:
            self._end(AcquisitionState.FAILED, why)

    def _end(self, state: AcquisitionState, why: str) -> None:
        if self.state is AcquisitionState.PENDING:
            self.state, self.why = state, why
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Return whether all slots were granted, at the latest after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not AcquisitionState.PENDING, seconds)
        return self.state is AcquisitionState.GRANTED

    def result(self) -> tuple[Slot, ...]:
        """Wait for all slots, and raise `ClusterError` with the reason if they do not come."""
        if not self.wait():
            raise ClusterError(self.why)
        return self.slots


# Changes.


class ClusterEventKind(StrEnum):
    NODE_JOINED = "node joined"
    NODE_LOST = "node lost"
    NODE_RESIZED = "node resized"
    EXECUTOR_GAINED = "executor gained"
    EXECUTOR_LOST = "executor lost"
    EXECUTOR_REFUSED = "executor refused"
    SILENT = "manager does not answer"
    BACK = "manager answers again"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    kind: ClusterEventKind
    node: str | None = None
    slot: Slot | None = None
    application: AppId | None = None
    why: str = ""


class Watch(Protocol):
    """Changes since it was made. Iterating blocks until there is one, and ends after `close`."""

    def poll(self) -> list[ClusterEvent]:
        """Return the changes since the last call, without waiting."""

    def __iter__(self) -> Iterator[ClusterEvent]: ...

    def close(self) -> None: ...


# The contract.


class ClusterManager(Protocol):
    """A cluster manager. Methods with a body are optional: an implementation inherits them."""

    master: str
    """Master URL of a session."""

    @property
    def pins(self) -> bool:
        """Whether executors can be put on named nodes and slots."""
        return False

    @property
    def is_on_this_machine(self) -> bool:
        """Whether all nodes are processes of this machine, and share its cores."""
        return False

    def nodes(self) -> Sequence[NodeState] | None:
        """Return all nodes, also those that are not alive, in a stable order."""

    def holdings(self) -> Mapping[Slot, Holder] | None:
        """Return who holds each slot, applications of others included. A manager without numbered slots numbers the
        executors of a node; a number stays the same while the executor lives."""

    def topology(self) -> Topology | None:
        """Return the planner's snapshot of all nodes; None if their slots are not known."""
        from penstock.cluster.books import topology_of  # noqa: PLC0415 - it imports these values

        nodes = self.nodes()
        return None if nodes is None else topology_of(nodes)

    def session(self, app: AppRequest) -> AppSession:
        """Start an application. Raises `BadInputError` if no manager answers."""

    def acquire(self, app: AppId, slots: Sequence[SlotRequest], deadline: float = DEADLINE_SECONDS) -> SlotAcquisition:
        """Ask for executors of an application that this process has started; return at once."""

    def release(self, app: AppId, slots: Sequence[Slot]) -> None:
        """End the executors on these slots. Raises `ClusterError` if the application does not hold one of them."""

    def quota(self, app: AppId | None = None) -> Quota | None:
        """Return what the manager admits; None if the nodes are the only limit."""
        return None

    def refusals(self) -> Sequence[ClusterEvent]:
        """Return the acquisitions of this process that expired or failed, the oldest first."""
        return ()

    def watch(self, every: float = POLL_SECONDS) -> Watch:
        """Return the changes from now on; the manager is asked `every` seconds."""
        from penstock.cluster.books import PolledWatch  # noqa: PLC0415 - it imports these values

        return PolledWatch(self, every)

    def add_nodes(self, request: NodeRequest) -> Sequence[NodeState]:
        """Ask the provider for nodes; they join later, or do not."""
        raise ClusterError(f"cluster '{self.master}': nothing here can add nodes; ask those who run it")

    def remove_node(self, name: str) -> None:
        """Release a node on which nothing of ours runs any more."""
        raise ClusterError(f"cluster '{self.master}': nothing here can remove node '{name}'; ask those who run it")


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Place of a cluster: the argument of an entry of the registry."""

    master: str
    secret_file: Path | None = None
    folder: str | Path | None = None
    """State folder of the cluster of this machine; None: the user's."""
    web_url: str | None = None
    """Page of a standalone Master; None: port 8080 of its hosts."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """Rack by node, for managers that do not know racks."""


# Cluster managers by the scheme of the master URL.


OWN = "cluster"
"""Master of the cluster that `penstock cluster up` has started."""
EXPECTED_MASTER = "expected local[N], spark://HOST:PORT, yarn, k8s://... or cluster"

CLUSTERS: Registry[Callable[[ClusterAddress], ClusterManager]] = Registry(
    kind="cluster manager",
    group="penstock.clusters",
    built_in={
        OWN: "penstock.spark.clusters.local.cluster:open_own",
        "local-cluster": "penstock.spark.clusters.local.cluster:open_own",
        "spark": "penstock.spark.clusters.local.cluster:open_spark",
        "yarn": "penstock.spark.clusters.spark_cluster:open_any",
        "k8s": "penstock.spark.clusters.spark_cluster:open_any",
        "simulated": "penstock.cluster.simulated:open_simulated",
    },
)


def open_cluster(
    master: str | None = None,
    *,
    secret_file: Path | None = None,
    folder: str | Path | None = None,
    web_url: str | None = None,
) -> ClusterManager:
    """Return the cluster at a master URL; None asks for the one of `penstock cluster up`.

    Nothing is started. The secret of the cluster of this machine is read from its folder if no file is given.
    """
    wanted = master or OWN
    scheme = wanted.partition(":")[0]
    if scheme not in CLUSTERS.names():
        raise BadInputError(f"master '{wanted}': {EXPECTED_MASTER}")
    cluster: ClusterManager = CLUSTERS.load(scheme)(ClusterAddress(wanted, secret_file, folder, web_url))
    return cluster
