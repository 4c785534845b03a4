"""`penstock.capacity(...)`: the highest rate a cluster sustains, per pair of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobs.planning import capacities, planner_of
from penstock.planning.capacity import DEFAULT_STEP, Capacity

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.topology import Cluster
    from penstock.jobs.find import ModelsLike, PipelineLike


def capacity(
    pipeline: PipelineLike,
    cluster: Cluster | str | Path,
    *,
    step: float = DEFAULT_STEP,
    allocator: str | None = None,
    placer: str | None = None,
    models: ModelsLike = None,
) -> dict[str, Capacity]:
    """The highest rate the cluster sustains, by "allocator+placer": every pair, or those with the policies named."""
    planner = planner_of(pipeline, models=models, cluster=cluster)
    return dict(capacities(planner, step, allocator, placer))
