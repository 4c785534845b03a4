"""A placement in the making: nodes, their slots, and the threads on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock.placement.compact.arrange import arrange
from penstock.placement.slots import bundled, slot_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.placement.compact.graph import Talk
    from penstock.placement.contract import PlacedBundle, PlacementRequest, Room


class NodeLayout:
    """Threads per operator on each slot the pipeline has opened so far. The room itself is not changed."""

    def __init__(self, request: PlacementRequest, room: Room, talk: Talk) -> None:
        self.room = room
        self.talk = talk
        self.free = room.free.copy()
        self.slack = TOLERANCE * room.capacity.max(axis=0, initial=0.0)
        axis = room.memory_axis
        off_heap = np.array([operator.constraints.off_heap_mb for operator in request.operators])
        self.memory = (talk.demand[:, axis] - off_heap).clip(min=0.0) if axis is not None else np.zeros(talk.size)
        """What one thread takes of its slot's heap."""
        self.limit = slot_limit(request, room)
        self.slots: dict[int, list[NDArray[np.float64]]] = {}
        self._known: dict[tuple[object, ...], tuple[NDArray[np.float64], list[int]]] = {}

    def node_demand(self) -> NDArray[np.float64]:
        return np.column_stack([self.talk.demand, self.memory])

    def node_room(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """What nodes offer: their free resources and the memory of all their slots together."""
        slots = self.room.slots[nodes] - self.room.slots_taken[nodes]
        limit = self.limit[nodes]
        total = np.where(np.isinf(limit), 1e18, limit) * slots
        return np.column_stack([np.maximum(self.free[nodes], 0.0), total])

    def deal(self, node: int, counts: NDArray[np.float64]) -> list[int]:
        """Deal threads to fresh slots of a node; returns those that found none."""
        limit = min(float(self.limit[node]), 1e18)
        slots = int(self.room.slots[node] - self.room.slots_taken[node])
        key = (counts.tobytes(), limit, slots)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._dealt(counts, limit, slots)
        rows, missing = known
        self.slots[node] = list(rows.copy())
        self.free[node] -= rows.sum(axis=0) @ self.talk.demand
        return missing

    def _dealt(self, counts: NDArray[np.float64], limit: float, slots: int) -> tuple[NDArray[np.float64], list[int]]:
        demand = self.memory[:, None]
        whole = counts.astype(int).tolist()
        offer = np.full((slots, 1), limit)
        held, missing = arrange(self.talk, whole, demand, offer, (), spare=1)
        return held[held.any(axis=1)], missing

    def first_fit(self, missing: Sequence[int], nodes: NDArray[np.int64]) -> int | None:
        """Place threads that found no room yet on the first of `nodes` that has some; the largest first.
        Returns the operator that finds no room, if one does not."""
        for operator in largest_first(self.talk, self.free[nodes], missing):
            count = missing[operator]
            need = self.talk.demand[operator] - self.slack
            for node in nodes[(self.free[nodes] >= need).all(axis=1)].tolist():
                count -= self._put(node, operator, count)
                if not count:
                    break
            if count:
                return operator
        return None

    def _put(self, node: int, operator: int, count: int) -> int:
        """Put up to `count` threads on a node, into open slots first; returns how many it took."""
        demand, memory = self.talk.demand[operator], float(self.memory[operator])
        with np.errstate(divide="ignore", invalid="ignore"):
            per_axis = np.where(demand > 0, (self.free[node] + self.slack) / demand, np.inf)
        count = wanted = int(min(count, np.floor(per_axis.min(initial=np.inf))))
        rows = self.slots.setdefault(node, [])
        limit = float(self.limit[node]) * (1 + TOLERANCE)
        most = int(self.room.slots[node] - self.room.slots_taken[node])
        position = 0
        while count and position < most:
            if position == len(rows):
                rows.append(np.zeros(self.talk.size))
            left = limit - float(rows[position] @ self.memory)
            fits = count if memory <= 0 else min(count, int(left / memory))
            rows[position][operator] += fits
            count -= fits
            position += 1
        while rows and not rows[-1].any():
            rows.pop()
        self.free[node] -= (wanted - count) * demand
        return wanted - count

    def largest(self) -> NDArray[np.float64]:
        """The most memory a slot of each node can still take (-inf: no slot left)."""
        largest = np.where(self.room.slots > self.room.slots_taken, self.limit, -np.inf)
        for node, rows in self.slots.items():
            if rows and len(rows) == self.room.slots[node] - self.room.slots_taken[node]:
                largest[node] = self.limit[node] - (np.array(rows) @ self.memory).min()
        return largest

    def bundles(self, request: PlacementRequest) -> tuple[PlacedBundle, ...]:
        rows = [row for rows in self.slots.values() for row in rows]
        if not rows:
            return ()
        node = np.repeat(list(self.slots), [len(rows) for rows in self.slots.values()])
        index = np.concatenate([np.arange(len(rows)) for rows in self.slots.values()]) + self.room.slots_taken[node]
        held = np.array(rows)
        slots, operators = np.nonzero(held)
        counts = held[slots, operators].astype(np.int64)
        slots = np.repeat(slots, counts)
        return bundled(request, self.room, np.repeat(operators, counts), node[slots], index[slots])


def largest_first(talk: Talk, free: NDArray[np.float64], counts: Sequence[int]) -> list[int]:
    """Operators with threads to place, by falling demand of one thread for what is scarcest."""
    scarcity = talk.total / np.maximum(free.clip(min=0.0).sum(axis=0), 1e-300)
    size = talk.demand[:, int(np.argmax(scarcity))] if len(scarcity) else np.zeros(talk.size)
    return sorted((o for o in range(talk.size) if counts[o]), key=lambda o: (-size[o], o))
