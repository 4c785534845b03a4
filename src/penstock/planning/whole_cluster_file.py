"""A whole cluster as one file: its nodes, and many pipelines with declared threads and demands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from penstock.cluster.file import DimensionEntry, Excluded, NodesEntry, build_cluster
from penstock.cluster.resources import CPU, MEMORY
from penstock.dataflow.constraints import ANYWHERE, UNCONSTRAINED, OperatorConstraints, PipelineConstraints
from penstock.dataflow.pipeline import Grouping, Kind, Operator, Pipeline, Stream
from penstock.errors import BadInputError, nearest
from penstock.files import Amount, Count, Demand, Name, Positive, Spec, check, read_document
from penstock.placement.constraints.validate import check_words
from penstock.placement.contract import OperatorRequest, PlacementRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.cluster.topology import Cluster

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
