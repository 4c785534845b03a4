"""Find pipelines, models, plans, clusters and tenants by what users give, and make planners of them.

Built-in pipelines and clusters are known by name, so that the first command works without a file.

Things are given as what they are (a `Pipeline`, a `Plan`, ...), or by the name or path the command line takes.
Input that cannot be read raises `BadInputError`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penstock.base.errors import BadInputError, Refusal, RefusedError, nearest
from penstock.base.files import Weight, parse_yaml, read_document
from penstock.base.registry import with_options
from penstock.base.text import one_of
from penstock.cluster.file import read_cluster
from penstock.cluster.topology import DEFAULT_CATALOGUE, Acquisition, Catalogue, Cluster, find_catalogue, with_prices
from penstock.dataflow.builder import PipelineBuilder
from penstock.dataflow.code import code_of, parse_pipeline, pipeline_at, pipeline_document, read_pipeline
from penstock.dataflow.formats import admission_of
from penstock.dataflow.logic import chained
from penstock.dataflow.pipeline import Kind, Pipeline, checked_rate, gains
from penstock.modelling.library import (
    ModelLibrary,
    demands_of,
    doubts_about,
    read_models_and_profiles,
    reference_library,
)
from penstock.planning import capacity as capacity_search
from penstock.planning.compare import pairs
from penstock.planning.files import (
    SavedPlan,
    WholeCluster,
    parse_placement,
    parse_plan,
    parse_runs,
    read_plan,
    read_whole_cluster,
)
from penstock.planning.plan import FUSED, PLACED, PLAN_FORMAT, Plan
from penstock.planning.planner import Planner
from penstock.planning.prediction.placement import DEFAULT_BATCH_INTERVAL_MS, LatencyAssumptions, Routing
from penstock.planning.registry import (
    ALLOCATORS,
    DEFAULT_ALLOCATOR,
    DEFAULT_PLACER,
    DEFAULT_SEGMENTER,
    PLACERS,
    SEGMENTERS,
)
from penstock.planning.replanning.replan import replan
from penstock.planning.segmentation import Segmentation, costs_of, segmentation
from penstock.planning.sharing.contract import Tenants
from penstock.planning.sharing.tenants_file import read_tenants
from penstock.workloads.operators import reference_logic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.cluster.topology import Slot
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Operator


PipelineLike = Pipeline | PipelineBuilder | str | Path
ModelsLike = ModelLibrary | str | Path | None
PlanLike = Plan | SavedPlan | str | Path
RunnableLike = PipelineLike | Plan | SavedPlan
ClusterLike = Cluster | str | Path | None
LIVE = "live"
"""Names the free part of the cluster that runs here, instead of a cluster file."""


def find_pipeline(pipeline: PipelineLike) -> Pipeline:
    """A pipeline by the name of a built-in one (of some with options: `micro-linear:bound=io`), the path of a file, or
    `module:attribute` of Python code: a pipeline, a builder, or a function that needs no argument and makes one.

    The last imports the module, from the current folder too, after all others: only name code you trust.
    """
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, PipelineBuilder):
        return pipeline.build()
    name = str(pipeline)
    if name in known_pipelines():
        return builtin_pipeline(name)
    if has_options(name):
        return builtin_with_options(name)
    if Path(name).suffix in {".yaml", ".yml", ".json"} or os.path.exists(name):  # noqa: PTH110 - no error for odd names
        return read_pipeline(Path(name))
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        known = nearest(name, known_pipelines())
        raise BadInputError(f"unknown pipeline '{name}'; {known}; or give a file (.yaml, .json) or module:attribute")
    find_code_in(Path.cwd())
    return pipeline_at(name)


def find_models(models: ModelsLike = None) -> ModelLibrary:
    """The reference models, and the models and profiles of a file or folder before them."""
    if isinstance(models, ModelLibrary):
        return models
    if models is None:
        return reference_library()
    return reference_library().updated_with(ModelLibrary.of(*read_models_and_profiles(Path(models))))


def find_models_for(plan: SavedPlan | None, models: ModelsLike = None) -> ModelLibrary:
    """Those given; else those the plan carries; else the reference models."""
    carried = plan.library() if plan is not None and models is None else None
    return find_models(models) if carried is None else reference_library().updated_with(carried)


def saved_plan(plan: PlanLike) -> SavedPlan:
    """A plan as its file has it."""
    if isinstance(plan, SavedPlan):
        return plan
    return read_plan(Path(plan)) if isinstance(plan, str | Path) else SavedPlan.model_validate(plan.document())


def runnable(given: RunnableLike) -> tuple[Pipeline, SavedPlan | None]:
    """Return the pipeline, and its plan if given (a file counts if it holds a placement)."""
    where = "plan"
    pipeline: Pipeline | None = None
    if isinstance(given, Plan):
        pipeline, given = given.pipeline, SavedPlan.model_validate(given.document())
    elif isinstance(given, str | Path) and Path(given).suffix == ".json" and Path(given).is_file():
        document = read_document(Path(given))
        if isinstance(document, dict) and "placement" in document and "definition" in document:
            where, given = str(given), parse_plan(document, str(given))
    if not isinstance(given, SavedPlan):
        return find_pipeline(given), None
    pipeline = pipeline or parse_pipeline(given.definition, f"{where}: definition")
    if set(pipeline.operators) != set(given.operators):
        raise BadInputError(f"{where}: its operators are not those of the pipeline in its definition")
    return pipeline, given


def find_code_beside(given: RunnableLike) -> None:
    """Add the folder of a pipeline or plan file, and the current folder, to the end of the module search path:
    `run: module:attribute`.

    For verbs that run its code. To plan or simulate what somebody sent must not import what lies beside it.
    """
    if isinstance(given, str | Path) and os.path.isfile(given):  # noqa: PTH113 - no error for odd names
        find_code_in(Path(given).resolve().parent)
        find_code_in(Path.cwd())


def find_code_in(folder: Path) -> None:
    """Add `folder` to the end of the module search path."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def logic_of(pipeline: Pipeline) -> dict[str, Logic]:
    """The code of every operator: given in Python, named by `run`, or that of the reference task its model names."""
    codes = {name: _logic(operator) for name, operator in pipeline.operators.items()}
    return {name: code for name, code in codes.items() if code is not None}


