"""Feasibility: whether a pipeline can be placed on any cluster of such nodes, on this cluster, or only without others.

On a cluster with unlimited nodes of every kind, each thread can have a node, and a rack, of its own; so a pipeline can
be placed there exactly if one thread of every operator fits some kind of node, alone and empty. That is the shape.
Whether this very cluster suffices is a packing problem: a placement proves that it does; that it does not is proved by
counting the threads each operator can have, or by an integer program over threads per node, which leaves out how
threads share slots (so it never rules out what is possible).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.dataflow.pipeline import SharedPer
from penstock.planning.placement.constraints import allowed, ask, may_be_on
from penstock.planning.placement.contract import Placement, Room
from penstock.planning.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cluster.topology import Cluster, Node
    from penstock.planning.placement.contract import OperatorRequest, PlacementRequest, Placer


# An integer program that rules placements out: threads per node within all limits and constraints but those of slots.
#
# Variables are x(n, o), the threads of operator o on node n, and y(n, o), whether there are any. A slot's own limits
# are left out but for the heap of all slots of a node together, so a program without a solution proves that there is
# no placement, and one with a solution proves nothing.


MOST_VARIABLES = 4000
MOST_SECONDS = 5.0


def impossible(request: PlacementRequest, room: Room) -> bool:
    """Return whether the program has no solution; False also if it is too large, or cannot be solved here."""
    nodes, operators = len(room.slots), len(request.operators)
    if find_spec("scipy") is None or 2 * nodes * operators > MOST_VARIABLES or not nodes:
        return False
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - heavy, and optional
    from scipy.sparse import csr_array  # noqa: PLC0415

    rows = _Rows(request, room)
    row, column, value = zip(*rows.at, strict=True)
    matrix = csr_array((value, (row, column)), shape=(len(rows.low), 2 * nodes * operators))
    x_most = np.where(np.array(allowed(request, room)).T, [o.threads for o in request.operators], 0.0)
    result: Any = milp(
        np.zeros(2 * nodes * operators),
        constraints=LinearConstraint(matrix, rows.low, rows.high),
        integrality=np.ones(2 * nodes * operators),
        bounds=Bounds(0.0, np.concatenate([x_most.ravel(), np.ones(nodes * operators)])),
        options={"time_limit": MOST_SECONDS},
    )
    return bool(result.status == 2)


class _Rows:
    def __init__(self, request: PlacementRequest, room: Room) -> None:
        self._nodes, self._operators = len(room.slots), len(request.operators)
        self.at: list[tuple[int, int, float]] = []
        """Row, column and value of each entry that is not 0."""
        self.low: list[float] = []
        self.high: list[float] = []
        position = {operator.name: k for k, operator in enumerate(request.operators)}
        for k, operator in enumerate(request.operators):
            everywhere = {(n, k): 1.0 for n in range(self._nodes)}
            self._add(everywhere, operator.threads, operator.threads)
            own = operator.constraints
            for n in range(self._nodes):
                most = min(operator.threads, own.most_per_node or operator.threads)
                self._add({(n, k): 1.0}, -np.inf, 0.0, {(n, k): -float(most)})
            if own.most_per_rack is not None:
                for rack in np.unique(room.rack).tolist():
                    there = np.flatnonzero(room.rack == rack).tolist()
                    self._add({(n, k): 1.0 for n in there}, 0.0, own.most_per_rack)
        for n in range(self._nodes):
            for a, b in request.constraints.apart_on_nodes:
                self._add({}, 0.0, 1.0, {(n, position[a]): 1.0, (n, position[b]): 1.0})
            self._resources(request, room, n, position)

    def _resources(self, request: PlacementRequest, room: Room, n: int, position: dict[str, int]) -> None:
        for axis in range(len(room.dimensions)):
            taken = {(n, k): operator.demand[axis] for k, operator in enumerate(request.operators)}
            limit = room.capacity[n, axis] * (1 + TOLERANCE)
            self._add(taken, -np.inf, limit)
            if axis == room.memory_axis:
                # Shared memory is taken wherever any one of the sharers is.
                for shared in request.constraints.shared_memory:
                    for name in shared.operators:
                        self._add(taken, -np.inf, limit, {(n, position[name]): shared.mb})
        if room.memory_axis is not None:
            axis = room.memory_axis
            own = [max(o.demand[axis] - o.constraints.off_heap_mb, 0.0) for o in request.operators]
            heap = {(n, k): amount for k, amount in enumerate(own)}
            most = float(slot_limit(request, room)[n] * room.slots[n]) * (1 + TOLERANCE)
            self._add(heap, -np.inf, most)
            for shared in request.constraints.shared_memory:
                if shared.per is SharedPer.SLOT and shared.heap:
                    for name in shared.operators:
                        self._add(heap, -np.inf, most, {(n, position[name]): shared.mb})

    def _add(
        self,
        x: dict[tuple[int, int], float],
        low: float,
        high: float,
        y: dict[tuple[int, int], float] | None = None,
    ) -> None:
        size = self._nodes * self._operators
        row = len(self.low)
        self.at += [(row, n * self._operators + k, weight) for (n, k), weight in x.items()]
        self.at += [(row, size + n * self._operators + k, weight) for (n, k), weight in (y or {}).items()]
        self.low.append(low)
        self.high.append(high)


class ExclusionScope(StrEnum):
    """The reason that rules a pipeline out."""

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
    """Return the verdict for a pipeline on a whole cluster."""
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
    """Return why no kind of node takes even one thread; empty if one does."""
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
    """Return the shortages of an empty node for one thread and the memory it shares, the worst first: missing share,
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
    """Return how many threads of one operator an empty cluster takes if there is no other operator:

    sum over racks of min(most per rack, sum over its nodes of min(max per node, threads that fit, threads its slots
    hold))
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
