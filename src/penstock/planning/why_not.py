"""Why a pipeline was not placed on a whole cluster, and the smallest changes that would let it in.

Every change named has been tried on what the others leave: it works. Pipelines of lower priority are not among those
others: they are placed after it, on what it leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.errors import BadInputError, Refusal, nearest
from penstock.base.tolerance import TOLERANCE
from penstock.cluster.topology import MEMORY
from penstock.dataflow.pipeline import ANYWHERE, UNCONSTRAINED
from penstock.planning.placement.constraints import ask
from penstock.planning.placement.contract import Room
from penstock.planning.placement.feasibility import ExclusionScope, Verdict, verdict
from penstock.planning.placement.group_placement import total_demand
from penstock.planning.replanning.priorities import Candidate, fewest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from penstock.cluster.topology import Cluster, Node
    from penstock.planning.placement.contract import PlacementRequest, Placer
    from penstock.planning.replanning.priorities import Queued
    from penstock.planning.whole_cluster import ClusterPlacement

MOST_ADDED = 1024
"""Nodes that are tried as an addition."""


class Cause(StrEnum):
    """What kept a pipeline out."""

    PLACED = "placed"
    RESOURCE = "resource"
    CONSTRAINT = "constraint"
    STRANDING = "stranding"
    """There is enough of everything, but not together on the same nodes."""


@dataclass(frozen=True, slots=True)
class WhyNot:
    pipeline: str
    cause: Cause
    because: str
    feasible: Verdict | None = None
    """Whether the cluster could hold it if it were empty."""
    nearest_node: str | None = None
    changes: tuple[str, ...] = ()
    """Each lets it in, the smallest first."""

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.pipeline}: {self.because}"]
        if self.feasible is not None:
            lines.append(f"  could be placed on: {self.feasible}")
        if self.nearest_node:
            lines.append(f"  nearest node: {self.nearest_node}")
        lines += [f"  {'would get in' if k == 0 else 'or'} with {change}" for k, change in enumerate(self.changes)]
        if self.cause is not Cause.PLACED and not self.changes:
            lines.append("  no single change that was tried lets it in")
        return lines

    def document(self) -> dict[str, Any]:
        return {
            "cause": str(self.cause),
            "because": self.because,
            "feasible": None if self.feasible is None else str(self.feasible),
            "nearest_node": self.nearest_node,
            "changes": list(self.changes),
        }


def why_not(
    pipeline: str, line: Sequence[Queued], cluster: Cluster, result: ClusterPlacement, placer: Placer
) -> WhyNot:
    """Of one pipeline of a placed cluster; `line` is the queue it was placed in."""
    entry = next((entry for entry in line if entry.request.pipeline == pipeline), None)
    if entry is None:
        known = nearest(pipeline, [entry.request.pipeline for entry in line])
        raise BadInputError(f"unknown pipeline '{pipeline}'; {known}")
    if pipeline in result.placements:
        slots = result.placements[pipeline].by_slot()
        nodes = {slot.node for slot in slots}
        racks = {cluster.node(node).rack for node in nodes}
        where = f"{len(slots):,} slots of {len(nodes):,} nodes in {len(racks)} racks"
        cost = result.network_costs[pipeline]
        because = f"placed: {entry.request.threads:,} threads on {where}, network cost {cost:.3f}"
        return WhyNot(pipeline, Cause.PLACED, because)
    return _Asking(entry, line, cluster, result, placer).answer()


class _Asking:
    """One refused pipeline, and what is left beside those that are placed before it or are its equals."""

    def __init__(
        self, entry: Queued, line: Sequence[Queued], cluster: Cluster, result: ClusterPlacement, placer: Placer
    ) -> None:
        self._entry, self._line, self._cluster, self._placer = entry, line, cluster, placer
        self._result = result
        self._request = entry.request
        self._refusal = result.refused[entry.request.pipeline]
        self._taken: dict[str, Room] = {}
        for other in line:
            placement = result.placements.get(other.request.pipeline)
            if placement is not None and other.level <= entry.level:
                taken = Room(cluster, slot_memory_shared=False)
                taken.take(placement, {o.name: o.demand for o in other.request.operators}, other.request.constraints)
                self._taken[other.request.pipeline] = taken

    def answer(self) -> WhyNot:
        possible = verdict(self._request, self._cluster, self._placer)
        shortage = self._refusal.shortages[0] if self._refusal.shortages else None
        near = str(shortage) if shortage is not None and self._cluster.find(shortage.closest) is not None else None
        dropped = self._droppable()
        cause, because = self._cause(possible, dropped)
        changes = (
            [f"constraint {what} dropped" for what in dropped],
            list(self._fewer_threads()),
            list(self._more_nodes()),
            list(self._giving_way()),
            list(self._larger_node()) if possible.scope is ExclusionScope.SHAPE else [],
        )
        return WhyNot(
            self._request.pipeline,
            cause,
            because,
            possible,
            near,
            tuple(change for group in changes for change in group),
        )

    def _room(self, without: Collection[str] = (), added: Sequence[Node] = ()) -> Room:
        """What is left beside those but some, with further nodes behind the others."""
        nodes = len(self._cluster.nodes)
        wider = replace(self._cluster, nodes=(*self._cluster.nodes, *added)) if added else self._cluster
        room = Room(wider, slot_memory_shared=False)
        for name, taken in self._taken.items():
            if name not in without:
                room.free[:nodes] -= taken.capacity - taken.free
                room.slots_taken[:nodes] = np.maximum(room.slots_taken[:nodes], taken.slots_taken)
                room.reserved[:nodes] |= taken.reserved
        return room

    def _fits(self, request: PlacementRequest, room: Room) -> bool:
        return not isinstance(ask(self._placer, request, room), Refusal)

    def _cause(self, possible: Verdict, dropped: Sequence[str]) -> tuple[Cause, str]:
        room = self._room()
        needed, left = total_demand(self._request), room.free.clip(min=0.0).sum(axis=0)
        if possible.scope in (ExclusionScope.SHAPE, ExclusionScope.CLUSTER):
            unbound = verdict(_without_constraints(self._request), self._cluster, self._placer)
            ruled_out = unbound.scope in (ExclusionScope.SHAPE, ExclusionScope.CLUSTER)
            return Cause.RESOURCE if ruled_out else Cause.CONSTRAINT, possible.reason
        if dropped:
            return Cause.CONSTRAINT, f"constraint {dropped[0]} keeps it out of nodes that have room"
        short = np.flatnonzero(needed > left * (1 + TOLERANCE))
        if len(short):
            axis = int(short[np.argmax((needed / np.maximum(left, TOLERANCE))[short])])
            name = room.dimensions[axis].name
            return Cause.RESOURCE, f"needs {needed[axis]:,.0f} {name} in all, and {left[axis]:,.0f} are left"
        return Cause.STRANDING, _stranded(self._request, room)

    def _droppable(self) -> list[str]:
        """Constraints without any one of which it gets in; all together where none alone is enough."""
        room = self._room()
        single = [what for what, without in _without_one(self._request) if self._fits(without, room)]
        if single:
            return single
        free = _without_constraints(self._request)
        return ["(all of them)"] if free != self._request and self._fits(free, room) else []

    def _fewer_threads(self) -> Iterator[str]:
        """The most threads that fit, every operator cut by the same share."""
        room, request = self._room(), self._request

        def cut(percent: int) -> PlacementRequest:
            operators = tuple(replace(o, threads=max(1, o.threads * percent // 100)) for o in request.operators)
            return replace(request, operators=operators, patterns=())

        percent = _largest(0, 99, lambda share: share == 0 or self._fits(cut(share), room))
        if percent:
            threads = cut(percent).threads
            fewer = f"{request.threads - threads:,} of its {request.threads:,} threads fewer"
            yield f"{fewer}, every operator cut alike"

    def _more_nodes(self) -> Iterator[str]:
        """The fewest more nodes of one kind, of the kind that needs the fewest, in a rack of their own."""
        kinds = {(tuple(sorted(n.capacity.items())), n.slots, n.labels, n.taints): n for n in self._cluster.nodes}
        best: tuple[int, str] | None = None
        for kind in kinds.values():
            most = MOST_ADDED if best is None else best[0] - 1
            count = self._fewest_of(kind, most)
            if count is None:
                continue
            capacity = ", ".join(f"{amount:g} {name}" for name, amount in kind.capacity.items())
            labels = f", labels {', '.join(sorted(kind.labels))}" if kind.labels else ""
            best = (count, f"{count:,} more {'node' if count == 1 else 'nodes'} of {capacity}{labels}")
        if best is not None:
            yield best[1]

    def _larger_node(self) -> Iterator[str]:
        """The least that a further node must have of everything, where no kind of node takes one thread; its labels are
        those asked for."""
        needs = np.array([operator.demand for operator in self._request.operators]).max(axis=0)
        shared = sum(each.mb for each in self._request.constraints.shared_memory)
        names = [dimension.name for dimension in self._cluster.dimensions]
        capacity = {name: float(amount) for name, amount in zip(names, needs, strict=True)}
        if shared and MEMORY in capacity:
            capacity[MEMORY] += shared
        labels = frozenset(label for o in self._request.operators for label in o.constraints.required_labels)
        kind = replace(self._cluster.nodes[0], capacity=capacity, labels=labels, taints=frozenset())
        count = self._fewest_of(kind, MOST_ADDED)
        if count is not None:
            amounts = ", ".join(f"{amount:g} {name}" for name, amount in capacity.items())
            tail = f", labels {', '.join(sorted(labels))}" if labels else ""
            yield f"{count:,} more {'node' if count == 1 else 'nodes'} of at least {amounts}{tail}"

    def _fewest_of(self, kind: Node, most: int) -> int | None:
        """How many more nodes like this one, at least, let it in; None where `most` do not."""
        room = self._room(added=[replace(kind, name=f"+{k}", rack="+") for k in range(most)])
        present = np.arange(len(room.slots)) < len(self._cluster.nodes)

        def enough(count: int) -> bool:
            mask = present.copy()
            mask[len(self._cluster.nodes) : len(self._cluster.nodes) + count] = True
            return self._fits(self._request, room.only(mask))

        if most < 1 or not enough(most):
            return None
        return most - _largest(0, most - 1, lambda fewer: enough(most - fewer))

    def _giving_way(self) -> Iterator[str]:
        """The fewest threads of others of its level without which it gets in."""
        others = [
            Candidate(entry.request.pipeline, entry.level, entry.request.threads)
            for entry in self._line
            if entry.request.pipeline in self._result.placements and entry.level == self._entry.level
        ]
        group = fewest(others, lambda gone: self._fits(self._request, self._room(without=gone)))
        if group:
            names = ", ".join(each.pipeline for each in group)
            yield f"{names} out of the way ({sum(each.threads for each in group):,} threads of its own priority)"


def _stranded(request: PlacementRequest, room: Room) -> str:
    """What is left on nodes that lack something else for even one thread of the pipeline."""
    parts = []
    needs = np.array([operator.demand for operator in request.operators])
    for axis, dimension in enumerate(room.dimensions):
        others = [k for k in range(len(room.dimensions)) if k != axis]
        least = needs.min(axis=0)
        lacking = (
            (room.free[:, others] < least[others] * (1 - TOLERANCE)).any(axis=1)
            if others
            else np.zeros(len(room.free), bool)
        )
        amount = float(room.free[lacking, axis].clip(min=0.0).sum())
        if amount > 0:
            parts.append(f"{amount:,.0f} {dimension.name} on {int(lacking.sum()):,} nodes that lack another resource")
    detail = "; ".join(parts) or "it is left in pieces smaller than its threads"
    return f"there is enough of every resource in all, but not together on the same nodes: {detail}"


def _without_constraints(request: PlacementRequest) -> PlacementRequest:
    """But for taints, which are the nodes' own, and would keep it out of all the more."""
    tolerant = UNCONSTRAINED.model_copy(update={"tolerates": request.constraints.tolerates})
    operators = tuple(
        replace(o, constraints=ANYWHERE.model_copy(update={"tolerates": o.constraints.tolerates}))
        for o in request.operators
    )
    return replace(request, constraints=tolerant, operators=operators)


def _without_one(request: PlacementRequest) -> Iterator[tuple[str, PlacementRequest]]:
    """The pipeline without each of its constraints, one at a time."""
    for key in type(request.constraints).model_fields:
        if key != "tolerates" and getattr(request.constraints, key) != getattr(UNCONSTRAINED, key):
            fewer = request.constraints.model_copy(update={key: getattr(UNCONSTRAINED, key)})
            yield key, replace(request, constraints=fewer)
    for position, operator in enumerate(request.operators):
        own = operator.constraints
        for key in type(own).model_fields:
            if key not in ("off_heap_mb", "tolerates") and getattr(own, key) != getattr(ANYWHERE, key):
                changed = replace(operator, constraints=own.model_copy(update={key: getattr(ANYWHERE, key)}))
                operators = (*request.operators[:position], changed, *request.operators[position + 1 :])
                yield f"{key} of '{operator.name}'", replace(request, operators=operators)


def _largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest number from `low` on for which it holds, if it holds up to there; `low` is taken to hold."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
