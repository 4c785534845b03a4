"""The verbs as functions: `penstock.plan(...)` does what `penstock plan ...` does, with the same names.

Things are given as what they are (a `Pipeline`, a `Cluster`, ...), or by the name or path the command line takes.
Input that cannot be read raises `BadInputError`; a request that cannot be met raises `RefusedError`.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.allocation.pipeline import demands_of
from penstock.allocation.registry import ALLOCATORS, DEFAULT_ALLOCATOR
from penstock.cluster.catalogue import DEFAULT_CATALOGUE, Acquisition, Catalogue, find_catalogue, with_prices
from penstock.cluster.file import read_cluster
from penstock.dataflow.builder import PipelineBuilder
from penstock.dataflow.file import read_pipeline
from penstock.dataflow.pipeline import Pipeline
from penstock.dataflow.rates import checked_rate, gains
from penstock.errors import BadInputError, Refusal, RefusedError, nearest
from penstock.modelling.file import read_models_and_profiles
from penstock.modelling.library import ModelLibrary, reference_library
from penstock.placement.registry import DEFAULT_PLACER, DEFAULT_WHOLE_CLUSTER_PLACER, PLACERS
from penstock.planning import capacity as capacity_search
from penstock.planning import compare as comparison
from penstock.planning import diff as plan_diff
from penstock.planning import keeping, keeping_cluster, rewriting
from penstock.planning.cluster_file import WholeCluster, read_whole_cluster
from penstock.planning.file import SavedPlan, read_plan
from penstock.planning.placement_file import read_placement
from penstock.planning.planner import Planner
from penstock.planning.whole_cluster import ClusterPlacement, place_all
from penstock.prediction.latency import DEFAULT_BATCH_INTERVAL_MS, LatencyAssumptions
from penstock.prediction.rate import Routing
from penstock.segmentation.contract import Segmentation, segmentation
from penstock.segmentation.registry import DEFAULT_SEGMENTER, SEGMENTERS
from penstock.sharing.file import read_tenants
from penstock.sharing.handover import HandOver, Moves
from penstock.sharing.registry import DEFAULT_SHARER, SHARERS
from penstock.sharing.share import Sharing, compare_sharers, share_cluster
from penstock.sharing.tenants import Tenants
from penstock.starter import write_starter
from penstock.workloads.builtin import builtin_cluster_path, builtin_pipeline, known_clusters, known_pipelines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.cluster.topology import Cluster
    from penstock.modelling.model import Model
    from penstock.planning.plan import Plan

PipelineLike = Pipeline | PipelineBuilder | str | Path
ModelsLike = ModelLibrary | str | Path | None
ClusterLike = "Cluster | str | Path | None"


def find_pipeline(pipeline: PipelineLike) -> Pipeline:
    """A pipeline by the name of a built-in one, the path of a file, or `module:attribute` of Python code.

    The last imports the module, from the current folder too: only name code you trust.
    """
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, PipelineBuilder):
        return pipeline.build()
    name = str(pipeline)
    if name in known_pipelines():
        return builtin_pipeline(name)
    if Path(name).suffix in {".yaml", ".yml", ".json"} or os.path.exists(name):  # noqa: PTH110 - no error for odd names
        return read_pipeline(Path(name))
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        known = nearest(name, known_pipelines())
        raise BadInputError(f"unknown pipeline '{name}'; {known}; or give a file (.yaml, .json) or module:attribute")
    return _pipeline_from_code(name, module, attribute)


def _pipeline_from_code(name: str, module: str, attribute: str) -> Pipeline:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # the user's module may raise anything while it is imported
        raise BadInputError(f"pipeline '{name}': {type(error).__name__}: {error}") from error
    if isinstance(found, PipelineBuilder):
        return found.build()
    if isinstance(found, Pipeline):
        return found
    raise BadInputError(f"pipeline '{name}': expected a Pipeline or a builder, found {type(found).__name__}")


def models(models: ModelsLike = None) -> ModelLibrary:
    """The reference models, and the models and profiles of a file or folder before them."""
    return _library(models)


def _library(models: ModelsLike) -> ModelLibrary:
    if isinstance(models, ModelLibrary):
        return models
    if models is None:
        return reference_library()
    return reference_library().updated_with(ModelLibrary.of(*read_models_and_profiles(Path(models))))


E = TypeVar("E", bound=StrEnum)


def one_of(choices: type[E], given: E | str, what: str) -> E:
    try:
        return choices(given)
    except ValueError as error:
        raise BadInputError(f"unknown {what} '{given}'; {nearest(str(given), choices)}") from error


def _planner(
    pipeline: PipelineLike,
    models: ModelsLike,
    cluster: Cluster | str | Path | None,
    catalogue: Catalogue | str | Path | None,
    acquisition: Acquisition | str,
    routing: Routing | str,
    batch_interval_ms: float,
    *,
    explain: bool = False,
) -> Planner:
    if not 0 <= batch_interval_ms < float("inf"):
        raise BadInputError(f"batch interval: expected milliseconds of at least 0, found {batch_interval_ms:g}")
    found = catalogue if isinstance(catalogue, Catalogue) else find_catalogue(str(catalogue or DEFAULT_CATALOGUE))
    offer: Cluster | Catalogue = found
    if cluster is not None:
        offer = with_prices(read_cluster(Path(cluster)) if isinstance(cluster, str | Path) else cluster, found)
    plannable, library = find_pipeline(pipeline), _library(models)
    try:
        gains(plannable)
        demands_of(plannable, library)
    except BadInputError as error:
        where = f"{pipeline}: " if isinstance(pipeline, str | Path) and Path(pipeline).exists() else ""
        raise BadInputError(f"{where}{error}") from error
    return Planner(
        pipeline=plannable,
        library=library,
        offer=offer,
        acquisition=one_of(Acquisition, acquisition, "acquisition"),
        routing=one_of(Routing, routing, "routing"),
        assumptions=LatencyAssumptions(batch_interval_ms=batch_interval_ms),
        explain=explain,
        currency=found.currency,
    )


def plan(
    pipeline: PipelineLike,
    rate: float,
    *,
    allocator: str = DEFAULT_ALLOCATOR,
    placer: str = DEFAULT_PLACER,
    models: ModelsLike = None,
    cluster: Cluster | str | Path | None = None,
    catalogue: Catalogue | str | Path | None = None,
    acquisition: Acquisition | str = Acquisition.COVER,
    routing: Routing | str = Routing.SLOT_AWARE,
    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS,
    explain: bool = False,
    current: Plan | SavedPlan | str | Path | None = None,
    move_cost: float | None = None,
) -> Plan:
    """What it takes to run `pipeline` at `rate` tuples/s, on a given cluster or on machines rented from a catalogue.

    With the plan that runs as `current`, threads stay where they are unless moving pays: a thread that moves counts
    as `move_cost` slots (0.01). `eft` and `balanced-eft` weigh that by their own rule.
    """
    _check_move_cost(move_cost, current)
    policies = ALLOCATORS.create(allocator), PLACERS.create(placer)
    planner = _planner(pipeline, models, cluster, catalogue, acquisition, routing, batch_interval_ms, explain=explain)
    if current is None:
        answer = planner.plan(rate, *policies)
    else:
        answer = keeping.replan(planner, rate, *policies, _saved(current), move_cost)
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    return answer


def _check_move_cost(move_cost: float | None, current: object) -> None:
    if move_cost is None:
        return
    if current is None:
        raise BadInputError("a move cost means something only with what runs now (--current)")
    if not 0 <= move_cost < float("inf"):
        raise BadInputError(f"move cost: expected a number of at least 0, found {move_cost:g}")


def compare(
    pipeline: PipelineLike,
    rate: float,
    *,
    models: ModelsLike = None,
    cluster: Cluster | str | Path | None = None,
    catalogue: Catalogue | str | Path | None = None,
    acquisition: Acquisition | str = Acquisition.COVER,
    routing: Routing | str = Routing.SLOT_AWARE,
    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS,
    allocator: str | None = None,
    placer: str | None = None,
) -> Iterable[comparison.Compared]:
    """A plan (or a refusal) from every allocator with every placer, or only from those named, one by one."""
    planner = _planner(pipeline, models, cluster, catalogue, acquisition, routing, batch_interval_ms)
    return comparison.compare(planner, rate, comparison.pairs(allocator, placer))


def capacity(
    pipeline: PipelineLike,
    cluster: Cluster | str | Path,
    *,
    step: float = capacity_search.DEFAULT_STEP,
    allocator: str | None = None,
    placer: str | None = None,
    models: ModelsLike = None,
) -> dict[str, capacity_search.Capacity]:
    """The highest rate the cluster sustains, by "allocator+placer": every pair, or those with the policies named."""
    return dict(capacities(pipeline, cluster, step=step, allocator=allocator, placer=placer, models=models))


def capacities(
    pipeline: PipelineLike,
    cluster: Cluster | str | Path,
    *,
    step: float = capacity_search.DEFAULT_STEP,
    allocator: str | None = None,
    placer: str | None = None,
    models: ModelsLike = None,
) -> Iterator[tuple[str, capacity_search.Capacity]]:
    """As `capacity`, pair by pair."""
    planner = _planner(pipeline, models, cluster, None, Acquisition.COVER, Routing.SLOT_AWARE, 0.0)
    if isinstance(planner.offer, Catalogue):
        raise BadInputError("capacity: expected a cluster, not a catalogue")
    for a, p in comparison.pairs(allocator, placer):
        policies = ALLOCATORS.create(a), PLACERS.create(p)
        yield f"{a}+{p}", capacity_search.capacity(planner, planner.offer, *policies, step)


def misfits(pipeline: PipelineLike, cluster: Cluster | str | Path, *, models: ModelsLike = None) -> list[str]:
    """Warnings about models that do not fit the cluster's slots, or each other; plans carry them already."""
    return list(_planner(pipeline, models, cluster, None, Acquisition.COVER, Routing.SLOT_AWARE, 0.0).misfits())


