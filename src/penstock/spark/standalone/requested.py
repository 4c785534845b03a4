"""The cluster somebody asks for on this machine: that of a file, or so many equal nodes."""

from __future__ import annotations

from pathlib import Path

from penstock.cluster.file import DEFAULT_SLOT_MEMORY_MB, NodesEntry, build_cluster, read_cluster
from penstock.cluster.resources import MEMORY
from penstock.cluster.topology import Cluster
from penstock.errors import BadInputError
from penstock.spark.standalone.daemons import LOWEST_SLOT_MB

MOST_NODES_HERE = 64
"""Every node is a Java process of about 200 MB."""


def requested_cluster(
    nodes: int | None,
    slots: int | None,
    memory_mb: float | None,
    racks: int | None,
    cluster: Cluster | str | Path | None,
) -> Cluster:
    """The cluster of a file, or `nodes` equal nodes n1, n2, ... spread over racks r1, r2, ... in blocks."""
    if cluster is not None:
        if (nodes, slots, memory_mb, racks) != (None, None, None, None):
            raise BadInputError("a cluster file says nodes, slots, memory and racks itself; give either")
        requested = cluster if isinstance(cluster, Cluster) else read_cluster(Path(cluster))
    else:
        requested = equal_nodes(nodes, slots, memory_mb, racks)
    if len(requested.nodes) > MOST_NODES_HERE:
        raise BadInputError(f"{len(requested.nodes)} nodes, expected at most {MOST_NODES_HERE}: each is a process here")
    for node in requested.nodes:
        slot_mb = node.capacity[MEMORY] / node.slots
        if slot_mb < LOWEST_SLOT_MB:
            raise BadInputError(
                f"node '{node.name}': {slot_mb:g} MB for a slot, expected at least {LOWEST_SLOT_MB}: "
                "an executor does not start with less"
            )
    return requested


def equal_nodes(nodes: int | None, slots: int | None, memory_mb: float | None, racks: int | None) -> Cluster:
    """Node i of N (from 0) stands in rack `floor(i R / N)` (from 0)."""
    if nodes is None or slots is None:
        raise BadInputError("expected nodes and slots, or a cluster file")
    racks = 1 if racks is None else racks
    memory_mb = DEFAULT_SLOT_MEMORY_MB if memory_mb is None else memory_mb
    if nodes < 1 or slots < 1 or not 0 < memory_mb < float("inf"):
        raise BadInputError("nodes, slots and memory: expected at least 1 of each")
    if not 1 <= racks <= nodes:
        raise BadInputError(f"racks: expected 1 to {nodes}, as many as nodes at most, found {racks}")
    entries = [
        NodesEntry(slots=slots, memory_mb=float(memory_mb * slots), rack=f"r{1 + number * racks // nodes}")
        for number in range(nodes)
    ]
    return build_cluster(entries, {}, "cluster")
