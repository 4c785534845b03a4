"""Plan files: written once, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.base.errors import BadInputError, nearest
from penstock.base.files import (
    Amount,
    Count,
    Demand,
    Name,
    Positive,
    Spec,
    Versioned,
    check,
    parse_json,
    read_document,
    read_text,
    write_output,
)
from penstock.cluster.file import DimensionEntry, Excluded, NodesEntry, build_cluster
from penstock.cluster.topology import CPU, MEMORY, Slot
from penstock.dataflow.pipeline import (
    ANYWHERE,
    UNCONSTRAINED,
    Grouping,
    Kind,
    Operator,
    OperatorConstraints,
    Pipeline,
    PipelineConstraints,
    Stream,
)
from penstock.modelling.library import ModelLibrary, parse_models_and_profiles
from penstock.planning.placement.constraints import check_words
from penstock.planning.placement.contract import OperatorRequest, PlacementRequest
from penstock.planning.plan import PLAN_FORMAT

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.topology import Cluster
    from penstock.planning.plan import Plan


class SavedOperator(Spec):
    rate: Amount
    threads: Count
    cpu: Amount
    memory: Amount


Whole = Annotated[int, Field(ge=0, strict=True)]


class SavedSlots(Spec):
    allocated: Whole
    allocated_with_ends: Whole
    placed: Whole
    acquired: Whole
    used: Whole
    memory_mb: Positive | None = None
    """Memory of the smallest slot; plans of 0.1 do not have it."""


class SavedNode(Spec):
    name: Name
    rack: Name
    size: Name | None = None
    slots: Count
    price: Amount | None = None


class SavedBundles(Spec):
    node: Name
    slot: Annotated[int, Field(strict=True)]
    threads: dict[Name, Count]


class SavedVerdict(BaseModel):
    """The part of a plan file's verdict that runs and simulations go by; the rest is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    engine: str
    slots: Count
    cores: Positive
    threads: dict[Name, Count] = Field(default_factory=dict)
    """Threads in each slot of a fused run."""


class SavedPlan(Versioned):
    """A plan as it stands in a file."""

    newest: ClassVar[int] = PLAN_FORMAT
    former: ClassVar[Mapping[str, str]] = MappingProxyType({"load": "utilisation"})

    pipeline: Name
    rate: Positive
    utilisation: Positive = 1.0
    allocator: Name
    placer: Name
    segmenter: Name | None = None
    """Policy that decides which operators on one slot run as one; None leaves it to the run."""
    operators: dict[Name, SavedOperator]
    slots: SavedSlots
    nodes: tuple[SavedNode, ...]
    placement: tuple[SavedBundles, ...]
    prediction: dict[str, Any]
    verdict: SavedVerdict | None = None
    """Forecast of the engine it was made for; plans of before have none."""
    bounds: dict[str, Any]
    price_per_hour: Amount | None = None
    currency: str = "USD"
    warnings: tuple[str, ...] = ()
    moves: dict[str, Whole] | None = None
    considered: tuple[dict[str, Any], ...] = ()
    models: dict[str, Any] | None = None
    """Models it was planned with, as in a model file; plans of format 1 have none."""
    definition: dict[str, Any]

    def library(self, where: str = "plan") -> ModelLibrary | None:
        """The models it carries."""
        if self.models is None:
            return None
        return ModelLibrary.of(*parse_models_and_profiles(self.models, f"{where}: models"))

    def threads_by_slot(self) -> dict[Slot, dict[str, int]]:
        return {Slot(row.node, row.slot): dict(row.threads) for row in self.placement}


def write_plan(plan: Plan, path: Path) -> None:
    write_output(path, json.dumps(plan.document(), indent=1) + "\n")


def read_plan(path: Path) -> SavedPlan:
    """A plan file whose placement names only nodes, slots and operators it has, every thread once."""
    return parse_plan(parse_json(read_text(path), str(path)), str(path))