def find_whole_cluster(cluster: WholeCluster | str | Path) -> WholeCluster:
    """A whole cluster by the name of a built-in one or the path of a file."""
    if isinstance(cluster, WholeCluster):
        return cluster
    known = str(cluster) in known_clusters()
    return read_whole_cluster(builtin_cluster_path(str(cluster)) if known else Path(cluster))


def whole_cluster_placers() -> list[str]:
    """The placers that place pipelines with declared demands on a whole cluster."""
    return [name for name in PLACERS.names() if PLACERS.create(name).whole_cluster]


def place(
    cluster: WholeCluster | str | Path,
    *,
    placer: str = DEFAULT_WHOLE_CLUSTER_PLACER,
    current: ClusterPlacement | str | Path | None = None,
    move_cost: float | None = None,
) -> ClusterPlacement:
    """Every pipeline of a whole cluster in priority order, each all or nothing on what the earlier ones left.

    With the placement that runs as `current`, pipelines stay where they are unless moving pays: moving all threads
    of one must save `move_cost` (0.5) of its network cost.
    """
    _check_move_cost(move_cost, current)
    policy = PLACERS.create(placer)
    if not policy.whole_cluster:
        fitting = ", ".join(whole_cluster_placers())
        raise BadInputError(f"placer '{policy.name}' places bundles of a plan, not a whole cluster; use {fitting}")
    whole = find_whole_cluster(cluster)
    if current is None:
        return place_all(whole.cluster, whole.requests, policy)
    running = (
        {name: placement.by_slot() for name, placement in current.placements.items()}
        if isinstance(current, ClusterPlacement)
        else read_placement(Path(current))
    )
    cost = keeping_cluster.DEFAULT_CLUSTER_MOVE_COST if move_cost is None else move_cost
    return keeping_cluster.place_again(whole.cluster, whole.requests, policy, running, cost)


