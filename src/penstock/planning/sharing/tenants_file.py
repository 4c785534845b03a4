"""Tenants as YAML or JSON files."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from penstock.base.files import Amount, Count, Name, Spec, check, read_document
from penstock.cluster.file import DimensionEntry, NodesEntry, build_cluster
from penstock.planning.sharing.contract import Tenant, Tenants

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.topology import Cluster

Part = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
NodeCount = Annotated[int, Field(strict=True)]


class TenantEntry(Spec):
    name: Name
    desired: Count
    minimum: Count = 1
    workers: Count | None = None
    priority: Count = 1
    threads: Count | None = None
    waited: Amount = 0.0
    fairness: Part = 1.0
    needed: Count | None = None
    in_time: Count | None = None
    resources: dict[Name, Amount] | None = None
    current: tuple[Name, ...] = ()


class _Tenants(Spec):
    """`nodes` is a number or a list: two shapes, so that a complaint is about the one that was meant."""

    slots: Count | None = None
    dimensions: dict[Name, DimensionEntry] = Field(default_factory=dict)
    pipelines: tuple[TenantEntry, ...]


class TenantsFile(_Tenants):
    nodes: NodeCount


class TenantsOnListedNodes(_Tenants):
    nodes: tuple[NodesEntry, ...]


def read_tenants(path: Path) -> Tenants:
    return parse_tenants(read_document(path), str(path))


def parse_tenants(data: Any, where: str) -> Tenants:
    spec: TenantsFile | TenantsOnListedNodes
    nodes: int | Cluster
    if isinstance(data, dict) and isinstance(data.get("nodes"), list):
        spec = check(TenantsOnListedNodes, data, where)
        nodes = build_cluster(spec.nodes, spec.dimensions, where)
    else:
        spec = check(TenantsFile, data, where)
        nodes = spec.nodes
    pipelines = [
        Tenant(
            name=entry.name,
            desired=entry.desired,
            minimum=entry.minimum,
            priority=entry.priority,
            workers=entry.workers,
            threads=entry.threads,
            waited=entry.waited,
            fairness=entry.fairness,
            needed=entry.needed,
            in_time=entry.in_time or 0,
            resources=None if entry.resources is None else MappingProxyType(dict(entry.resources)),
            current=entry.current,
        )
        for entry in spec.pipelines
    ]
    return Tenants.of(nodes, pipelines, spec.slots, where)
