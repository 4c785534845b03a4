"""A plan made ready for a cluster: everything about it that can be known, and be wrong, before Spark is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock import api
from penstock.cluster.topology import Slot
from penstock.dataflow.load import Load, parse_load
from penstock.dataflow.pipeline import Grouping, Pipeline
from penstock.dataflow.rates import gains
from penstock.errors import BadInputError, nearest
from penstock.modelling.model import Model
from penstock.prediction.machine import machine_rate
from penstock.prediction.rate import Routing
from penstock.running import batch_cpu_seconds, check_streams, demands_to_run, logic_of, runnable
from penstock.segmentation.on_slots import segments_on_slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.planning.file import SavedPlan
    from penstock.prediction.rate import Demands
    from penstock.running import RunnableLike
    from penstock.segmentation.contract import Segment
    from penstock.spark.bundles import Bundle
    from penstock.spark.cluster_state import RunningCluster
    from penstock.spark.file_feed import FileFeed

TICKET_SECONDS = 1.0
"""Tickets hold at most so much work."""
DEFAULT_PLACED_SEGMENTER = "ends"
FIRST_ROWS = 100
"""Rows of the first tickets of a bundle nobody has a model of."""


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
    """What runs as one: what the segmenter joins, where it sits together."""

    def able(self, operator: str, threads: int) -> float:
        demand = self.demands[operator]
        return demand.rate(threads) if isinstance(demand, Model) else float(threads)

    def bundles(self, generation: int, feed: FileFeed) -> list[Bundle]:
        from penstock.spark.bundles import make_bundles  # noqa: PLC0415 - Spark loads only when it is used

        logic = {**logic_of(self.pipeline), **feed.logic}
        return make_bundles(self.pipeline, logic, self.threads, self.load, self.able, generation, self.segments)

    def most_rows(self, bundle: Bundle) -> int:
        """As many as the models say are worth a ticket's seconds: `seconds / sum 1 / I_i(t_i)`."""
        busy = sum(
            1 / demand.rate(step.threads)
            for step in bundle.steps
            if isinstance(demand := self.demands[step.operator], Model)
        )
        rows = TICKET_SECONDS / busy if busy else FIRST_ROWS
        if bundle.load is not None:
            due = max(FIRST_ROWS, self.load.peak_rate * TICKET_SECONDS)
            return int(min(due, rows) if busy else due)
        return int(rows)

    def slots_rate(self) -> float | None:
        rates = self.plan.prediction.get("rate", {})
        found = rates.get("slot_aware" if self.routing is Routing.SLOT_AWARE else "declared")
        return float(found) if isinstance(found, int | float) else None

    def machine_rate(self, cores: int, bundles: int) -> float | None:
        models = [demand for demand in self.demands.values() if isinstance(demand, Model)]
        if not models:
            return None
        each = batch_cpu_seconds(models)
        return machine_rate(gains(self.pipeline), self.demands, self.threads, cores, bundles / TICKET_SECONDS, each)

    def predicted_slots(self) -> dict[Slot, tuple[float, float]]:
        rows = self.plan.prediction.get("slots", [])
        return {Slot(row["node"], row["slot"]): (row["cpu"], row["memory"]) for row in rows}


def prepare_placed(
    plan: RunnableLike,
    rate: float | str | Load | None,
    models: api.ModelsLike,
    routing: Routing | str | None,
    given: Pipeline | None = None,
    segmenter: str = DEFAULT_PLACED_SEGMENTER,
    segments: Sequence[Sequence[str]] | None = None,
) -> PlacedJob:
    """`given`: the pipeline itself, where its code exists only in Python. `segments`: those of a run to go on with."""
    found, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan: penstock plan PIPELINE --rate R -o PLAN.json")
    pipeline = given or found
    check_streams(pipeline)
    wanted = _routing(routing or saved.prediction.get("routing") or Routing.SHUFFLE)
    if wanted is Routing.SLOT_AWARE:
        streams = [
            one.model_copy(update={"grouping": Grouping.SLOT_AWARE}) if one.grouping is Grouping.SHUFFLE else one
            for one in pipeline.streams
        ]
        pipeline = Pipeline.of(pipeline.name, pipeline.operators.values(), streams)
    offered = saved.rate if rate is None else rate
    load = offered if isinstance(offered, Load) else parse_load(str(offered))
    logic_of(pipeline)
    threads = saved.threads_by_slot()
    demands = demands_to_run(pipeline, api.models(models))
    if segments is None:
        cut = api.segments(pipeline, segmenter=segmenter, rate=load.peak_rate, models=models)
        segments = segments_on_slots(pipeline, cut.segments, threads)
    elif sorted(name for segment in segments for name in segment) != sorted(pipeline.operators):
        raise BadInputError(f"the segments of the run are not those of pipeline '{pipeline.name}'")
    return PlacedJob(pipeline, saved, threads, demands, load, wanted, segmenter, tuple(map(tuple, segments)))


def _routing(given: Routing | str) -> Routing:
    try:
        return Routing(given)
    except ValueError as error:
        raise BadInputError(f"routing: unknown '{given}'; {nearest(str(given), Routing)}") from error


def check_nodes(job: PlacedJob, cluster: RunningCluster) -> None:
    """The cluster must have the nodes and slots the plan names."""
    offered = {node.name: node.slots for node in cluster.nodes}
    for slot in job.threads:
        if slot.number >= offered.get(slot.node, 0):
            has = f"has {offered[slot.node]} slots" if slot.node in offered else "is not there"
            raise BadInputError(
                f"the plan uses slot {slot}, but node '{slot.node}' of the cluster {has}; plan for this cluster: "
                f"penstock plan PIPELINE --rate R --cluster {cluster.folder / 'cluster.yaml'} -o PLAN.json"
            )
