"""Make planners and plans from a pipeline, models and machines, for all functions that plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, Refusal, RefusedError
from penstock.base.text_checks import one_of
from penstock.cluster.catalogue import DEFAULT_CATALOGUE, Acquisition, Catalogue, find_catalogue, with_prices
from penstock.cluster.file import read_cluster
from penstock.cluster.topology import Cluster
from penstock.dataflow.rates import checked_rate, gains
from penstock.inputs.finders import ModelsLike, PipelineLike, PlanLike, find_models, find_pipeline, saved_plan
from penstock.modelling.fit import doubts_about
from penstock.planning import capacity as capacity_search
from penstock.planning.allocation.pipeline import demands_of
from penstock.planning.compare import pairs
from penstock.planning.planner import Planner
from penstock.planning.prediction.latency import DEFAULT_BATCH_INTERVAL_MS, LatencyAssumptions
from penstock.planning.prediction.rate import Routing
from penstock.planning.registry import (
    ALLOCATORS,
    DEFAULT_ALLOCATOR,
    DEFAULT_PLACER,
    DEFAULT_SEGMENTER,
    PLACERS,
    SEGMENTERS,
)
from penstock.planning.replan import replan
from penstock.planning.segmentation import Segmentation, segmentation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.planning.plan import Plan

MIN_UTILISATION = 0.01
"""A plan for more than a hundred times what is asked is a slip."""

ClusterLike = Cluster | str | Path | None


def planner_of(
    pipeline: PipelineLike,
    *,
    models: ModelsLike = None,
    cluster: ClusterLike = None,
    catalogue: Catalogue | str | Path | None = None,
    acquisition: Acquisition | str = Acquisition.COVER,
    routing: Routing | str = Routing.SLOT_AWARE,
    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS,
    explain: bool = False,
) -> Planner:
    """What plans `pipeline` with these models, on a cluster or on machines rented from a catalogue."""
    if not 0 <= batch_interval_ms < float("inf"):
        raise BadInputError(f"batch interval: expected milliseconds of at least 0, found {batch_interval_ms:g}")
    prices = catalogue if isinstance(catalogue, Catalogue) else find_catalogue(str(catalogue or DEFAULT_CATALOGUE))
    offer: Cluster | Catalogue = prices
    if cluster is not None:
        offer = with_prices(read_cluster(Path(cluster)) if isinstance(cluster, str | Path) else cluster, prices)
    plannable, library = find_pipeline(pipeline), find_models(models)
    try:
        gains(plannable)
        demands = demands_of(plannable, library)
    except BadInputError as error:
        where = f"{pipeline}: " if isinstance(pipeline, str | Path) and Path(pipeline).exists() else ""
        raise BadInputError(f"{where}{error}") from error
    is_file = isinstance(pipeline, str | Path) and Path(pipeline).is_file()
    beside = Path(pipeline).resolve().parent if is_file and isinstance(pipeline, str | Path) else None
    return Planner(
        doubts=tuple(doubts_about(plannable, demands, beside=beside)),
        pipeline=plannable,
        library=library,
        offer=offer,
        acquisition=one_of(Acquisition, acquisition, "acquisition"),
        routing=one_of(Routing, routing, "routing"),
        assumptions=LatencyAssumptions(batch_interval_ms=batch_interval_ms),
        explain=explain,
        currency=prices.currency,
    )


def plan_at(
    planner: Planner,
    rate: float,
    *,
    allocator: str = DEFAULT_ALLOCATOR,
    placer: str = DEFAULT_PLACER,
    current: PlanLike | None = None,
    move_cost: float | None = None,
    utilisation: float = 1.0,
) -> Plan:
    """Return a plan for `rate` rows/s, sized for `rate / utilisation`, or raise `RefusedError`."""
    check_move_cost(move_cost, current)
    if not MIN_UTILISATION <= utilisation <= 1:
        raise BadInputError(f"utilisation=: expected {MIN_UTILISATION:g} to 1, found {utilisation:g}")
    policies = ALLOCATORS.create(allocator), PLACERS.create(placer)
    sized_for = checked_rate(rate) / utilisation
    if current is None:
        answer = planner.plan(sized_for, *policies)
    else:
        answer = replan(planner, sized_for, *policies, saved_plan(current), move_cost)
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    return answer if utilisation == 1 else planner.at_utilisation(answer, utilisation)


def check_move_cost(move_cost: float | None, current: object) -> None:
    if move_cost is None:
        return
    if current is None:
        raise BadInputError("a move cost means something only with what runs now (current=)")
    if not 0 <= move_cost < float("inf"):
        raise BadInputError(f"move cost: expected a number of at least 0, found {move_cost:g}")


def capacity_step(planner: Planner, allocator: str | None = None, placer: str | None = None) -> float:
    """The step of a search for the highest rate, where nobody gives one."""
    allocators = [ALLOCATORS.create(name) for name in dict.fromkeys(a for a, _ in pairs(allocator, placer))]
    return capacity_search.default_step(planner, _cluster_of(planner), allocators)


def _cluster_of(planner: Planner) -> Cluster:
    if isinstance(planner.offer, Catalogue):
        raise BadInputError("capacity: expected a cluster, not a catalogue")
    return planner.offer


def capacities(
    planner: Planner, step: float, allocator: str | None = None, placer: str | None = None
) -> Iterator[tuple[str, capacity_search.Capacity]]:
    """The highest rate the planner's cluster sustains, by "allocator+placer", pair by pair."""
    cluster = _cluster_of(planner)
    for a, p in pairs(allocator, placer):
        policies = ALLOCATORS.create(a), PLACERS.create(p)
        yield f"{a}+{p}", capacity_search.capacity(planner, cluster, *policies, step)


def segments_of(
    pipeline: PipelineLike,
    *,
    segmenter: str = DEFAULT_SEGMENTER,
    rate: float = 1.0,
    models: ModelsLike = None,
) -> Segmentation:
    """Which operators run fused as one segment. `rate` matters where streams have constants or demands are declared."""
    from penstock.planning.segmentation import costs_of  # noqa: PLC0415 - a rare verb

    policy = SEGMENTERS.create(segmenter)
    pipeline_to_cut = find_pipeline(pipeline)
    checked_rate(rate)
    costs = costs_of(pipeline_to_cut, find_models(models), rate) if policy.needs_costs else None
    return segmentation(pipeline_to_cut, policy, costs)
