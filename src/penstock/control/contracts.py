"""What carries out orders: Spark drivers, or pipelines in simulated time, behind one contract.

Orders say what is wanted, not what to do: they may come twice, late, or again from a controller that started anew. What
has come of them is observed, and comes back as values the core understands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from penstock.base.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from penstock.cluster.contract import Holder
    from penstock.cluster.contract import NodeState as ManagedNode
    from penstock.cluster.topology import Slot
    from penstock.control.core.messages import Observation, PipelineOrder
    from penstock.control.core.records import NodeRecord, Submission
    from penstock.control.deployment import Analysis, DeployPlan, RoundReading
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.library import ModelLibrary


class Executors(Protocol):
    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        """From now on this is wanted. `fence` is the number of the controller's lease: whoever has heard of a higher
        one does not listen."""

    def observe(self, now: float) -> list[Observation]:
        """What has happened since the last time, in order."""

    def close(self) -> None:
        """The controller goes away; pipelines flow on."""


@dataclass(frozen=True, slots=True)
class SeenNodes:
    """One answer of a cluster manager: nodes by name, and who holds their slots (None if it does not tell)."""

    nodes: Mapping[str, ManagedNode]
    holdings: Mapping[Slot, Holder] | None = None


class Nodes(Protocol):
    """Where nodes come from."""

    def acquire(self, count: int, size: str | None) -> list[NodeRecord]:
        """Asked for; they join later, or do not."""

    def release(self, name: str) -> None:
        """Nothing runs there any more."""

    def observe(self, now: float) -> list[Observation]:
        """Who joined and who was lost since the last time."""

    def seen(self) -> SeenNodes | None:
        """Return what the cluster manager last said about its nodes; None if no manager is asked."""

    def lingering(self) -> list[float | None]:
        """Prices of nodes that were released and are still there: they are paid for."""


# Sizing: the core asks, models answer.


class Sizing(Protocol):
    """Pure: the same submission and rate give the same answer. None where no model says anything.

    The allocator is that of the submission's choices."""

    def definition(self, submission: Submission) -> tuple[Pipeline, ModelLibrary] | None:
        """The pipeline and the models it is planned with; None: only slots are known of it."""

    def units_for(self, submission: Submission, rate: float) -> int | None: ...

    def units_to_place(self, submission: Submission) -> int:
        """The units that a placed pipeline needs of which `units_for` says nothing."""

    def rate_on(self, submission: Submission, units: int) -> float | None: ...

    def usage(self, submission: Submission, rate: float) -> tuple[float, float] | None:
        """Cores and MB its executors need for so many tuples/s."""

    def gains_of(self, submission: Submission) -> Mapping[str, float]:
        """Tuples that come to each operator for one of a source's."""

    def batch_cost(self, submission: Submission) -> float:
        """Seconds a batch takes whatever it holds, as profiled."""


# Contract of a node provider. It may be slow, fail or lie: callers trust only `list`, and only for a limited time.


class ProviderError(PenstockError):
    """A provider did not do what it was asked to; nodes stay as they were."""


@dataclass(frozen=True, slots=True)
class ProvidedNode:
    name: str
    slots: int
    rack: str = "r1"
    memory_mb: float | None = None
    price: float | None = None
    """Per hour."""
    alive: bool = True
    capacity: Mapping[str, float] | None = None
    """Amount of every resource, if the provider knows it."""


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """Slots of one more node, and its price for an hour."""

    slots: int
    price: float | None = None


@dataclass(frozen=True, slots=True)
class ProviderSetting:
    """What a provider may need to know of the controller: the folder of its cluster, the address of the master for new
    nodes, and the price of a node that the provider itself does not know."""

    folder: Path
    master: str = ""
    price: float | None = None


class Provider(Protocol):
    @classmethod
    def offer(cls, options: str) -> NodeOffer | None:
        """Return what one more node is, from the options a user gave; None: as the nodes that are there. Raises
        `BadInputError` if the options are wrong."""

    @classmethod
    def make(cls, options: str, setting: ProviderSetting) -> Provider: ...

    def acquire(self, count: int, size: str | None) -> list[ProvidedNode]:
        """Nodes that were asked for, by the names they will have; they come later, or do not."""

    def release(self, name: str) -> None:
        """Nothing runs there any more."""

    def list(self) -> list[ProvidedNode]:
        """All there are now."""


# Contract of a forecast: a value that learns from the load over time and predicts the highest load expected soon.
#
# `after` is called with the smoothed load once per `BUCKET_SECONDS`, in order of time; it returns the new forecast
# (nothing is changed in place: forecasts are part of the memory). `highest` returns None if nothing is known.


BUCKET_SECONDS = 600.0


class Forecast(Protocol):
    def after(self, start: float, mean_rate: float) -> Self:
        """From `start` (seconds since the epoch) for a bucket's time it was `mean_rate`."""

    def highest(self, now: float, ahead: float, level: float) -> float | None:
        """The highest rate expected within `ahead` seconds, where it is `level` now."""


# Contract of a round planner: from the costs a round was planned with and its reading, the costs for the next round.
#
# Costs are factors of the modelled costs, by operator. `measured` returns absolute costs, `published` raises them step
# by step; the loop plans again with the returned costs and stops when the plan stays the same.


class RoundPlanner(Protocol):
    name: ClassVar[str]

    def next_costs(
        self, costs: Mapping[str, float], plan: DeployPlan, reading: RoundReading, analysis: Analysis
    ) -> dict[str, float]: ...
