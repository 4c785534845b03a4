"""Keep account of the free amounts and slots of every node while a pass plans pipelines one by one.

Amounts are rows of one array, so that looking for nodes with room costs one vectorised step whatever the cluster's
size. Slots are numbered per node; a slot belongs to one pipeline, or to another application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.planning.replanning.keeping import Offer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.cluster.topology import Dimension, Node, Slot
    from penstock.planning.replanning.keeping import Rows


NOBODY = -1


class FreeTable:
    """Free amounts and slots of every node, changed by `take` and `release`."""

    def __init__(
        self,
        nodes: Sequence[Node],
        dimensions: tuple[Dimension, ...],
        held: Iterable[Slot],
        used: Mapping[str, Mapping[str, float]],
        closed: Iterable[str] = (),
        *,
        exclusive: bool = False,
    ) -> None:
        """`held`: slots of other applications. `used`: the amounts those take of each node. `closed`: nodes on
        which nothing more may start. `exclusive`: every node belongs to one pipeline."""
        self.nodes = nodes
        self.dimensions = dimensions
        names = [dimension.name for dimension in dimensions]
        self.index = {node.name: position for position, node in enumerate(nodes)}
        self.capacity = np.array([[node.capacity.get(name, 0.0) for name in names] for node in nodes], dtype=float)
        self.capacity = self.capacity.reshape(len(nodes), len(names))
        self.free = self.capacity.copy()
        self.hard = np.array([dimension.hard for dimension in dimensions], dtype=bool)
        racks: dict[str, int] = {}
        self.rack = np.array([racks.setdefault(node.rack, len(racks)) for node in nodes], dtype=np.int64)
        self.slots = np.array([node.slots for node in nodes], dtype=np.int64)
        self.slots_free = self.slots.copy()
        self.closed = np.zeros(len(nodes), dtype=bool)
        self.closed[[self.index[name] for name in closed if name in self.index]] = True
        self._exclusive = exclusive
        self._owner = np.full(len(nodes), NOBODY, dtype=np.int64)
        """Numbers of the pipelines that have a node alone."""
        self._numbers: dict[str, int] = {}
        self._taken: dict[int, set[int]] = {}
        for name, amounts in used.items():
            if name in self.index:
                self.free[self.index[name]] -= [amounts.get(dimension, 0.0) for dimension in names]
        for slot in held:
            if slot.node in self.index:
                self._occupy(self.index[slot.node], slot.number)

    def has_slot(self, slot: Slot) -> bool:
        """Return whether the slot exists and is free."""
        node = self.index.get(slot.node)
        return (
            node is not None and slot.number < self.nodes[node].slots and slot.number not in self._taken.get(node, ())
        )

    def fits(self, node: int, amount: NDArray[np.float64]) -> bool:
        """Return whether a node has an amount left in every hard dimension."""
        slack = TOLERANCE * self.capacity[node]
        return bool((self.free[node] + slack >= amount)[self.hard].all())

    def may_use(self, node: str, pipeline: str) -> bool:
        """Return whether no other pipeline has the node alone."""
        owner = self._owner[self.index[node]]
        return bool(owner == NOBODY or owner == self._numbers.get(pipeline, NOBODY))

    def take_row(self, slot: Slot, amount: NDArray[np.float64], pipeline: str, *, alone: bool = False) -> None:
        """Give a slot and an amount of its node to a pipeline; `alone`: nobody else may use the node."""
        node = self.index[slot.node]
        self._occupy(node, slot.number)
        self.free[node] -= amount
        if alone or self._exclusive:
            self._owner[node] = self._numbers.setdefault(pipeline, len(self._numbers))

    def close_to(self, pipeline: str, usable: NDArray[np.int64], near: Sequence[int], *, alone: bool) -> None:
        """Take from `usable` the nodes others have alone; for a pipeline that is to be alone, all that others use."""
        mine = self._numbers.get(pipeline, NOBODY)
        usable[(self._owner != NOBODY) & (self._owner != mine)] = 0
        if alone or self._exclusive:
            own = [node for node in near if mine != NOBODY and self._owner[node] == mine]
            left = usable[own]
            usable[self.slots_free < self.slots] = 0
            usable[own] = left

    def add(self, slot: Slot, amount: NDArray[np.float64]) -> bool:
        """Take a further amount on a slot that is held; return False if it does not fit on the node."""
        node = self.index[slot.node]
        if not self.fits(node, amount):
            return False
        self.free[node] -= amount
        return True

    def release_row(self, slot: Slot, amount: NDArray[np.float64]) -> None:
        """Give back a slot and an amount."""
        node = self.index[slot.node]
        self._taken[node].discard(slot.number)
        self.slots_free[node] += 1
        self.free[node] += amount
        if not self._taken[node]:
            self._owner[node] = NOBODY

    def _occupy(self, node: int, number: int) -> None:
        taken = self._taken.setdefault(node, set())
        if number < self.nodes[node].slots and number not in taken:
            taken.add(number)
            self.slots_free[node] -= 1

    def usable(self, unit: NDArray[np.float64], whole: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many slots of every node can be offered: free ones, with `unit` each in `whole` dimensions.

        `whole` are the dimensions in which a slot must have its unit: the hard ones, CPU for placers that fill slots.
        """
        count = self.slots_free.astype(float)
        for axis in np.flatnonzero(whole & (unit > 0)).tolist():
            slack = TOLERANCE * self.capacity[:, axis]
            np.minimum(count, np.floor((self.free[:, axis] + slack) / unit[axis]), out=count)
        count[self.closed] = 0
        slots: NDArray[np.int64] = np.maximum(count, 0).astype(np.int64)
        return slots

    def offer(
        self,
        usable: NDArray[np.int64],
        near: Iterable[int],
        slots: int,
        own: Collection[int] = (),
        max_nodes: int | None = None,
        floor: Sequence[float] = (),
    ) -> Offer | None:
        """Return this number of usable slots, or all if there are fewer; None if there is none.

        First on the nodes `near`, then on other nodes of their racks, then in the racks with the most; in a rack the
        nodes with the most slots come first. With `max_nodes` only so many nodes are used, those of `own` included.
        `floor`: what every slot takes at least.
        """
        chosen: dict[int, int] = {}
        left = slots
        near = list(near)
        nodes_left = len(self.nodes) if max_nodes is None else max_nodes - len(own)
        for node in near:
            if usable[node] and left > 0 and (node in own or nodes_left > 0):
                chosen[node] = min(int(usable[node]), left)
                left -= chosen[node]
                nodes_left -= node not in own
        left = left if nodes_left > 0 else 0
        if left > 0:
            by_rack = np.bincount(self.rack, weights=usable, minlength=1)
            own = np.zeros(len(by_rack), dtype=bool)
            own[self.rack[near]] = True
            order = np.lexsort((np.arange(len(by_rack)), -by_rack, ~own))
            for rack in order.tolist():
                if left <= 0 or not by_rack[rack]:
                    if left <= 0:
                        break
                    continue
                members = np.flatnonzero((self.rack == rack) & (usable > 0))
                for node in members[np.argsort(-usable[members], kind="stable")].tolist():
                    if node in chosen:
                        continue
                    chosen[node] = min(int(usable[node]), left)
                    nodes_left -= 1
                    left = left - chosen[node] if nodes_left > 0 else 0
                    if left <= 0:
                        break
        if not chosen:
            return None
        nodes = list(chosen)
        numbers = []
        for node in nodes:
            taken = self._taken.get(node, ())
            numbers.append([n for n in range(self.nodes[node].slots) if n not in taken][: chosen[node]])
        return Offer([self.nodes[node] for node in nodes], self.free[nodes], numbers, self.dimensions, floor)

    def closest(self, unit: NDArray[np.float64]) -> tuple[str, str, float, float] | None:
        """Return the node that comes closest to one thread: its name, its scarcest resource, the need and the offer."""
        if not self.nodes:
            return None
        lacks = np.where(unit > 0, np.maximum(unit - self.free, 0.0) / np.where(unit > 0, unit, 1.0), 0.0)
        lacks[:, ~self.hard] = 0.0
        lacks = np.column_stack([lacks, self.slots_free <= 0])
        worst = lacks.max(axis=1)
        node = int(worst.argmin())
        axis = int(lacks[node].argmax())
        if axis == len(unit) or not worst[node]:
            return self.nodes[node].name, "slots", 1.0, float(self.slots_free[node])
        return self.nodes[node].name, self.dimensions[axis].name, float(unit[axis]), float(self.free[node, axis])


def amount_of(row: Mapping[str, int], demands: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return what the threads of one slot demand."""
    total: NDArray[np.float64] = np.add.reduce([threads * demands[name] for name, threads in row.items()])
    return total


def copy_of(rows: Mapping[Slot, Mapping[str, int]]) -> Rows:
    return {slot: dict(row) for slot, row in rows.items()}
