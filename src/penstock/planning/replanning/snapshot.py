"""The input and the output of a pass over a live cluster: nodes, pipelines with the plans that run, decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import BadInputError
from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, DEFAULT_DIMENSIONS, MEMORY, Cluster, Node, Slot
from penstock.dataflow.pipeline import Kind, topological_order
from penstock.modelling.library import demands_to_run
from penstock.modelling.model import Model
from penstock.planning.planner import Planner
from penstock.planning.prediction.placement import Routing
from penstock.planning.registry import DEFAULT_ALLOCATOR, DEFAULT_PLACER, DEFAULT_SEGMENTER
from penstock.planning.replanning.free_table import amount_of
from penstock.planning.replanning.plan_changes import ThreadMoves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Dimension
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.library import ModelLibrary
    from penstock.planning.allocation.contract import Allocation

FUSED = "fused"
PLACED = "placed"
SLOT = "slot"
"""The operator that stands for the whole pipeline in a plan of fused slots."""

DEFAULT_SLOT_MEMORY_MB = 1024.0

ASKED = (
    "pipeline",
    "rate",
    "allocator",
    "placer",
    "segmenter",
    "engine",
    "slot_memory_mb",
    "min_executor_mb",
    "slot_cpu",
    "max_slots",
    "max_nodes",
    "slots",
)
"""All that a plan depends on, besides nodes."""


class PassOutcome(StrEnum):
    """The result of a pass for one pipeline."""

    KEPT = "kept"
    """Its plan holds as it is."""
    PLANNED = "planned"
    """It has a new plan."""
    LAST_GOOD = "last good"
    """The new plan was refused; it keeps the plan it has."""
    WAITS = "waits"
    """It has no plan that can run."""


@dataclass(frozen=True, eq=False)
class RunningPlan:
    """The threads of a pipeline on their slots, and the request they were planned for."""

    rows: Mapping[Slot, Mapping[str, int]]
    demands: Mapping[str, tuple[float, ...]]
    """Demands of one thread by operator, in the order of the snapshot's dimensions."""
    asked: tuple[object, ...]
    rate: float
    """Tuples/s it is predicted to keep; infinite if nothing limits it."""
    floor: tuple[float, ...] = ()
    """Amounts that every slot takes at least, whatever runs on it."""
    sizes: Mapping[Slot, tuple[float, ...]] = field(default_factory=dict)
    """Amounts of slots whose executors kept their size while the demands of threads changed."""
    whole: bool = True
    """Whether it has all that was asked for; if not, it is looked at again in the next pass."""

    def amount(self, slot: Slot) -> NDArray[np.float64]:
        """Return what the executor of one slot takes of its node."""
        if slot in self.sizes:
            return np.array(self.sizes[slot])
        return at_least(amount_of(self.rows[slot], self.arrays), self.floor)

    @property
    def threads(self) -> int:
        return sum(sum(row.values()) for row in self.rows.values())

    @cached_property
    def by_operator(self) -> Mapping[str, int]:
        """Threads of each operator."""
        counts: Counter[str] = Counter()
        for row in self.rows.values():
            counts.update(row)
        return counts

    @cached_property
    def arrays(self) -> dict[str, NDArray[np.float64]]:
        return {name: np.array(demand) for name, demand in self.demands.items()}


