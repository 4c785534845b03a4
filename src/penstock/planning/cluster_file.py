"""A whole cluster as one file: its nodes, and many pipelines with declared threads and demands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from penstock.cluster.file import DimensionEntry, NodesEntry, build_cluster
from penstock.cluster.resources import CPU, MEMORY
from penstock.dataflow.pipeline import Grouping, Kind, Operator, Pipeline, Stream
from penstock.errors import BadInputError
from penstock.files import Amount, Count, Demand, Name, Positive, Spec, check, read_document
from penstock.placement.contract import OperatorRequest, Request

if TYPE_CHECKING:
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


def _as_mapping(stream: Any) -> Any:
    """[from, to, grouping] or [from, to]; a mapping passes as it is."""
    if isinstance(stream, list | tuple):
        if not 2 <= len(stream) <= 3:
            raise ValueError(f"expected [from, to] or [from, to, grouping], found {len(stream)} entries")
        return dict(zip(("from", "to", "grouping"), stream, strict=False))
    return stream


def _custom_is_direct(grouping: Any) -> Any:
    """Storm's "custom" grouping: the sender's code picks the thread."""
    return Grouping.DIRECT.value if grouping == "custom" else grouping


class StreamEntry(Spec):
    sender: Annotated[str, Field(alias="from")]
    receiver: Annotated[str, Field(alias="to")]
    grouping: Annotated[Grouping, BeforeValidator(_custom_is_direct)] = Grouping.SHUFFLE
    traffic: Amount = 0.0
    """Bytes per second."""


class PipelineEntry(Spec):
    """`workers` is what the owner once asked for; how many slots are used is the placer's answer, not its input."""

    name: Name
    owner: str | None = None
    priority: Annotated[int, Field(ge=0, strict=True)] = LOWEST_PRIORITY
    workers: Count | None = None
    worker_max_heap_mb: Positive | None = None
    operators: tuple[OperatorEntry, ...]
    streams: tuple[Annotated[StreamEntry, BeforeValidator(_as_mapping)], ...] = ()


class WholeClusterFile(Spec):
    about: str = ""
    nodes: tuple[NodesEntry, ...]
    dimensions: dict[Name, DimensionEntry] = Field(default_factory=dict)
    pipelines: tuple[PipelineEntry, ...]


@dataclass(frozen=True, slots=True)
class WholeCluster:
    """Nodes, and what is to run on them with its priority (the lowest number first)."""

    cluster: Cluster
    requests: tuple[tuple[Request, int], ...]


def read_whole_cluster(path: Path) -> WholeCluster:
    return parse_whole_cluster(read_document(path), str(path))


def parse_whole_cluster(data: Any, where: str) -> WholeCluster:
    spec = check(WholeClusterFile, data, where)
    cluster = build_cluster(spec.nodes, spec.dimensions, where)
    if not spec.pipelines:
        raise BadInputError(f"{where}: pipelines: expected at least one pipeline")
    names: set[str] = set()
    requests = []
    for position, entry in enumerate(spec.pipelines):
        if entry.name in names:
            raise BadInputError(f"{where}: pipelines[{position}].name: pipeline '{entry.name}' is declared twice")
        names.add(entry.name)
        requests.append((_request(entry, cluster, f"{where}: pipelines[{position}]"), entry.priority))
    return WholeCluster(cluster, tuple(requests))


def _request(entry: PipelineEntry, cluster: Cluster, where: str) -> Request:
    try:
        pipeline = Pipeline.of(
            entry.name,
            (Operator(name=operator.name, kind=operator.kind) for operator in entry.operators),
            (Stream(sender=stream.sender, receiver=stream.receiver) for stream in entry.streams),
        )
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
    position = {name: index for index, name in enumerate(pipeline.operators)}
    offered = [dimension.name for dimension in cluster.dimensions]
    operators = []
    for operator in entry.operators:
        amounts = {CPU: operator.cpu, MEMORY: operator.memory_mb, **operator.resources}
        for name in amounts:
            if name not in offered:
                raise BadInputError(
                    f"{where}: operator '{operator.name}' demands '{name}', which no node offers under resources"
                )
        demand = tuple(amounts.get(name, 0.0) for name in offered)
        operators.append(OperatorRequest(operator.name, operator.threads, demand))
    return Request(
        entry.name,
        tuple(operators),
        tuple((position[stream.sender], position[stream.receiver]) for stream in entry.streams),
        tuple(position[name] for name in pipeline.sources),
        entry.worker_max_heap_mb,
        traffic=tuple(stream.traffic for stream in entry.streams),
    )
