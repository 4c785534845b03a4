"""R-Storm: resource-aware placement with hard and soft limits (R-Storm, Algorithms 1 to 4).

The reference node is the node with the most left in the rack with the most left. It takes the first thread if
that fits; every further thread goes to the feasible node with the smallest

    sum over dimensions of weight x (free - demand)^2  +  network_weight x net(reference, node)

where net is 0 on the reference node, 0.5 in its rack and 1 elsewhere. Feasible means that every hard
dimension and one slot's memory suffice; a soft dimension may go below zero. The square is blind to its sign,
so a node that would be overloaded counts as much as one with room to spare: that is the published rule, kept
here as the baseline.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock.base.files import Weight  # noqa: TC001 - options are checked by their annotations at run time
from penstock.base.tolerance import cell, first_largest, key_in, tie_keys
from penstock.planning.placement.board import Board, Fits, no_node
from penstock.planning.placement.contract import Placement
from penstock.planning.placement.slots import bundled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.base.errors import Refusal
    from penstock.planning.placement.contract import PlacementRequest, Room


# The order of operators and threads in R-Storm.


def breadth_first(operators: int, streams: Sequence[tuple[int, int]], sources: Sequence[int]) -> list[int]:
    """Operators (positions 0..operators-1) breadth first along outgoing streams (R-Storm, Algorithm 2).

    All sources are in the queue at the start; streams are followed in declared order; cycles are allowed.
    Operators that no source reaches become roots of their own, in declared order.
    """
    following: list[list[int]] = [[] for _ in range(operators)]
    for sender, receiver in streams:
        following[sender].append(receiver)
    order: list[int] = []
    seen = [False] * operators
    queue: deque[int] = deque()
    for roots in (sources, *((operator,) for operator in range(operators))):
        for root in roots:
            if not seen[root]:
                seen[root] = True
                queue.append(root)
        while queue:
            operator = queue.popleft()
            order.append(operator)
            for receiver in following[operator]:
                if not seen[receiver]:
                    seen[receiver] = True
                    queue.append(receiver)
    return order


def thread_order(order: Sequence[int], threads: Sequence[int]) -> list[int]:
    """The operator of every thread in turn: one thread of each operator of `order`, round after round, until
    all are taken (R-Storm, Algorithm 3). `threads` is indexed by operator."""
    taken: list[int] = []
    active = [operator for operator in order if threads[operator] > 0]
    done = 0
    while active:
        done += 1
        taken += active
        active = [operator for operator in active if threads[operator] > done]
    return taken


# The feasible node nearest to a demand, found again after every assignment without looking at every node.
#
# Distance of a node to a demand (R-Storm, section 4): sum over dimensions of weight x (free - demand)^2, plus
# what the node is away from the reference node. Between two asks for the same demand only the nodes that took a
# thread have changed. So each demand keeps a heap of its nearest nodes, and a floor: every node outside the
# heap is farther than the floor. Only when the heap's best is beyond the floor are all nodes looked at again,
# in one vectorised pass. Distances are kept as tie keys, so that the last digits of a float decide nothing.


SHORTLIST = 64
"""Nodes a demand keeps at hand; more make rebuilding rarer and each one dearer."""


class Nearest:
    """Answers, for one demand, which feasible node is nearest now; ties go to the node declared first."""

    def __init__(self, board: Board, demand: tuple[float, ...], away: NDArray[np.float64], *, strict: bool) -> None:
        dimensions = board.room.dimensions
        hard = [axis for axis, dimension in enumerate(dimensions) if dimension.hard]
        self.fits = Fits(board, demand, hard, strict=strict)
        self._board = board
        self._away = away
        self._terms = [(axis, dimensions[axis].weight, amount) for axis, amount in enumerate(demand)]
        largest = board.room.capacity.max(axis=0, initial=0.0)
        self._scale = sum(weight * max(largest[axis], amount) ** 2 for axis, weight, amount in self._terms)
        self._scale += float(away.max(initial=0.0))
        self._cell = cell(self._scale)
        self._least = self.fits.least
        self._least_slot = self.fits.least_slot
        self._heap: list[tuple[float, int, int]] = []
        """(tie key of the distance, node, version of the node)"""
        self._floor: tuple[float, int] = (-inf, -1)
        self._seen = 0

    def node(self) -> int | None:
        """The nearest feasible node, or None."""
        board = self._board
        log, touched, heap = board.log, board.touched, self._heap
        end = len(log)
        if self._seen < end:
            if self._seen == end - 1:
                self._look(log[-1])
            else:
                for changed in set(log[self._seen :]):
                    self._look(changed)
            self._seen = end
        while heap:
            key, node, version = heap[0]
            if version != (touched[node].version if node in touched else 0):
                heappop(heap)
            elif (key, node) <= self._floor:
                return node
            else:
                break
        self._rebuild()
        return self._heap[0][1] if self._heap else None

    def reason(self, node: int) -> str:
        """Why `node`, the answer just given."""
        state = self._board.touched.get(node)
        free = self._board.free[:, node].tolist() if state is None else state.free
        return (
            f"nearest node with room, at distance {self._distance(free, node):.3g}, "
            f"of which {self._away.item(node):.3g} for being away from the reference node"
        )

    def _look(self, node: int) -> None:
        """Take a node that has changed into the heap, if it can take a thread and is near enough."""
        state = self._board.touched[node]
        free = state.free
        if state.slots.largest < self._least_slot:
            return
        for axis, least in self._least:
            if free[axis] < least:
                return
        key = key_in(self._distance(free, node), self._cell)
        if key <= self._floor[0]:
            heappush(self._heap, (key, node, state.version))

    def _distance(self, free: list[float], node: int) -> float:
        distance = 0.0
        for axis, weight, amount in self._terms:
            gap = free[axis] - amount
            distance += weight * (gap * gap)
        return distance + self._away.item(node)

    def _rebuild(self) -> None:
        board = self._board
        board.write()
        nodes = np.flatnonzero(self.fits.every())
        keys = tie_keys(distances(board.free[:, nodes], self._terms, self._away[nodes]), self._scale)
        self._floor = (inf, 0)
        if len(nodes) > SHORTLIST:
            within = np.flatnonzero(keys <= np.partition(keys, SHORTLIST - 1)[SHORTLIST - 1])
            within = within[np.argsort(keys[within], kind="stable")[:SHORTLIST]]
            nodes, keys = nodes[within], keys[within]
            self._floor = (float(keys[-1]), int(nodes[-1]))
        touched = board.touched
        self._heap = [
            (key, node, touched[node].version if node in touched else 0)
            for key, node in zip(keys.tolist(), nodes.tolist(), strict=True)
        ]
        heapify(self._heap)
        self._seen = len(board.log)


def distances(
    free: NDArray[np.float64], terms: Iterable[tuple[int, float, float]], away: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Distance of nodes to a demand, given as (axis, weight, amount); `free` has one row per axis."""
    distance = np.zeros(free.shape[1])
    for axis, weight, amount in terms:
        gap = free[axis] - amount
        distance += weight * (gap * gap)
    return distance + away