@dataclass(frozen=True, eq=False)
class OnlinePipeline:
    """A pipeline of a live cluster: its definition, policies, limits and current plan."""

    name: str
    pipeline: Pipeline | None
    """None: nothing is known of it but its slots, which is enough for a fused one."""
    library: ModelLibrary
    rate: float
    """Tuples/s it is planned for: present or forecast, with headroom."""
    allocator: str = DEFAULT_ALLOCATOR
    placer: str = DEFAULT_PLACER
    segmenter: str = DEFAULT_SEGMENTER
    engine: str = PLACED
    slot_memory_mb: float = DEFAULT_SLOT_MEMORY_MB
    """Memory of an executor, which is also what 1.0 of a model's memory means."""
    min_executor_mb: float = 0.0
    """Memory that the executor of a placed slot takes at least."""
    slot_cpu: float = CPU_POINTS_PER_SLOT
    """Points of CPU of a fused slot."""
    priority: int = 0
    max_slots: int | None = None
    """The share the sharing policy grants."""
    max_nodes: int | None = None
    """Nodes it may be on, where shares are of whole nodes."""
    slots: int | None = None
    """Slots of a fused pipeline, or of one without models; None: those its allocation needs."""
    routing: Routing = Routing.SLOT_AWARE
    current: RunningPlan | None = None

    @cached_property
    def asked(self) -> tuple[object, ...]:
        """All that its plan depends on, besides nodes."""
        return tuple(getattr(self, name) for name in ASKED)

    @cached_property
    def known(self) -> Pipeline:
        if self.pipeline is None:
            raise BadInputError(f"pipeline '{self.name}' cannot be planned: its operators are not known")
        return self.pipeline

    @cached_property
    def planned(self) -> Pipeline:
        """The pipeline with a demand for every operator."""
        slots = self.slots or self.max_slots or len(self.known.operators)
        return declared_evenly(self.known, self.library, slots, self.min_executor_mb or self.slot_memory_mb)

    @property
    def is_isolated(self) -> bool:
        return self.pipeline is not None and self.pipeline.constraints.isolated

    @cached_property
    def planner(self) -> Planner:
        unit = Node("slot", "slot", 1, {CPU: CPU_POINTS_PER_SLOT, MEMORY: self.slot_memory_mb})
        return Planner(self.planned, self.library, Cluster((unit,)), routing=self.routing)


@dataclass(frozen=True)
class FleetSnapshot:
    """The nodes that are alive, what other applications have of them, and pipelines in the order of their rights."""

    nodes: Sequence[Node]
    pipelines: Sequence[OnlinePipeline]
    dimensions: tuple[Dimension, ...] = DEFAULT_DIMENSIONS
    held: Sequence[Slot] = ()
    """Slots that other applications hold."""
    used: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Amounts that other applications use, by node and dimension."""
    closed: frozenset[str] = frozenset()
    """Nodes on which what runs may stay and nothing more may start."""
    exclusive: bool = False
    """A node belongs to one pipeline: shares are of whole nodes."""


@dataclass(frozen=True, eq=False)
class PlanDecision:
    """The decision of a pass about one pipeline, with its reason."""

    pipeline: str
    outcome: PassOutcome
    before: RunningPlan | None
    after: RunningPlan | None
    """None: it waits."""
    moves: ThreadMoves
    required: int
    """Threads that could not stay: their node left or has too little memory, or their slot exceeds the share."""
    why: str
    rejected: tuple[str, ...] = ()
    """Alternatives that were tried, and why they were not taken."""
    shortage: str | None = None
    """The missing resource and the node that came closest, if a plan was refused."""
    allocation: Allocation | None = None


NO_MOVES = ThreadMoves(0, 0, 0, 0)


def at_least(amount: NDArray[np.float64], floor: tuple[float, ...]) -> NDArray[np.float64]:
    return np.asarray(np.maximum(amount, floor)) if floor else amount


def declared_evenly(pipeline: Pipeline, library: ModelLibrary, slots: int, executor_mb: float) -> Pipeline:
    """Return the pipeline with declared demands if an operator has no model: such operators are spread evenly.

    So are sources and sinks without a model. One thread each, and one more of each operator in turn until every slot
    has one; aggregations have one thread. With fewer slots than operators k = ceil(operators / slots) threads share a
    slot: each counts as 1/k of it.
    """
    order = topological_order(pipeline)
    demands = demands_to_run(pipeline, library)
    unknown = [name for name in order if demands[name] is None and not pipeline.operators[name].is_declared]
    if not unknown:
        return pipeline
    ends = [
        name
        for name, operator in pipeline.operators.items()
        if operator.kind is not Kind.OPERATOR and not operator.is_declared and not isinstance(demands[name], Model)
    ]
    several = [name for name in unknown if pipeline.operators[name].aggregate is None]
    threads = dict.fromkeys([*unknown, *ends], 1)
    for number in range(max(0, slots - len(order)) if several else 0):
        threads[several[number % len(several)]] += 1
    share = 1.0 / max(1, -(-len(order) // max(1, slots)))
    operators = [
        operator.model_copy(
            update={"threads": threads[name], "cpu": share * CPU_POINTS_PER_SLOT, "memory_mb": share * executor_mb}
        )
        if name in threads
        else operator
        for name, operator in pipeline.operators.items()
    ]
    return replace(pipeline, operators=MappingProxyType({operator.name: operator for operator in operators}))
