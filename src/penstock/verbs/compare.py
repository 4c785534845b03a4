"""`penstock.compare(...)`: a plan from every pair of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.catalogue import Acquisition, Catalogue
from penstock.jobs.planning import ClusterLike, planner_of
from penstock.planning.compare import Compared, pairs
from penstock.planning.compare import compare as compare_policies
from penstock.prediction.latency import DEFAULT_BATCH_INTERVAL_MS
from penstock.prediction.rate import Routing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.jobs.find import ModelsLike, PipelineLike


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