@dataclass(frozen=True, slots=True)
class RStorm:
    """The published rule. `strict` asks for more than the demand in hard dimensions, as printed; it refuses
    an exact fit."""

    strict: bool = False
    network_weight: Weight = 1.0

    name: ClassVar[str] = "r-storm"
    whole_cluster: ClassVar[bool] = True
    keeps_resources: ClassVar[bool] = True

    def place(self, request: PlacementRequest, room: Room) -> Placement | Refusal:
        reference = reference_node(room)
        away = self.network_weight * network_distance(room, reference)
        board = Board(request, room)
        kinds = {demand: Nearest(board, demand, away, strict=self.strict) for demand in _demands(request)}
        nearest = [kinds[operator.demand] for operator in request.operators]
        order = breadth_first(len(request.operators), request.streams, request.sources)
        threads = thread_order(order, [operator.threads for operator in request.operators])
        nodes: list[int] = []
        slots: list[int] = []
        reasons: list[str] = []
        for operator in threads:
            kind = nearest[operator]
            first = not nodes and reference is not None and kind.fits.now(reference)
            node = reference if first else kind.node()
            if node is None:
                return no_node(self.name, request, board, operator, [axis for axis, _ in kind.fits.least])
            if request.explain:
                reasons.append("the reference node takes the first thread" if first else kind.reason(node))
            nodes.append(node)
            slots.append(board.assign(node, kind.fits))
        return Placement(request.pipeline, self.name, bundled(request, room, threads, nodes, slots, reasons))


def _demands(request: PlacementRequest) -> dict[tuple[float, ...], None]:
    return dict.fromkeys(operator.demand for operator in request.operators)


def reference_node(room: Room) -> int | None:
    """Return the node with the most free (sum over dimensions of free / the cluster's total capacity) in the rack with
    the most free; ties take the one declared first. None if there is no node."""
    if not len(room.free):
        return None
    total = room.capacity.sum(axis=0)
    share = (room.free / np.where(total > 0, total, 1.0)).sum(axis=1)
    by_rack: NDArray[np.float64] = np.bincount(room.rack, weights=share).astype(float)
    rack = first_largest(by_rack, float(by_rack.max()))
    return first_largest(np.where(room.rack == rack, share, -np.inf), float(share.max()))


def network_distance(room: Room, reference: int | None) -> NDArray[np.float64]:
    """Return the distance of each node from the reference node: 0 itself, 0.5 in its rack, 1 in another rack."""
    if reference is None:
        return np.zeros(0)
    distance = np.where(room.rack == room.rack[reference], 0.5, 1.0)
    distance[reference] = 0.0
    return distance