def _logic(operator: Operator) -> Logic | None:
    """None: it needs no code."""
    code = code_of(operator)
    if code is not None or operator.kind is not Kind.OPERATOR or operator.aggregate is not None:
        return code
    if operator.chain:
        codes = {part.name: part_code for part in operator.chain if (part_code := _logic(part)) is not None}
        return chained(codes, f"operator '{operator.name}'")
    model = operator.model or operator.name
    if model not in reference_logic:
        raise BadInputError(
            f"operator '{operator.name}' has no code: give run: module:attribute, or a reference model; "
            f"{nearest(model, reference_logic)}"
        )
    return reference_logic[model]


def find_whole_cluster(cluster: WholeCluster | str | Path) -> WholeCluster:
    """A whole cluster by the name of a built-in one or the path of a file."""
    if isinstance(cluster, WholeCluster):
        return cluster
    known = str(cluster) in known_clusters()
    return read_whole_cluster(builtin_cluster_path(str(cluster)) if known else Path(cluster))


def find_tenants(tenants: Tenants | str | Path, nodes: int | None = None) -> Tenants:
    """Read who shares a cluster from a file; `nodes` replaces the nodes it names by a number of standard ones."""
    sharing = tenants if isinstance(tenants, Tenants) else read_tenants(Path(tenants))
    return sharing if nodes is None else sharing.on(nodes)


# Plans to run from the output of `penstock cluster place --json --full`: one per pipeline.


ASSUMED_RATE = 100.0
"""Tuples/s of a pipeline without a rate."""


def is_placed_file(path: str | Path) -> bool:
    """Whether it holds the placements of many pipelines; a plan holds that of one, in rows."""
    if Path(path).suffix != ".json" or not Path(path).is_file():
        return False
    document = read_document(Path(path))
    return isinstance(document, dict) and isinstance(document.get("placement"), dict)


def placed_plans(path: str | Path) -> dict[str, SavedPlan]:
    """A plan for every placed pipeline, by its name."""
    document = read_document(Path(path))
    placed = parse_placement(document, str(path))
    runs = parse_runs(document, str(path))
    missing = [name for name in placed if name not in runs]
    if missing:
        raise BadInputError(
            f"{path}: nothing says what pipeline '{missing[0]}' runs; give it `pipeline:` in the file that is placed"
        )
    return {name: _plan(name, rows, runs[name], path) for name, rows in placed.items()}


