"""`penstock.plan(...)`: what it takes to run a pipeline at a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.allocation.registry import DEFAULT_ALLOCATOR
from penstock.cluster.catalogue import Acquisition, Catalogue
from penstock.jobs.planning import ClusterLike, plan_at, planner_of
from penstock.placement.registry import DEFAULT_PLACER
from penstock.prediction.latency import DEFAULT_BATCH_INTERVAL_MS
from penstock.prediction.rate import Routing
from penstock.verbs.live import LIVE, live_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobs.find import ModelsLike, PipelineLike, PlanLike
    from penstock.planning.plan import Plan


def plan(
    pipeline: PipelineLike,
    rate: float,
    *,
    allocator: str = DEFAULT_ALLOCATOR,
    placer: str = DEFAULT_PLACER,
    models: ModelsLike = None,
    cluster: ClusterLike = None,
    catalogue: Catalogue | str | Path | None = None,
    acquisition: Acquisition | str = Acquisition.COVER,
    routing: Routing | str = Routing.SLOT_AWARE,
    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS,
    explain: bool = False,
    current: PlanLike | None = None,
    move_cost: float | None = None,
    load: float = 1.0,
) -> Plan:
    """What it takes to run `pipeline` at `rate` tuples/s, on a given cluster or on machines rented from a catalogue.

    With the plan that runs as `current`, threads stay where they are unless moving pays: a thread that moves counts
    as `move_cost` slots (0.01). `eft` and `balanced-eft` weigh that by their own rule. `load` leaves headroom: with 0.8
    the plan is sized for `rate / 0.8`. The cluster "live" is the one that runs here, without what runs on it.
    """
    live = live_cluster() if cluster == LIVE else None
    planner = planner_of(
        pipeline,
        models=models,
        cluster=cluster if live is None else live.cluster,
        catalogue=catalogue,
        acquisition=acquisition,
        routing=routing,
        batch_interval_ms=batch_interval_ms,
        explain=explain,
    )
    made = plan_at(planner, rate, allocator=allocator, placer=placer, current=current, move_cost=move_cost, load=load)
    return made if live is None else live.numbered(made)
