"""Clusters to plan on, and a real cluster and broker of this machine for tests that need them."""

from __future__ import annotations

from penstock.cluster.topology import CPU, CPU_POINTS_PER_SLOT, MEMORY, Cluster, Node
from penstock.spark.broker.broker import broker_down, broker_up, running_broker
from penstock.spark.clusters.local.lifecycle import running_cluster

__all__ = ["broker_down", "broker_up", "cluster", "node", "running_broker", "running_cluster"]

SLOT_MEMORY_MB = 3584.0


def node(
    name: str,
    rack: str = "r1",
    *,
    slots: int = 4,
    cpu: float | None = None,
    memory_mb: float | None = None,
    **resources: float,
) -> Node:
    """Return a node. `cpu` is in points, 100 per core; by default a core and 3584 MB per slot.

    Further keywords are amounts of resources of your own, such as `gpu=2`.
    """
    capacity = {
        CPU: CPU_POINTS_PER_SLOT * slots if cpu is None else cpu,
        MEMORY: SLOT_MEMORY_MB * slots if memory_mb is None else memory_mb,
        **resources,
    }
    return Node(name, rack, slots, capacity)


def cluster(nodes: int = 3, slots: int = 4, racks: int = 1, *, slot_memory_mb: float = SLOT_MEMORY_MB) -> Cluster:
    """Return a cluster of equal nodes n1, n2, ... that take turns over the racks r1, r2, ..."""
    return Cluster(
        tuple(
            node(f"n{number + 1}", f"r{number % racks + 1}", slots=slots, memory_mb=slot_memory_mb * slots)
            for number in range(nodes)
        )
    )
