"""Clusters as YAML or JSON files."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, StrictBool

from penstock.base.clock import now
from penstock.base.errors import BadInputError, nearest
from penstock.base.files import Amount, Count, Name, Positive, Spec, check, read_document
from penstock.cluster.topology import (
    BY_HAND,
    CPU,
    CPU_POINTS_PER_SLOT,
    DEFAULT_BANDWIDTH_MBPS,
    DEFAULT_DIMENSIONS,
    MEMORY,
    Cluster,
    Dimension,
    Exclusion,
    MachineMemory,
    Node,
    in_force,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DEFAULT_SLOT_MEMORY_MB = 3584.0
"""Memory of a slot where a file does not say: that of the slots the reference tasks were measured on."""

MOST_NODES = 20_000
MOST_SLOTS = 200_000
MOST_SLOTS_OF_A_NODE = 4_096


class NodesEntry(Spec):
    """`count` equal nodes in one rack."""

    count: Count = 1
    name: Name | None = None
    slots: Count
    rack: Name = "r1"
    memory_mb: MachineMemory | None = None
    cpu: Positive | None = None
    resources: dict[Name, Amount] = Field(default_factory=dict)
    size: Name | None = None
    price: Amount | None = None
    speed: Positive = 1.0
    bandwidth_mbps: Positive = DEFAULT_BANDWIDTH_MBPS
    labels: tuple[Name, ...] = ()
    taints: tuple[Name, ...] = ()


class DimensionEntry(Spec):
    """What is not said stays as it is without the entry."""

    hard: StrictBool | None = None
    weight: Amount | None = None


class ExclusionEntry(Spec):
    node: Name
    reason: Name = BY_HAND
    until: AwareDatetime | None = None
    """Date, time and zone from which it takes threads again; without, until the entry is removed."""


def _as_entry(exclusion: Any) -> Any:
    """A node's name alone, or a mapping."""
    return {"node": exclusion} if isinstance(exclusion, str) else exclusion


Excluded = tuple[Annotated[ExclusionEntry, BeforeValidator(_as_entry)], ...]


class ClusterFile(Spec):
    nodes: tuple[NodesEntry, ...]
    dimensions: dict[Name, DimensionEntry] = Field(default_factory=dict)
    excluded: Excluded = ()


def read_cluster(path: Path) -> Cluster:
    return parse_cluster(read_document(path), str(path))


def parse_cluster(data: Any, where: str) -> Cluster:
    spec = check(ClusterFile, data, where)
    return build_cluster(spec.nodes, spec.dimensions, where, spec.excluded)


def build_cluster(
    entries: Sequence[NodesEntry],
    declared: dict[str, DimensionEntry],
    where: str,
    excluded: Sequence[ExclusionEntry] = (),
) -> Cluster:
    """Nodes from their entries; every named resource becomes a dimension, hard and without weight unless declared."""
    if not entries:
        raise BadInputError(f"{where}: nodes: expected at least one node")
    _at_most(sum(entry.count for entry in entries), MOST_NODES, "nodes", where)
    _at_most(sum(entry.count * entry.slots for entry in entries), MOST_SLOTS, "slots", where)
    _at_most(max(entry.slots for entry in entries), MOST_SLOTS_OF_A_NODE, "slots of one node", where)
    dimensions = {dimension.name: dimension for dimension in DEFAULT_DIMENSIONS}
    named = dict.fromkeys(name for entry in entries for name in entry.resources)
    for name in named:
        if name in dimensions:
            raise BadInputError(f"{where}: nodes: give '{name}' as a key of the node, not under resources")
        dimensions[name] = Dimension(name, hard=True, weight=0.0)
    for name, given in declared.items():
        if name not in dimensions:
            raise BadInputError(f"{where}: dimensions.{name}: no node offers '{name}'")
        default = dimensions[name]
        dimensions[name] = Dimension(
            name,
            default.hard if given.hard is None else given.hard,
            default.weight if given.weight is None else given.weight,
        )
    nodes: list[Node] = []
    taken: set[str] = set()
    for position, entry in enumerate(entries):
        capacity = {
            CPU: entry.cpu if entry.cpu is not None else CPU_POINTS_PER_SLOT * entry.slots,
            MEMORY: entry.memory_mb if entry.memory_mb is not None else DEFAULT_SLOT_MEMORY_MB * entry.slots,
            **{name: entry.resources.get(name, 0.0) for name in named},
        }
        if entry.name is not None and entry.count > 1:
            names = [f"{entry.name}-{number}" for number in range(1, entry.count + 1)]
        elif entry.name is not None:
            names = [entry.name]
        else:
            names = [f"n{number}" for number in range(len(nodes) + 1, len(nodes) + entry.count + 1)]
        for name in names:
            if name in taken:
                raise BadInputError(f"{where}: nodes[{position}].name: node '{name}' is declared twice")
            taken.add(name)
            nodes.append(
                Node(
                    name,
                    entry.rack,
                    entry.slots,
                    MappingProxyType(capacity),
                    entry.size,
                    entry.price,
                    entry.speed,
                    entry.bandwidth_mbps,
                    frozenset(entry.labels),
                    frozenset(entry.taints),
                )
            )
    return Cluster(
        tuple(nodes), tuple(dimensions.values()), _excluded_now(excluded, [node.name for node in nodes], where)
    )


def _excluded_now(entries: Sequence[ExclusionEntry], known: Sequence[str], where: str) -> dict[str, str]:
    exclusions = []
    for position, entry in enumerate(entries):
        if entry.node not in known:
            raise BadInputError(
                f"{where}: excluded[{position}].node: node '{entry.node}' does not exist; {nearest(entry.node, known)}"
            )
        until = entry.until.timestamp() if entry.until else None
        exclusions.append(Exclusion(entry.node, entry.reason, until))
    return in_force(exclusions, now())


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The contents of a file that `parse_cluster` reads as exactly this cluster."""
    nodes = []
    for node in cluster.nodes:
        own = {name: amount for name, amount in node.capacity.items() if name not in {CPU, MEMORY}}
        entry = {
            "name": node.name,
            "slots": node.slots,
            "rack": node.rack,
            "memory_mb": node.capacity[MEMORY],
            "cpu": node.capacity[CPU],
            "resources": own or None,
            "size": node.size,
            "price": node.price,
            "speed": None if node.speed == 1.0 else node.speed,
            "bandwidth_mbps": None if node.bandwidth_mbps == DEFAULT_BANDWIDTH_MBPS else node.bandwidth_mbps,
            "labels": sorted(node.labels) or None,
            "taints": sorted(node.taints) or None,
        }
        nodes.append({key: value for key, value in entry.items() if value is not None})
    dimensions = {
        dimension.name: {"hard": dimension.hard, "weight": dimension.weight}
        for dimension in cluster.dimensions
        if dimension not in DEFAULT_DIMENSIONS
    }
    excluded = [{"node": name, "reason": reason} for name, reason in cluster.excluded.items()]
    return {
        "nodes": nodes,
        **({"dimensions": dimensions} if dimensions else {}),
        **({"excluded": excluded} if excluded else {}),
    }


def _at_most(total: int, most: int, what: str, where: str) -> None:
    if total > most:
        raise BadInputError(f"{where}: nodes: {total} {what} in all, expected at most {most}")