def segments(
    pipeline: PipelineLike,
    *,
    segmenter: str = DEFAULT_SEGMENTER,
    rate: float = 1.0,
    models: ModelsLike = None,
) -> Segmentation:
    """Which operators run fused as one segment. `rate` matters where streams have constants or demands are declared."""
    from penstock.segmentation.costs import costs_of  # noqa: PLC0415 - a rare verb

    policy = SEGMENTERS.create(segmenter)
    found = find_pipeline(pipeline)
    checked_rate(rate)
    costs = costs_of(found, _library(models), rate) if policy.needs_costs else None
    return segmentation(found, policy, costs)


def rewrite(
    pipeline: PipelineLike,
    rate: float,
    *,
    heavier: float = rewriting.DEFAULT_FACTOR,
    busier: float = rewriting.DEFAULT_FACTOR,
    models: ModelsLike = None,
) -> rewriting.RewrittenPipeline:
    """Operators with `heavier` times the median load separated, streams with `busier` times the median bytes fused."""
    return rewriting.rewrite(find_pipeline(pipeline), _library(models), rate, heavier, busier)


def find_tenants(tenants: Tenants | str | Path, nodes: int | None = None) -> Tenants:
    """Who shares a cluster, by the path of a file; `nodes`: on so many standard nodes instead of those it names."""
    found = tenants if isinstance(tenants, Tenants) else read_tenants(Path(tenants))
    return found if nodes is None else found.on(nodes)


def share(
    tenants: Tenants | str | Path,
    *,
    policy: str = DEFAULT_SHARER,
    nodes: int | None = None,
    moves: Moves | str = Moves.FEWEST,
) -> Sharing:
    """Who gets how much of a cluster, which nodes those are, and what has to move."""
    sharer, way = SHARERS.create(policy), one_of(Moves, moves, "way to move")
    return share_cluster(find_tenants(tenants, nodes), sharer, way)


def compare_shares(tenants: Tenants | str | Path, *, nodes: int | None = None) -> list[tuple[Sharing, HandOver | None]]:
    """Every policy's division with the fewest moves, and beside it what the published way to move would do."""
    return list(compare_sharers(find_tenants(tenants, nodes)))


def diff(before: Plan | SavedPlan | str | Path, after: Plan | SavedPlan | str | Path) -> plan_diff.PlanDiff:
    """What changes and what moves from one plan, or plan file, to another."""
    return plan_diff.diff(_saved(before), _saved(after))


def _saved(plan: Plan | SavedPlan | str | Path) -> SavedPlan:
    if isinstance(plan, SavedPlan):
        return plan
    return read_plan(Path(plan)) if isinstance(plan, str | Path) else SavedPlan.model_validate(plan.document())


def init(folder: str | Path) -> list[Path]:
    """A starter project in a new or empty folder: the files written."""
    return write_starter(Path(folder))


def import_models(csv_file: str | Path) -> list[Model]:
    """Models from a CSV table of measurements."""
    from penstock.modelling.file import read_csv_models  # noqa: PLC0415 - a rare verb

    return read_csv_models(Path(csv_file))
