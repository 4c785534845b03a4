"""Whether a pipeline can be placed at all: on any cluster of nodes like these, on this one, or only not beside others.

On a cluster with as many nodes of every kind as one likes, each thread can have a node, and a rack, of its own; so a
pipeline can be placed there exactly if one thread of every operator fits some kind of node, alone and empty. That is
the shape. Whether this very cluster suffices is a packing problem: a placement proves that it does; that it does not
is proved by counting the threads each operator can have, or by an integer program over threads per node, which leaves
out how threads share slots (so it never rules out what is possible).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.constraints import SharedPer
from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.constraints.asking import ask
from penstock.placement.constraints.program import impossible
from penstock.placement.constraints.where import allowed, may_be_on
from penstock.placement.contract import Placement, Room
from penstock.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cluster.topology import Cluster, Node
    from penstock.placement.contract import OperatorRequest, PlacementRequest, Placer


class ExclusionScope(StrEnum):
    """What rules a pipeline out."""

    SHAPE = "no cluster of nodes like these"
    CLUSTER = "not this cluster, even empty"
    NOTHING = "this cluster, if it were empty"
    UNKNOWN = "none found on this cluster if it were empty, and none ruled out"


@dataclass(frozen=True, slots=True)
class Verdict:
    scope: ExclusionScope
    reason: str

    def __str__(self) -> str:
        return f"{self.scope}: {self.reason}" if self.reason else str(self.scope)


def verdict(request: PlacementRequest, cluster: Cluster, placer: Placer) -> Verdict:
    """Of a pipeline on a whole cluster."""
    for operator in request.operators:
        reason = _no_kind(request, operator, cluster)
        if reason:
            return Verdict(ExclusionScope.SHAPE, reason)
    room = Room(cluster, slot_memory_shared=False)
    if isinstance(ask(placer, request, room), Placement):
        return Verdict(ExclusionScope.NOTHING, "")
    for position, operator in enumerate(request.operators):
        most = most_threads(request, position, room)
        if most < operator.threads:
            reason = f"operator '{operator.name}' has {operator.threads} threads, and at most {most:g} can be placed"
            return Verdict(ExclusionScope.CLUSTER, reason + _because(operator))
    if impossible(request, room):
        return Verdict(ExclusionScope.CLUSTER, "no number of threads on each node keeps all limits and constraints")
    return Verdict(ExclusionScope.UNKNOWN, "")


def _no_kind(request: PlacementRequest, operator: OperatorRequest, cluster: Cluster) -> str:
    """Why no kind of node takes even one thread; empty where one does."""
    kinds = {(tuple(sorted(n.capacity.items())), n.slots, n.labels, n.taints): n for n in cluster.nodes}
    entered = [node for node in kinds.values() if may_be_on(node, operator, request)]
    if not entered:
        own = operator.constraints
        parts = [
            f"all of {', '.join(own.required_labels)}" if own.required_labels else "",
            f"none of {', '.join(own.forbidden_labels)}" if own.forbidden_labels else "",
        ]
        labels = " and ".join(part for part in parts if part)
        tolerated = ", ".join(sorted({*own.tolerates, *request.constraints.tolerates}))
        taints = f"no taints but {tolerated}" if tolerated else "no taints"
        return f"operator '{operator.name}' needs a node with {f'labels {labels}, and ' if labels else ''}{taints}"
    missing = [_missing(request, operator, node, cluster) for node in entered]
    if any(not short for short in missing):
        return ""
    closest = min(range(len(missing)), key=lambda k: missing[k][0][0])
    _, what, needed, offered = missing[closest][0]
    needs = f"one thread of operator '{operator.name}' needs {needed:g} {what}"
    if all(what in {name for _, name, _, _ in short} for short in missing):
        return f"{needs}, and no kind of node it may be on has more than {max(_offers(missing, what)):g}"
    return f"{needs}, the kind of node that comes closest has {offered:g}, and those with more lack something else"


def _offers(missing: Iterable[list[tuple[float, str, float, float]]], what: str) -> list[float]:
    return [offered for short in missing for _, name, _, offered in short if name == what]


def _missing(
    request: PlacementRequest, operator: OperatorRequest, node: Node, cluster: Cluster
) -> list[tuple[float, str, float, float]]:
    """What an empty node lacks for one thread and what it shares, the worst first: the missing share of what is needed,
    name, needed, offered."""
    own = [s for s in request.constraints.shared_memory if operator.name in s.operators]
    lacks = []
    memory_axis = next((k for k, d in enumerate(cluster.dimensions) if d.name == "memory_mb"), None)
    for axis, (dimension, amount) in enumerate(zip(cluster.dimensions, operator.demand, strict=True)):
        needed = amount + (sum(s.mb for s in own) if axis == memory_axis else 0.0)
        offered = node.capacity[dimension.name]
        if needed > offered * (1 + TOLERANCE):
            lacks.append(((needed - offered) / needed, dimension.name, needed, offered))
    if memory_axis is not None:
        heap = operator.demand[memory_axis] - operator.constraints.off_heap_mb
        heap += sum(s.mb for s in own if s.per is SharedPer.SLOT and s.heap)
        limit = min(node.capacity["memory_mb"], request.slot_memory or inf)
        if heap > limit * (1 + TOLERANCE):
            lacks.append(((heap - limit) / heap, "memory_mb of one slot", heap, limit))
    if not node.slots:
        lacks.append((inf, "slots", 1.0, 0.0))
    return sorted(lacks, reverse=True)


def most_threads(request: PlacementRequest, position: int, room: Room) -> float:
    """How many threads of one operator the empty cluster takes if no other is there:

    sum over racks of min(most per rack, sum over its nodes of min(most per node, what fits, what its slots hold))
    """
    operator = request.operators[position]
    own = operator.constraints
    fits = np.where(room.slots > 0, inf, 0.0)
    for axis, amount in enumerate(operator.demand):
        if amount > 0:
            fits = np.minimum(fits, np.floor(room.capacity[:, axis] * (1 + TOLERANCE) / amount))
    heap = operator.demand[room.memory_axis] - own.off_heap_mb if room.memory_axis is not None else 0.0
    if heap > 0:
        fits = np.minimum(fits, room.slots * np.floor(slot_limit(request, room) * (1 + TOLERANCE) / heap))
    if own.most_per_node is not None:
        fits = np.minimum(fits, own.most_per_node)
    fits[~allowed(request, room)[position]] = 0.0
    per_rack = np.zeros(int(room.rack.max(initial=0)) + 1)
    np.add.at(per_rack, room.rack, fits)
    return float(np.minimum(per_rack, inf if own.most_per_rack is None else own.most_per_rack).sum())


def _because(operator: OperatorRequest) -> str:
    own = operator.constraints
    limits = [
        f"at most {most} per {what}"
        for most, what in ((own.most_per_node, "node"), (own.most_per_rack, "rack"))
        if most
    ]
    return f" ({', '.join(limits)})" if limits else ""
