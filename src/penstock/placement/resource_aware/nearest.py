"""The feasible node nearest to a demand, found again after every assignment without looking at every node.

Distance of a node to a demand (R-Storm, section 4): sum over dimensions of weight x (free - demand)^2, plus
what the node is away from the reference node. Between two asks for the same demand only the nodes that took a
thread have changed. So each demand keeps a heap of its nearest nodes, and a floor: every node outside the
heap is farther than the floor. Only when the heap's best is beyond the floor are all nodes looked at again,
in one vectorised pass. Distances are kept as tie keys, so that the last digits of a float decide nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import cell, key_in, tie_keys
from penstock.placement.board import Fits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penstock.placement.board import Board

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
