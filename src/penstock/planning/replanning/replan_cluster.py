"""Placing a whole cluster again: pipelines stay where they run unless moving pays.

Every pipeline keeps the threads it has on nodes that still take them; those that are missing (new threads, lost nodes,
demands that have grown) go where there is room, near the others. Then, in priority order, each is also placed anew on
what the others leave, and the new place is taken where

    network cost kept - network cost anew > move_cost x share of its threads that would move.

Others never move for that. For a pipeline that finds no room beside what is kept the fewest threads of the lowest
priorities give way (`penstock.planning.replanning.priorities`), and only if it fits then: those are placed after it,
keeping what they can, and nothing else moves in that pass. Slots of a node are handed out in order, so slots given up
below one that is kept stay unused until the node is empty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal
from penstock.base.tolerance import TOLERANCE
from penstock.cluster.topology import Slot
from penstock.planning.placement.constraints import ask, broken, constrained, heap_mb, open_to
from penstock.planning.placement.contract import PlacedBundle, Placement, Room
from penstock.planning.placement.slots import slot_limit
from penstock.planning.prediction.placement import mean_cost, stream_costs
from penstock.planning.replanning.plan_changes import ThreadMoves, by_operator, moves
from penstock.planning.replanning.priorities import Candidate, Eviction, fewest, queue
from penstock.planning.whole_cluster import ClusterPlacement, summed_up

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from penstock.cluster.topology import Cluster
    from penstock.planning.placement.contract import PlacementRequest, Placer
    from penstock.planning.replanning.priorities import Level

DEFAULT_CLUSTER_MOVE_COST = 0.5
"""Moving a whole pipeline must save half a hop of every tuple."""

Rows = dict[Slot, dict[str, int]]


def place_again(
    cluster: Cluster,
    requests: Sequence[tuple[PlacementRequest, int]],
    placer: Placer,
    current: Mapping[str, Rows],
    move_cost: float,
    guarantees: Mapping[str, Mapping[str, float]] | None = None,
) -> ClusterPlacement:
    line = queue(requests, cluster, guarantees or {})
    ordered = [entry.request for entry in line]
    level = {entry.request.pipeline: entry.level for entry in line}
    state = _State(cluster, placer, current, move_cost)
    waiting = [request for request in ordered if not state.keep(request, whole=True)]
    refused: dict[str, Refusal] = {}
    evictions: dict[str, Eviction] = {}
    while waiting:
        request = waiting.pop(0)
        if state.keep(request):
            continue
        answer = state.anew(request)
        if isinstance(answer, Refusal):
            victims = state.victims(request, ordered, level)
            if victims:
                answer = state.anew(request, without={each.pipeline for each in victims})
                evictions.update(_explained(request, victims, level))
                lower = [other for other in ordered if other.pipeline in {each.pipeline for each in victims}]
                for other in lower:
                    state.give_up(other)
                waiting = [other for other in ordered if other in lower or other in waiting]
        if isinstance(answer, Refusal):
            gone = evictions.get(request.pipeline)
            refused[request.pipeline] = replace(answer, notes=(*answer.notes, str(gone))) if gone else answer
        else:
            state.put(request, answer)
    for request in ordered:
        if request.pipeline not in refused and not evictions:
            state.improve(request)
    placements = {r.pipeline: state.placements[r.pipeline] for r in ordered if r.pipeline not in refused}
    evicted = {name: each for name, each in evictions.items() if name in refused}
    return summed_up(cluster, ordered, placer.name, placements, refused, state.moves(ordered), evicted)


def _explained(
    request: PlacementRequest, victims: Sequence[Candidate], level: Mapping[str, Level]
) -> dict[str, Eviction]:
    threads = sum(each.threads for each in victims)
    why = (
        f"{level[request.pipeline]} before {', '.join(dict.fromkeys(str(each.level) for each in victims))}; "
        f"had any of the {len(victims)} that did ({threads:,} threads) stayed, it would not have fitted"
    )
    return {each.pipeline: Eviction(each.pipeline, each.threads, request.pipeline, why) for each in victims}


class _State:
    """Who is where, and what each takes of every node."""

    def __init__(self, cluster: Cluster, placer: Placer, current: Mapping[str, Rows], move_cost: float) -> None:
        self._cluster, self._placer, self._current, self._move_cost = cluster, placer, current, move_cost
        self._rooms: dict[str, Room] = {}
        self.placements: dict[str, Placement] = {}

    def room(self, but: Collection[str] = ()) -> Room:
        """What is left beside every pipeline but some."""
        room = Room(self._cluster, slot_memory_shared=False)
        for name, taken in self._rooms.items():
            if name not in but:
                room.free -= taken.capacity - taken.free
                room.slots_taken = np.maximum(room.slots_taken, taken.slots_taken)
                room.reserved |= taken.reserved
        return room

    def put(self, request: PlacementRequest, placement: Placement) -> None:
        taken = Room(self._cluster, slot_memory_shared=False)
        taken.take(placement, {o.name: o.demand for o in request.operators}, request.constraints)
        self._rooms[request.pipeline] = taken
        self.placements[request.pipeline] = placement

    def give_up(self, request: PlacementRequest) -> bool:
        return self.placements.pop(request.pipeline, None) is not None and bool(self._rooms.pop(request.pipeline))

    def anew(self, request: PlacementRequest, without: Collection[str] = ()) -> Placement | Refusal:
        """As the placer would have it, told what runs, beside all others but some."""
        informed = replace(request, current=by_operator(self._current.get(request.pipeline, {})))
        return ask(self._placer, informed, self.room({request.pipeline, *without}))

    def victims(
        self, request: PlacementRequest, ordered: Sequence[PlacementRequest], level: Mapping[str, Level]
    ) -> tuple[Candidate, ...] | None:
        """Those of lower levels that give way to a pipeline; None where that would not let it in."""
        lower = [
            Candidate(other.pipeline, level[other.pipeline], other.threads)
            for other in ordered
            if other.pipeline in self.placements and level[other.pipeline] > level[request.pipeline]
        ]
        return fewest(lower, lambda gone: not isinstance(self.anew(request, without=gone), Refusal))

    def keep(self, request: PlacementRequest, *, whole: bool = False) -> bool:
        """Leave the pipeline where it runs, with what is missing beside it (nothing may be where it is to be kept
        `whole`); False where it does not run, or cannot."""
        running = self._current.get(request.pipeline)
        if not running or request.pipeline in self.placements:
            return request.pipeline in self.placements
        kept = _Kept(request, self.room(), running, self._others_slots(request.pipeline))
        bundles = None if whole and kept.misses_threads else kept.placement()
        if bundles is None:
            return False
        placement = Placement(request.pipeline, self._placer.name, bundles)
        if constrained(request, self.room()) and not self._keeps_constraints(request, placement):
            return False
        self.put(request, placement)
        return True

    def _keeps_constraints(self, request: PlacementRequest, placement: Placement) -> bool:
        """Whether where it runs, with what was added beside it, is still allowed and still fits with what is shared."""
        room = self.room()
        position = self._cluster.position
        heaps = all(
            heap_mb(request, row, room.memory_axis) <= slot_limit(request, room)[position(slot.node)] * (1 + TOLERANCE)
            for slot, row in placement.by_slot().items()
        )
        nodes = [position(bundle.slot.node) for bundle in placement.bundles]
        entered = bool(open_to(request, room)[nodes].all())
        room.take(placement, {o.name: o.demand for o in request.operators}, request.constraints)
        slack = TOLERANCE * room.capacity.max(axis=0, initial=0.0)
        fits = bool((room.free[nodes] >= -slack).all())
        return heaps and entered and fits and next(broken(self._cluster, request, placement), None) is None

    def _others_slots(self, pipeline: str) -> set[Slot]:
        """Slots other pipelines have, or run on and have not been placed again yet."""
        slots = {b.slot for name, placed in self.placements.items() if name != pipeline for b in placed.bundles}
        for name, running in self._current.items():
            if name != pipeline and name not in self.placements:
                slots.update(running)
        return slots

    def improve(self, request: PlacementRequest) -> None:
        """Take a new place where the network cost it saves is worth the threads that move."""
        if not self._current.get(request.pipeline):
            return
        kept = self.placements[request.pipeline]
        answer = self.anew(request)
        if isinstance(answer, Refusal):
            return
        saved = mean_cost(stream_costs(request, kept, self._cluster)) - mean_cost(
            stream_costs(request, answer, self._cluster)
        )
        further = self._moves(request, answer).moved - self._moves(request, kept).moved
        if saved > self._move_cost * further / max(request.threads, 1):
            self.put(request, answer)

    def _moves(self, request: PlacementRequest, placement: Placement) -> ThreadMoves:
        running = self._current.get(request.pipeline, {})
        return moves(running, running, placement.by_slot())

    def moves(self, requests: Sequence[PlacementRequest]) -> dict[str, ThreadMoves]:
        return {
            request.pipeline: self._moves(request, self.placements[request.pipeline])
            for request in requests
            if request.pipeline in self.placements
        }


class _Kept:
    """One pipeline on the slots it has, as far as they take it, and what is missing near them."""

    def __init__(self, request: PlacementRequest, room: Room, running: Rows, taken: set[Slot]) -> None:
        self._request, self._room, self._taken = request, room, taken
        self._limit = slot_limit(request, room)
        self._slack = TOLERANCE * room.capacity.max(axis=0, initial=0.0)
        self._demand = {operator.name: np.array(operator.demand) for operator in request.operators}
        self._held: Rows = {}
        self._memory: dict[Slot, float] = {}
        self._left = {operator.name: operator.threads for operator in request.operators}
        names = {node.name for node in room.cluster.nodes}
        for slot, row in running.items():
            if slot.node in room.cluster.excluded:
                continue
            if slot.node in names and slot not in taken and 0 <= slot.number < room.cluster.node(slot.node).slots:
                for name, threads in row.items():
                    if name in self._left:
                        self._put(slot, name, min(threads, self._left[name]))

    @property
    def misses_threads(self) -> bool:
        return any(self._left.values())

    def placement(self) -> tuple[PlacedBundle, ...] | None:
        """All threads placed; None where some find no room."""
        for name in sorted(self._left, key=lambda name: -float(self._demand[name].max(initial=0.0))):
            for slot in self._places():
                if not self._left[name]:
                    break
                self._put(slot, name, self._left[name])
            if self._left[name]:
                return None
        order = [operator.name for operator in self._request.operators]
        return tuple(
            PlacedBundle(name, row[name], slot, "runs here, or beside it" if self._request.explain else "")
            for slot, row in self._held.items()
            for name in order
            if row.get(name)
        )

    def _put(self, slot: Slot, name: str, threads: int) -> None:
        """As many of so many threads as the slot and its node take."""
        node = self._room.cluster.position(slot.node)
        demand, free = self._demand[name], self._room.free[node] + self._slack
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            fits = np.floor(np.where(demand > 0, free / demand, np.inf).min(initial=np.inf))
        memory = float(demand[self._room.memory_axis]) if self._room.memory_axis is not None else 0.0
        if memory > 0:
            left = float(self._limit[node]) * (1 + TOLERANCE) - self._memory.get(slot, 0.0)
            fits = min(fits, left // memory)
        count = int(max(0, min(fits, threads)))
        if not count:
            return
        row = self._held.setdefault(slot, {})
        row[name] = row.get(name, 0) + count
        self._memory[slot] = self._memory.get(slot, 0.0) + count * memory
        self._room.free[node] -= count * demand
        self._left[name] -= count

    def _places(self) -> Iterator[Slot]:
        """Slots it has, then further slots of its nodes, then of the other nodes of its racks, then of all others."""
        yield from list(self._held)
        cluster = self._room.cluster
        own = dict.fromkeys(slot.node for slot in self._held)
        racks = {cluster.node(name).rack for name in own}
        near = [node for node in cluster.nodes if node.name not in own and node.rack in racks]
        far = [node for node in cluster.nodes if node.name not in own and node.rack not in racks]
        for node in (*(cluster.node(name) for name in own), *near, *far):
            first = int(self._room.slots_taken[cluster.position(node.name)])
            for number in range(first, node.slots):
                slot = Slot(node.name, number)
                if slot not in self._held and slot not in self._taken:
                    yield slot
