"""A plan made ready for a cluster: everything about it that can be known, and be wrong, before Spark is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.base.text import one_of
from penstock.cluster.file import NodesEntry, build_cluster
from penstock.dataflow.load import parse_load
from penstock.inputs.finders import (
    RunnableLike,
    find_code_beside,
    find_models_for,
    logic_of,
    runnable,
    segments_of,
)
from penstock.modelling.library import demands_to_run, placed_demands
from penstock.modelling.model import Model
from penstock.planning.prediction.placed import PlacedSetup
from penstock.planning.prediction.placement import Routing, routed
from penstock.planning.registry import DEFAULT_PLACED_SEGMENTER
from penstock.planning.segmentation import segments_on_slots
from penstock.runs.config import PLACED, RunConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Cluster, Slot
    from penstock.dataflow.load import Load
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.placed.bundle_plan import Code, LaidOut
    from penstock.modelling.library import ModelLibrary
    from penstock.planning.files import SavedPlan
    from penstock.planning.prediction.forecast import RunForecast
    from penstock.planning.prediction.placement import Demands
    from penstock.planning.segmentation import Segment


@dataclass(frozen=True)
class PlacedJob:
    """A pipeline, its plan, and what is offered to it."""

    pipeline: Pipeline
    plan: SavedPlan
    threads: Mapping[Slot, Mapping[str, int]]
    demands: Demands
    load: Load
    routing: Routing
    segmenter: str
    segments: tuple[Segment, ...]
    """Operators that run as one: those that the segmenter joins and that share their slots."""
    library: ModelLibrary
    """Models it was planned with."""
    config: RunConfig
    given: Pipeline | None = None
    """The pipeline whose code exists only in Python."""
    sizes: Mapping[Slot, ExecutorSize] = field(default_factory=dict)
    """Executors that a controller ordered, by slot; on other slots they have the engine's own size."""

    def capacity(self, operator: str, threads: int) -> float:
        demand = self.demands[operator]
        return demand.rate(threads) if isinstance(demand, Model) else float(threads)

    def laid_out(self, code: Code, plan: str, threads: Mapping[Slot, Mapping[str, int]] | None = None) -> LaidOut:
        """As bundles; `threads`: those of the plan on other slots than it names."""
        from penstock.engines.placed.bundle_plan import lay_out  # noqa: PLC0415 - Spark loads only when it is used

        where = self.threads if threads is None else threads
        segments = segments_on_slots(self.pipeline, self.segments, where)
        return lay_out(code, segments, where, self.capacity, plan, self.memory_mb)

    @property
    def memory_mb(self) -> Mapping[Slot, int | None]:
        """Memory of the executors that were ordered, by slot."""
        return {slot: size.memory_mb for slot, size in self.sizes.items()}

    def setup(self, cores: int | None) -> PlacedSetup:
        """Return how it runs. `cores`: of the machine all slots are on; None: every slot has a core of its own."""
        there = segments_on_slots(self.pipeline, self.segments, self.threads)
        return PlacedSetup(self.pipeline, self.demands, self.threads, there, self.routing, cores)

    def slots_rate(self) -> float | None:
        """Highest rate of the plan's slots; the rate in the plan if no operator has a model."""
        if any(isinstance(demand, Model) for demand in self.demands.values()):
            return self.setup(None).slots_rate()
        rates = self.plan.prediction.get("rate", {})
        rate = rates.get("slot_aware" if self.routing is Routing.SLOT_AWARE else "declared")
        return float(rate) if isinstance(rate, int | float) else None

    def forecast(self, cores: int | None) -> RunForecast:
        return self.setup(cores).forecast(self.load.peak_rate)


def prepare_placed(
    plan: RunnableLike,
    config: RunConfig | None = None,
    given: Pipeline | None = None,
    segments: Sequence[Sequence[str]] | None = None,
) -> PlacedJob:
    """Check everything about a run that can be wrong before Spark is started. `given`: the pipeline itself, if its code
    exists only in Python. `segments`: those of a run that is resumed."""
    config = (config or RunConfig()).for_engine(PLACED)
    find_code_beside(plan)
    pipeline_of_plan, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan, not a pipeline: make one with `plan`")
    pipeline = given or pipeline_of_plan
    wanted = one_of(Routing, config.routing or saved.prediction.get("routing") or Routing.SHUFFLE, "routing")
    pipeline = routed(pipeline, wanted)
    load = config.load or parse_load(str(saved.rate))
    logic_of(pipeline)
    threads = saved.threads_by_slot()
    library = find_models_for(saved, config.models)
    demands = placed_demands(demands_to_run(pipeline, library))
    segmenter = config.segmenter or saved.segmenter or DEFAULT_PLACED_SEGMENTER
    if segments is None:
        cut = segments_of(pipeline, segmenter=segmenter, rate=load.peak_rate, models=library)
        segments = segments_on_slots(pipeline, cut.segments, threads)
    elif sorted(name for segment in segments for name in segment) != sorted(pipeline.operators):
        raise BadInputError(f"the segments of the run are not those of pipeline '{pipeline.name}'")
    cut_as = tuple(map(tuple, segments))
    return PlacedJob(pipeline, saved, threads, demands, load, wanted, segmenter, cut_as, library, config, given)


def cluster_of(plan: SavedPlan) -> Cluster:
    """As far as the plan knows it: nodes, racks and slots, each as large as slots usually are."""
    entries = [NodesEntry(name=node.name, rack=node.rack, slots=node.slots) for node in plan.nodes]
    return build_cluster(entries, {}, "plan")


def check_nodes(job: PlacedJob, cluster: Cluster) -> None:
    """Raise if the cluster lacks a node or slot that the plan names."""
    offered = {node.name: node.slots for node in cluster.nodes}
    for slot in job.threads:
        if slot.number >= offered.get(slot.node, 0):
            has = f"has {offered[slot.node]} slots" if slot.node in offered else "is not there"
            raise BadInputError(
                f"the plan uses slot {slot}, but node '{slot.node}' of the cluster {has}; plan for this cluster "
                "(penstock plan --cluster live)"
            )
