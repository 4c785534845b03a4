"""Plan a pipeline, compare policies and plans, find capacities, segment and rewrite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.former_names import former_keywords
from penstock.cluster.topology import Acquisition, Catalogue
from penstock.inputs.finders import (
    LIVE,
    ClusterLike,
    ModelsLike,
    PipelineLike,
    PlanLike,
    capacities,
    capacity_step,
    find_models,
    find_pipeline,
    plan_at,
    planner_of,
    saved_plan,
    segments_of,
)
from penstock.planning.compare import Compared, pairs
from penstock.planning.compare import compare as compare_policies
from penstock.planning.plan import FUSED
from penstock.planning.prediction.placement import DEFAULT_BATCH_INTERVAL_MS, Routing
from penstock.planning.registry import DEFAULT_SEGMENTER
from penstock.planning.replanning.plan_changes import PlanDiff
from penstock.planning.replanning.plan_changes import diff as diff_plans
from penstock.planning.rewrite import DEFAULT_FACTOR, RewrittenPipeline
from penstock.planning.rewrite import rewrite as rewrite_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.cluster.topology import Cluster
    from penstock.planning.capacity import Capacity
    from penstock.planning.plan import Plan
    from penstock.planning.segmentation import Segmentation


@former_keywords(load="utilisation", interval_ms="batch_interval_ms")
def plan(
    pipeline: PipelineLike,
    rate: float,
    *,
    allocator: str | None = None,
    placer: str | None = None,
    models: ModelsLike = None,
    cluster: ClusterLike = None,
    catalogue: Catalogue | str | Path | None = None,
    acquisition: Acquisition | str = Acquisition.COVER,
    routing: Routing | str = Routing.SLOT_AWARE,
    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS,
    explain: bool = False,
    current: PlanLike | None = None,
    move_cost: float | None = None,
    utilisation: float = 1.0,
    engine: str = FUSED,
    confidence: float = 0.5,
) -> Plan:
    """What it takes to run `pipeline` at `rate` tuples/s, on a given cluster or on machines rented from a catalogue.

    `allocator` and `placer` default to `mba` and `sam`, or to those of `current`, the plan that runs: with it, threads
    stay where they are unless moving keeps more of the rate, or pays: a thread that moves counts as `move_cost` slots
    (0.01). `eft` and `balanced-eft` weigh that by their own rule. With a target `utilisation` of 0.8 the plan is sized
    for `rate / 0.8`. The cluster "live" is the free part of the one that runs here. The verdict of the plan is about a
    run by `engine` (`fused` or `placed`), whose slots are those that keep the rate with probability `confidence`.
    """
    live = None
    if str(cluster) == LIVE:
        from penstock.api.live import live_cluster  # noqa: PLC0415 - needs the extra `control`

        live = live_cluster()
        cluster = live.cluster
    planner = planner_of(
        pipeline,
        models=models,
        cluster=cluster,
        catalogue=catalogue,
        acquisition=acquisition,
        routing=routing,
        batch_interval_ms=batch_interval_ms,
        explain=explain,
        engine=engine,
        confidence=confidence,
    )
    made = plan_at(
        planner, rate, allocator=allocator, placer=placer, current=current, move_cost=move_cost, utilisation=utilisation
    )
    return made if live is None else live.numbered(made)


def compare(
    pipeline: PipelineLike,
    rate: float,
    *,
    models: ModelsLike = None,
    cluster: ClusterLike = None,
    catalogue: Catalogue | str | Path | None = None,
    acquisition: Acquisition | str = Acquisition.COVER,
    routing: Routing | str = Routing.SLOT_AWARE,
    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS,
    allocator: str | None = None,
    placer: str | None = None,
) -> Iterable[Compared]:
    """A plan (or a refusal) from every allocator with every placer, or only from those named, one by one."""
    planner = planner_of(
        pipeline,
        models=models,
        cluster=cluster,
        catalogue=catalogue,
        acquisition=acquisition,
        routing=routing,
        batch_interval_ms=batch_interval_ms,
    )
    return compare_policies(planner, rate, pairs(allocator, placer))


def capacity(
    pipeline: PipelineLike,
    cluster: Cluster | str | Path,
    *,
    step: float | None = None,
    allocator: str | None = None,
    placer: str | None = None,
    models: ModelsLike = None,
) -> dict[str, Capacity]:
    """The highest rate the cluster sustains, by "allocator+placer": every pair, or those with the policies named.
    Rates are multiples of `step`: ten tuples/s, or a higher power of ten where thousands of those fit."""
    planner = planner_of(pipeline, models=models, cluster=cluster)
    if step is None:
        step = capacity_step(planner, allocator, placer)
    return dict(capacities(planner, step, allocator, placer))


def diff(before: PlanLike, after: PlanLike) -> PlanDiff:
    """What changes and what moves from one plan, or plan file, to another."""
    return diff_plans(saved_plan(before), saved_plan(after))


def segments(
    pipeline: PipelineLike,
    *,
    segmenter: str = DEFAULT_SEGMENTER,
    rate: float = 1.0,
    models: ModelsLike = None,
) -> Segmentation:
    """Which operators run fused as one segment. `rate` matters where streams have constants or demands are declared."""
    return segments_of(pipeline, segmenter=segmenter, rate=rate, models=models)


def rewrite(
    pipeline: PipelineLike,
    rate: float,
    *,
    heavier: float = DEFAULT_FACTOR,
    busier: float = DEFAULT_FACTOR,
    models: ModelsLike = None,
) -> RewrittenPipeline:
    """Operators with `heavier` times the median load separated, streams with `busier` times the median bytes fused."""
    return rewrite_pipeline(find_pipeline(pipeline), find_models(models), rate, heavier, busier)