def parse_plan(data: Any, path: str) -> SavedPlan:
    """As `read_plan`, from the plain contents of a file."""
    saved = check(SavedPlan, data, path)
    saved.library(path)
    slots: dict[str, int] = {}
    for position, node in enumerate(saved.nodes):
        if node.name in slots:
            raise BadInputError(f"{path}: nodes[{position}].name: node '{node.name}' is listed twice")
        slots[node.name] = node.slots
    placed = dict.fromkeys(saved.operators, 0)
    seen: set[Slot] = set()
    for position, row in enumerate(saved.placement):
        where = f"{path}: placement[{position}]"
        if row.node not in slots:
            raise BadInputError(f"{where}.node: unknown node '{row.node}'; {nearest(row.node, slots)}")
        if not 0 <= row.slot < slots[row.node]:
            raise BadInputError(
                f"{where}.slot: node '{row.node}' has slots 0 to {slots[row.node] - 1}, found {row.slot}"
            )
        if Slot(row.node, row.slot) in seen:
            raise BadInputError(f"{where}: slot {row.slot} of node '{row.node}' is listed twice")
        seen.add(Slot(row.node, row.slot))
        for name, count in row.threads.items():
            if name not in placed:
                raise BadInputError(f"{where}.threads: unknown operator '{name}'; {nearest(name, placed)}")
            placed[name] += count
    for name, count in placed.items():
        if count != saved.operators[name].threads:
            raise BadInputError(
                f"{path}: placement: operator '{name}' has {saved.operators[name].threads} threads, {count} are placed"
            )
    return saved


# Placement of a whole cluster, as `penstock cluster place --json --full` writes it.


class SavedRun(Spec):
    """What a placed pipeline runs, and at which rate."""

    pipeline: str
    rate: Positive | None = None


class SavedRuns(Spec):
    runs: dict[Name, SavedRun] = Field(default_factory=dict)


class SavedPlacement(Spec):
    """Of the whole answer only the placement is read."""

    placement: dict[Name, tuple[SavedBundles, ...]]


def read_placement(path: Path) -> dict[str, dict[Slot, dict[str, int]]]:
    return parse_placement(parse_json(read_text(path), str(path)), str(path))


def parse_placement(data: Any, where: str) -> dict[str, dict[Slot, dict[str, int]]]:
    """Threads by slot of every pipeline."""
    if not isinstance(data, dict) or "placement" not in data:
        raise BadInputError(f"{where}: placement: expected what `penstock cluster place --json --full` prints")
    saved = check(SavedPlacement, {"placement": data["placement"]}, where)
    placed: dict[str, dict[Slot, dict[str, int]]] = {}
    held: dict[Slot, str] = {}
    for pipeline, rows in saved.placement.items():
        placed[pipeline] = {}
        for row in rows:
            slot = Slot(row.node, row.slot)
            if slot in held:
                raise BadInputError(f"{where}: placement.{pipeline}: slot {slot} is held by '{held[slot]}' already")
            held[slot] = pipeline
            placed[pipeline][slot] = dict(row.threads)
    return placed


def parse_runs(data: Any, where: str) -> dict[str, SavedRun]:
    """What the placed pipelines run, as far as the file that was placed says so."""
    return check(SavedRuns, {"runs": data.get("runs", {})}, where).runs


# Cluster files with many pipelines: nodes, declared threads and demands.


LOWEST_PRIORITY = 1_000_000


class OperatorEntry(Spec):
    """Threads of one operator and the demand of ONE of them."""

    name: Name
    kind: Kind = Kind.OPERATOR
    threads: Count
    cpu: Demand
    memory_mb: Demand
    resources: dict[Name, Demand] = Field(default_factory=dict)
    constraints: OperatorConstraints = ANYWHERE


def _as_mapping(stream: Any) -> Any:
    """[from, to, grouping] or [from, to]; a mapping passes as it is."""
    if isinstance(stream, list | tuple):
        if not 2 <= len(stream) <= 3:
            raise ValueError(f"expected [from, to] or [from, to, grouping], found {len(stream)} entries")
        return dict(zip(("from", "to", "grouping"), stream, strict=False))
    return stream


STORM_GROUPINGS = {
    "custom": Grouping.DIRECT,
    "none": Grouping.SHUFFLE,
    "local_or_shuffle": Grouping.LOCAL_OR_SHUFFLE,
}
"""What Storm calls groupings: with "custom" the sender's code picks the thread, "none" does not care which it is."""


def _as_grouping(name: Any) -> Any:
    return STORM_GROUPINGS.get(name, name) if isinstance(name, str) else name


class StreamEntry(Spec):
    sender: Annotated[str, Field(alias="from")]
    receiver: Annotated[str, Field(alias="to")]
    grouping: Annotated[Grouping, BeforeValidator(_as_grouping)] = Grouping.SHUFFLE
    traffic: Amount = 0.0
    """Bytes per second."""
    rate: Amount = 0.0
    """Tuples per second."""