def one_placed_plan(path: str | Path, pipeline: str | None) -> SavedPlan:
    plans = placed_plans(path)
    if pipeline is None and len(plans) > 1:
        names = ", ".join(plans)
        raise BadInputError(
            f"{path}: {len(plans)} pipelines ({names}): name one, or `penstock pipelines submit` all of them"
        )
    name = next(iter(plans), None) if pipeline is None else pipeline
    if name is None or name not in plans:
        raise BadInputError(f"{path}: no pipeline '{name}' is placed; {nearest(name or '', plans)}")
    # the one that is named will be run
    find_code_beside(path)
    find_code_beside(parse_runs(read_document(Path(path)), str(path))[name].pipeline)
    return plans[name]


def _plan(name: str, rows: Mapping[Slot, Mapping[str, int]], run: Any, path: str | Path) -> SavedPlan:
    pipeline = find_pipeline(run.pipeline)
    threads = {operator: sum(row.get(operator, 0) for row in rows.values()) for operator in pipeline.operators}
    placed = {operator for row in rows.values() for operator in row}
    if placed != set(pipeline.operators):
        odd = min(placed ^ set(pipeline.operators))
        raise BadInputError(
            f"{path}: pipeline '{name}': operator '{odd}' is not in both the placement and '{run.pipeline}'"
        )
    slots: dict[str, int] = {}
    for slot in rows:
        slots[slot.node] = max(slots.get(slot.node, 0), slot.number + 1)
    document = {
        "format": PLAN_FORMAT,
        "pipeline": pipeline.name,
        "rate": run.rate or ASSUMED_RATE,
        "allocator": "declared",
        "placer": "placed",
        "operators": {
            operator: {"rate": 0.0, "threads": count, "cpu": 0.0, "memory": 0.0} for operator, count in threads.items()
        },
        "slots": dict.fromkeys(("allocated", "allocated_with_ends", "placed", "acquired", "used"), len(rows)),
        "nodes": [{"name": node, "rack": "r1", "slots": count} for node, count in slots.items()],
        "placement": [{"node": slot.node, "slot": slot.number, "threads": dict(row)} for slot, row in rows.items()],
        "prediction": {},
        "bounds": {},
        "definition": pipeline_document(pipeline),
    }
    return SavedPlan.model_validate(document)


# Planners and plans of a pipeline, models and machines.


MIN_CONFIDENCE, MAX_CONFIDENCE = 0.5, 0.999


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
    engine: str = FUSED,
    confidence: float = 0.5,
) -> Planner:
    """Return the planner of `pipeline` with these models, on a cluster or on machines rented from a catalogue, for a
    run by `engine` that keeps the rate with probability `confidence`."""
    if engine not in (FUSED, PLACED):
        raise BadInputError(f"engine=: expected '{FUSED}' or '{PLACED}', found '{engine}'")
    if not MIN_CONFIDENCE <= confidence <= MAX_CONFIDENCE:
        raise BadInputError(
            f"confidence=: expected a probability from {MIN_CONFIDENCE:g} to {MAX_CONFIDENCE:g}, found {confidence:g}"
        )
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
        engine=engine,
        admission=admission_of(plannable),
        confidence=confidence,
    )


def plan_at(
    planner: Planner,
    rate: float,
    *,
    allocator: str | None = None,
    placer: str | None = None,
    current: PlanLike | None = None,
    move_cost: float | None = None,
    utilisation: float = 1.0,
) -> Plan:
    """Return a plan for `rate` tuples/s, which are `utilisation` of what it is sized for; raise `RefusedError`
    if there is none. Policies default to those of `current`."""
    check_move_cost(move_cost, current)
    before = None if current is None else saved_plan(current)
    if before is not None:
        if allocator is None and before.allocator in ALLOCATORS.names():
            allocator = before.allocator
        if placer is None and before.placer in PLACERS.names():
            placer = before.placer
    policies = (
        ALLOCATORS.create(DEFAULT_ALLOCATOR if allocator is None else allocator),
        PLACERS.create(DEFAULT_PLACER if placer is None else placer),
    )
    if before is None:
        answer = planner.plan(rate, *policies, utilisation=utilisation)
    else:
        answer = replan(planner, rate, *policies, before, move_cost, utilisation=utilisation)
    if isinstance(answer, Refusal):
        raise RefusedError(answer)
    return answer


def check_move_cost(move_cost: float | None, current: object) -> None:
    if move_cost is None:
        return
    if current is None:
        raise BadInputError("a move cost means something only with what runs now (current=)")
    if not 0 <= move_cost < float("inf"):
        raise BadInputError(f"move cost: expected a number of at least 0, found {move_cost:g}")


