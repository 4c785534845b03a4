"""Constraints that no cluster could make sense of, found before anything is placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.constraints import SharedPer
from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from penstock.cluster.topology import Cluster
    from penstock.placement.contract import PlacementRequest


def check_words(request: PlacementRequest, cluster: Cluster, where: str = "") -> None:
    """Labels and taints must be those of some node: one that nobody has is more likely misspelt than meant.

    And memory shared in a slot's heap must leave room for a thread: a limit below it contradicts it."""
    labels = sorted({label for node in cluster.nodes for label in node.labels})
    taints = sorted({taint for node in cluster.nodes for taint in node.taints})
    at = f"{where}: " if where else ""
    for operator in request.operators:
        own = operator.constraints
        for label in (*own.required_labels, *own.preferred_labels, *own.forbidden_labels):
            if label not in labels:
                raise BadInputError(
                    f"{at}operator '{operator.name}': unknown label '{label}': no node has it; {nearest(label, labels)}"
                )
        for taint in own.tolerates:
            if taint not in taints:
                raise BadInputError(
                    f"{at}operator '{operator.name}': unknown taint '{taint}': no node has it; {nearest(taint, taints)}"
                )
    for taint in request.constraints.tolerates:
        if taint not in taints:
            raise BadInputError(f"{at}constraints: unknown taint '{taint}': no node has it; {nearest(taint, taints)}")
    in_heap = [s for s in request.constraints.shared_memory if s.per is SharedPer.SLOT and s.heap]
    for shared in in_heap if request.slot_memory is not None else ():
        if shared.mb > (request.slot_memory or 0.0):
            raise BadInputError(
                f"{at}constraints: shared_memory of {shared.mb:g} MB in one slot contradicts "
                f"worker_max_heap_mb {request.slot_memory:g}; one of them must change"
            )