class PipelineEntry(Spec):
    """`workers` is what the owner once asked for; how many slots are used is the placer's answer, not its input."""

    name: Name
    owner: str | None = None
    priority: Annotated[int, Field(ge=0, strict=True)] = LOWEST_PRIORITY
    workers: Count | None = None
    worker_max_heap_mb: Positive | None = None
    operators: tuple[OperatorEntry, ...]
    streams: tuple[Annotated[StreamEntry, BeforeValidator(_as_mapping)], ...] = ()
    constraints: PipelineConstraints = UNCONSTRAINED
    pipeline: str | None = None
    """What runs: a built-in pipeline, a file or module:attribute with these operators. Placing does not need it."""
    rate: Positive | None = None
    """Tuples/s of what runs."""


class OwnerEntry(Spec):
    """What an owner is guaranteed of the cluster, whatever others ask for."""

    cpu: Amount
    memory_mb: Amount


class WholeClusterFile(Spec):
    about: str = ""
    nodes: tuple[NodesEntry, ...]
    dimensions: dict[Name, DimensionEntry] = Field(default_factory=dict)
    pipelines: tuple[PipelineEntry, ...]
    owners: dict[Name, OwnerEntry] = Field(default_factory=dict)
    excluded: Excluded = ()


@dataclass(frozen=True, slots=True)
class WholeCluster:
    """Nodes, and what is to run on them with its priority (the lowest number first)."""

    cluster: Cluster
    requests: tuple[tuple[PlacementRequest, int], ...]
    guarantees: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What every owner is guaranteed, by dimension; empty: priorities alone order the queue."""
    runs: Mapping[str, tuple[str, float | None]] = field(default_factory=dict)
    """Of pipelines that say so: what runs, and at which rate."""


def read_whole_cluster(path: Path) -> WholeCluster:
    return parse_whole_cluster(read_document(path), str(path))


def parse_whole_cluster(data: Any, where: str) -> WholeCluster:
    spec = check(WholeClusterFile, data, where)
    cluster = build_cluster(spec.nodes, spec.dimensions, where, spec.excluded)
    if not spec.pipelines:
        raise BadInputError(f"{where}: pipelines: expected at least one pipeline")
    names: set[str] = set()
    requests = []
    for position, entry in enumerate(spec.pipelines):
        if entry.name in names:
            raise BadInputError(f"{where}: pipelines[{position}].name: pipeline '{entry.name}' is declared twice")
        names.add(entry.name)
        if spec.owners and entry.owner not in spec.owners:
            whose = "it has no owner" if entry.owner is None else f"owner '{entry.owner}' has no guarantee"
            raise BadInputError(
                f"{where}: pipelines[{position}].owner: pipeline '{entry.name}': {whose}; "
                f"{nearest(entry.owner or '', spec.owners)}"
            )
        requests.append((_request(entry, cluster, f"{where}: pipelines[{position}]"), entry.priority))
    guarantees = {name: {CPU: owner.cpu, MEMORY: owner.memory_mb} for name, owner in spec.owners.items()}
    runs = {entry.name: (entry.pipeline, entry.rate) for entry in spec.pipelines if entry.pipeline is not None}
    return WholeCluster(cluster, tuple(requests), guarantees, runs)


def _request(entry: PipelineEntry, cluster: Cluster, where: str) -> PlacementRequest:
    try:
        pipeline = Pipeline.of(
            entry.name,
            (Operator(name=operator.name, kind=operator.kind) for operator in entry.operators),
            (Stream(sender=stream.sender, receiver=stream.receiver) for stream in entry.streams),
            entry.constraints,
        )
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    position = {name: index for index, name in enumerate(pipeline.operators)}
    offered = [dimension.name for dimension in cluster.dimensions]
    operators = []
    for operator in entry.operators:
        memory = operator.memory_mb + operator.constraints.off_heap_mb
        amounts = {CPU: operator.cpu, MEMORY: memory, **operator.resources}
        for name in amounts:
            if name not in offered:
                raise BadInputError(
                    f"{where}: operator '{operator.name}' demands '{name}', which no node offers under resources"
                )
        demand = tuple(amounts.get(name, 0.0) for name in offered)
        operators.append(OperatorRequest(operator.name, operator.threads, demand, constraints=operator.constraints))
    request = PlacementRequest(
        entry.name,
        tuple(operators),
        tuple((position[stream.sender], position[stream.receiver]) for stream in entry.streams),
        tuple(position[name] for name in pipeline.sources),
        entry.worker_max_heap_mb,
        rates=tuple(stream.rate for stream in entry.streams) if any(s.rate for s in entry.streams) else (),
        traffic=tuple(stream.traffic for stream in entry.streams),
        constraints=entry.constraints,
        owner=entry.owner,
    )
    check_words(request, cluster, where)
    return request