def capacity_step(planner: Planner, allocator: str | None = None, placer: str | None = None) -> float:
    """Return the default step of a search for the highest rate."""
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
    policy = SEGMENTERS.create(segmenter)
    pipeline_to_cut = find_pipeline(pipeline)
    checked_rate(rate)
    costs = costs_of(pipeline_to_cut, find_models(models), rate) if policy.needs_costs else None
    return segmentation(pipeline_to_cut, policy, costs)


# Built-in pipelines and clusters. Some take options: `micro-star:bound=memory,selectivity=2`, `event-tp:service=0.02`.


CODE = "penstock.workloads.applications.micro:"
MODELS = {
    "cpu": "micro-diamond/cpu",
    "io": "micro-diamond/io",
    "sojourn": "micro-diamond/sojourn",
    "memory": "micro-diamond/memory",
}
"""That of the shipped models which measured the same code."""


@dataclass(frozen=True)
class MicroOptions:
    bound: Literal["cpu", "io", "sojourn", "memory"] | None = None
    """What all operators are bound by; where it is not said, each keeps its own."""
    selectivity: Weight = 1.0
    """Tuples that every operator sends for one that it gets."""

    def applied_to(self, shape: Pipeline) -> Pipeline:
        operators = [self._operator(operator, place) for place, operator in enumerate(shape.operators.values())]
        senders = {operator.name for operator in operators if operator.kind is Kind.OPERATOR}
        streams = [
            stream.model_copy(update={"selectivity": self.selectivity}) if stream.sender in senders else stream
            for stream in shape.streams
        ]
        return Pipeline.of(self._name(shape.name), operators, streams, shape.constraints)

    def _operator(self, operator: Operator, place: int) -> Operator:
        if operator.kind is not Kind.OPERATOR:
            return operator
        kind = self.bound or str(operator.run).removeprefix(CODE)
        times = "" if self.selectivity == 1 else f"*{self.selectivity!r}@{place}"
        return operator.model_copy(update={"run": f"{CODE}{kind}{times}", "model": MODELS[kind]})

    def _name(self, shape: str) -> str:
        parts = [
            shape,
            *([self.bound] if self.bound else []),
            *([f"{self.selectivity:g}"] if self.selectivity != 1 else []),
        ]
        return "-".join(parts)


@dataclass(frozen=True)
class ServiceOptions:
    service: Weight | None = None
    """CPU seconds of the operator that has a service time, for a tuple; None: as declared."""

    def applied_to(self, shape: Pipeline) -> Pipeline:
        if self.service is None:
            return shape
        operators = [self._operator(operator) for operator in shape.operators.values()]
        return Pipeline.of(f"{shape.name}-{self.service:g}", operators, shape.streams, shape.constraints)

    def _operator(self, operator: Operator) -> Operator:
        code, times, _ = str(operator.run).partition("*")
        return operator.model_copy(update={"run": f"{code}*{self.service!r}"}) if times else operator


OPTIONS_OF: dict[str, type[MicroOptions | ServiceOptions]] = {
    **dict.fromkeys(("micro-linear", "micro-diamond", "micro-star"), MicroOptions),
    **dict.fromkeys(("event-tp", "archival-tp", "tp1", "tp2"), ServiceOptions),
}
"""Built-in pipelines that take options."""


def known_pipelines() -> list[str]:
    folder = resources.files("penstock.workloads") / "pipelines"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def builtin_pipeline(name: str) -> Pipeline:
    text = (resources.files("penstock.workloads") / "pipelines" / f"{name}.yaml").read_text("utf-8")
    return parse_pipeline(parse_yaml(text, name), name)


def has_options(name: str) -> bool:
    """`micro-linear:bound=io`; a hyphen stands in no name of a module."""
    return ":" in name and name.partition(":")[0] in OPTIONS_OF


def builtin_with_options(name: str) -> Pipeline:
    """A built-in pipeline as its options (`NAME:option=value,option=value`) change it."""
    shape, _, options = name.partition(":")
    return with_options(OPTIONS_OF[shape], f"pipeline '{shape}'", options).applied_to(builtin_pipeline(shape))


def known_clusters() -> list[str]:
    """Whole clusters for `place`."""
    folder = resources.files("penstock.workloads") / "clusters"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".json"))


def builtin_cluster_path(name: str) -> Path:
    return Path(str(resources.files("penstock.workloads") / "clusters" / f"{name}.json"))
