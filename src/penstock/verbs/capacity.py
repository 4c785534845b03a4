"""`penstock.capacity(...)`: the highest rate a cluster sustains, per pair of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobs.planning import capacities, capacity_step, planner_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.topology import Cluster
    from penstock.jobs.find import ModelsLike, PipelineLike
    from penstock.planning.capacity import Capacity


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
