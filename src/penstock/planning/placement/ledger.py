"""The ledger of nodes, slots and threads while many pipelines are placed together.

Threads can be placed and removed again; all changes since a mark can be undone together. All constraints hold at every
moment, so the ledger can be committed at any time.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.cluster.topology import CPU, MEMORY, Slot
from penstock.dataflow.pipeline import SharedPer
from penstock.planning.placement.constraints import allowed, open_to, preference
from penstock.planning.placement.contract import PlacedBundle, Placement
from penstock.planning.placement.slots import slot_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacementRequest, Room


# One pipeline in a ledger: limits per slot, shared demands, and streams between its operators.


class Row:
    """One slot of a pipeline: threads by operator, and its remaining room."""

    __slots__ = ("counts", "left")

    def __init__(self, left: list[float]) -> None:
        self.counts: dict[int, int] = {}
        self.left = left

    def copy(self) -> Row:
        twin = Row(self.left.copy())
        twin.counts = self.counts.copy()
        return twin


@dataclass(frozen=True)
class LedgerPipeline:
    """A pipeline in the ledger. Operators are numbered through all pipelines; its own start at `first`."""

    request: PlacementRequest
    first: int
    offer: NDArray[np.float64]
    """Max amounts that one slot of every node takes (nodes x limits of a slot)."""
    open: NDArray[np.bool_]
    """Nodes it may enter, for those outside the ledger."""
    shared: tuple[tuple[frozenset[int], float, bool, bool], ...]
    """Memory in common: operators, MB, whether per slot, and whether in the heap."""
    weights: NDArray[np.float64]
    """Q of the network cost (`penstock.planning.placement.communication`)."""

    @property
    def operators(self) -> range:
        return range(self.first, self.first + len(self.request.operators))


def slot_need(demand: tuple[float, ...], off_heap: float, room: Room) -> list[float]:
    """Return the amounts of one thread that count against a slot's limits: its heap; in a plan, in which a slot is a
    share of the node, all of it."""
    if room.slot_memory_shared:
        return list(demand)
    return [max(demand[room.memory_axis] - off_heap, 0.0)] if room.memory_axis is not None else [0.0]


def slot_offer(request: PlacementRequest, room: Room) -> NDArray[np.float64]:
    limit = np.minimum(slot_limit(request, room), 1e18)
    if not room.slot_memory_shared:
        alone: NDArray[np.float64] = limit[:, None]
        return alone
    free_slots = np.maximum(room.slots - room.slots_taken, 1)[:, None]
    share: NDArray[np.float64] = np.minimum(
        room.capacity / np.maximum(room.slots, 1)[:, None], room.free.clip(min=0.0) / free_slots
    )
    for axis, dimension in enumerate(room.dimensions):
        if dimension.name == MEMORY:
            share[:, axis] = np.minimum(share[:, axis], limit)
        elif dimension.name != CPU:
            share[:, axis] = 1e18
    return share


def talk(request: PlacementRequest) -> NDArray[np.float64]:
    threads = np.maximum(np.array([operator.threads for operator in request.operators], dtype=float), 1.0)
    table = np.zeros((len(threads), len(threads)))
    for sender, receiver in request.streams:
        table[sender, receiver] += 1
        table[receiver, sender] += 1
    pull: NDArray[np.float64] = table / np.outer(threads, threads)
    return pull


NOBODY = -1


class _Saved(NamedTuple):
    """A node as it was."""

    free: NDArray[np.float64]
    slots: int
    counts: NDArray[np.int32]
    rows: dict[int, list[Row]]
    isolated: int


class Ledger:
    """Free resources and threads of every node, for a fixed list of pipelines."""

    def __init__(self, room: Room, requests: Sequence[PlacementRequest]) -> None:
        self.room = room
        self.free = np.maximum(room.free, 0.0)
        self.slack = TOLERANCE * room.capacity.max(axis=0, initial=0.0)
        self.free_slots = np.where(room.slots > room.slots_taken, room.slots - room.slots_taken, 0)
        self.tenants: list[LedgerPipeline] = []
        self.tenant_of: list[int] = []
        demands = [operator.demand for request in requests for operator in request.operators]
        self.demand = np.array(demands, dtype=float).reshape(len(demands), len(room.dimensions))
        self.slot_need: list[list[float]] = []
        self.counts = np.zeros((len(room.slots), len(demands)), dtype=np.int32)
        """Threads of every operator on every node."""
        self.rows: list[dict[int, list[Row]]] = [{} for _ in range(len(room.slots))]
        """Slots of every node, by pipeline."""
        self.isolated = np.full(len(room.slots), NOBODY)
        """The isolated pipeline every node belongs to."""
        self._allowed: list[NDArray[np.bool_]] = []
        self.preferred: list[NDArray[np.int64] | None] = []
        self._apart_nodes: list[tuple[int, ...]] = []
        self._apart_slots: list[frozenset[int] | None] = []
        self._most_node: list[float] = []
        self._most_rack: list[float] = []
        self._heap_at = (room.memory_axis or 0) if room.slot_memory_shared else 0
        """Index of the limit of a slot (`slot_need`) that counts memory shared in its heap."""
        self._saved: dict[int, _Saved] | None = None
        for request in requests:
            self._add(request)

    def _add(self, request: PlacementRequest) -> None:
        number, first, room = len(self.tenants), len(self.tenant_of), self.room
        names = {operator.name: first + position for position, operator in enumerate(request.operators)}
        whole = request.constraints
        self.tenant_of += [number] * len(names)
        masks = allowed(request, room)
        for position, operator in enumerate(request.operators):
            own, me = operator.constraints, first + position
            self.slot_need.append(slot_need(operator.demand, own.off_heap_mb, room))
            self._allowed.append(masks[position] & (room.slots > 0))
            self.preferred.append(preference(operator, room) if own.preferred_labels else None)
            apart = [names[b if a == operator.name else a] for a, b in whole.apart_on_nodes if operator.name in (a, b)]
            self._apart_nodes.append(tuple(apart))
            if whole.one_operator_per_slot:
                self._apart_slots.append(None)
            else:
                apart = [
                    names[b if a == operator.name else a] for a, b in whole.apart_on_slots if operator.name in (a, b)
                ]
                self._apart_slots.append(frozenset(apart) - {me})
            self._most_node.append(inf if own.most_per_node is None else own.most_per_node)
            self._most_rack.append(inf if own.most_per_rack is None else own.most_per_rack)
        shared = tuple(
            (frozenset(names[name] for name in each.operators), each.mb, each.per is SharedPer.SLOT, each.heap)
            for each in whole.shared_memory
        )
        self.tenants.append(
            LedgerPipeline(request, first, slot_offer(request, room), open_to(request, room), shared, talk(request))
        )

    # Fit checks.

    def fits(self, operator: int, *, but: int | None = None) -> NDArray[np.bool_]:
        """Return nodes that can take one more thread, without a check of open slots (`put` does that)."""
        number = self.tenant_of[operator]
        tenant = self.tenants[number]
        mask: NDArray[np.bool_] = (self.free >= self.demand[operator] - self.slack).all(axis=1)
        mask &= self.may_enter(operator)
        own = self.counts[:, tenant.first : tenant.first + len(tenant.request.operators)]
        mask &= (self.free_slots > 0) | (own.any(axis=1) if len(own) else False)
        if but is not None:
            mask[but] = False
        return mask

    def nodes_allowed(self, operator: int) -> int:
        """Return the number of nodes that its labels and taints allow."""
        return int(np.count_nonzero(self._allowed[operator]))

    def may_enter(self, operator: int) -> NDArray[np.bool_]:
        """Nodes whose constraints let one more thread in, whatever they have left."""
        number = self.tenant_of[operator]
        tenant = self.tenants[number]
        mask: NDArray[np.bool_] = self._allowed[operator] & tenant.open
        mask &= (self.isolated == NOBODY) | (self.isolated == number)
        if tenant.request.constraints.isolated:
            mask &= (self.isolated == number) | ~self.counts.any(axis=1)
        for other in self._apart_nodes[operator]:
            mask &= self.counts[:, other] == 0
        if self._most_node[operator] < inf:
            mask &= self.counts[:, operator] < self._most_node[operator]
        if self._most_rack[operator] < inf:
            mask &= self._on_rack(operator)[self.room.rack] < self._most_rack[operator]
        return mask

    def _on_rack(self, operator: int) -> NDArray[np.float64]:
        racks = int(self.room.rack.max(initial=0)) + 1
        return np.bincount(self.room.rack, weights=self.counts[:, operator], minlength=racks).astype(float)

    def put(self, node: int, operator: int, most: int) -> int:
        """Put up to `most` threads on a node, into open slots first; returns how many it took."""
        number = self.tenant_of[operator]
        tenant = self.tenants[number]
        count = min(most, self._most(node, operator))
        if count <= 0:
            return 0
        self._save(node)
        rows = self.rows[node].setdefault(number, [])
        step = 1 if tenant.shared else count
        done = position = 0
        while done < count:
            fresh = position == len(rows)
            if fresh:
                if not self.free_slots[node]:
                    break
                rows.append(Row(tenant.offer[node].tolist()))
            taken = self._into(node, rows[position], operator, min(step, count - done))
            if fresh and taken:
                self.free_slots[node] -= 1
            elif fresh:
                rows.pop()
                break
            done += taken
            position += not taken
        if not rows:
            del self.rows[node][number]
        if done and tenant.request.constraints.isolated:
            self.isolated[node] = number
        return done

    def _most(self, node: int, operator: int) -> int:
        if not self._one_more(node, operator):
            return 0
        most = min(self._most_node[operator] - self.counts[node, operator], 2.0**31)
        if self._most_rack[operator] < inf:
            most = min(most, self._most_rack[operator] - self._on_rack(operator)[self.room.rack[node]])
        for axis, amount in enumerate(self.demand[operator].tolist()):
            if amount > 0:
                most = min(most, (self.free[node, axis] + self.slack[axis]) / amount)
        return int(most)

    def _one_more(self, node: int, operator: int) -> bool:
        number = self.tenant_of[operator]
        tenant = self.tenants[number]
        if not (self._allowed[operator][node] and tenant.open[node] and self.isolated[node] in (NOBODY, number)):
            return False
        if tenant.request.constraints.isolated and any(other != number for other in self.rows[node]):
            return False
        return not any(self.counts[node, other] for other in self._apart_nodes[operator])

    def _into(self, node: int, row: Row, operator: int, most: int) -> int:
        """Return how many of `most` threads one slot takes."""
        apart = self._apart_slots[operator]
        if apart is None and any(other != operator for other in row.counts):
            return 0
        if apart and any(other in row.counts for other in apart):
            return 0
        tenant = self.tenants[self.tenant_of[operator]]
        heap, memory = self._shares(node, row, operator) if tenant.shared else (0.0, 0.0)
        axis = self.room.memory_axis
        if tenant.shared and axis is not None:
            need = self.demand[operator, axis] + memory
            if self.free[node, axis] < need - self.slack[axis]:
                return 0
        taken = most
        for position, amount in enumerate(self.slot_need[operator]):
            shared = heap if position == self._heap_at else 0.0
            if amount + shared > 0:
                limit = tenant.offer[node, position]
                left = row.left[position] + TOLERANCE * limit - shared
                taken = min(taken, int(left / amount)) if amount > 0 else (taken if left >= 0 else 0)
        if taken <= 0:
            return 0
        row.counts[operator] = row.counts.get(operator, 0) + taken
        for position, amount in enumerate(self.slot_need[operator]):
            row.left[position] -= taken * amount
        row.left[self._heap_at] -= heap
        self.counts[node, operator] += taken
        self.free[node] -= taken * self.demand[operator]
        if memory and axis is not None:
            self.free[node, axis] -= memory
        return taken

    def _shares(self, node: int, row: Row, operator: int) -> tuple[float, float]:
        """Return the amounts that a thread would add to its slot's heap and to its node's memory, beside its own
        demand."""
        heap = memory = 0.0
        for members, mb, per_slot, in_heap in self.tenants[self.tenant_of[operator]].shared:
            if operator in members:
                there = row.counts if per_slot else {o for o in members if self.counts[node, o]}
                if not any(other in there for other in members):
                    memory += mb
                    heap += mb if per_slot and in_heap else 0.0
        return heap, memory

    def pick(self, node: int, operator: int, most: int) -> int:
        """Pick up to `most` threads up again, from the last slots first; returns how many there were."""
        number = self.tenant_of[operator]
        self._save(node)
        rows, done = self.rows[node].get(number, []), 0
        for position in range(len(rows) - 1, -1, -1):
            row = rows[position]
            taken = min(most - done, row.counts.get(operator, 0))
            if not taken:
                continue
            done += taken
            row.counts[operator] -= taken
            if not row.counts[operator]:
                del row.counts[operator]
            self.counts[node, operator] -= taken
            self.free[node] += taken * self.demand[operator]
            heap = 0.0
            if self.tenants[number].shared and operator not in row.counts:
                heap, memory = self._shares(node, row, operator)
                self.free[node, self.room.memory_axis] += memory
            for limit, amount in enumerate(self.slot_need[operator]):
                row.left[limit] += taken * amount
            row.left[self._heap_at] += heap
            if not row.counts:
                rows.pop(position)
                self.free_slots[node] += 1
            if done == most:
                break
        if not rows:
            self.rows[node].pop(number, None)
            if self.isolated[node] == number:
                self.isolated[node] = NOBODY
        return done

    def remove(self, number: int) -> None:
        """Everything of one pipeline."""
        for operator in self.tenants[number].operators:
            for node in np.flatnonzero(self.counts[:, operator]).tolist():
                self.pick(node, operator, int(self.counts[node, operator]))

    # Undoing.

    def mark(self) -> None:
        """Record a mark to which changes can be undone; it replaces an older one."""
        self._saved = {}

    def _save(self, node: int) -> None:
        if self._saved is not None and node not in self._saved:
            rows = {number: [row.copy() for row in rows] for number, rows in self.rows[node].items()}
            slots, isolated = int(self.free_slots[node]), int(self.isolated[node])
            self._saved[node] = _Saved(self.free[node].copy(), slots, self.counts[node].copy(), rows, isolated)

    def undo(self) -> None:
        """Back to the mark."""
        for node, saved in (self._saved or {}).items():
            self.free[node], self.free_slots[node], self.isolated[node] = saved.free, saved.slots, saved.isolated
            self.counts[node] = saved.counts
            self.rows[node] = saved.rows
        self._saved = {}

    def fork(self) -> Ledger:
        """The same again, to try something else."""
        twin = copy(self)
        twin.free, twin.free_slots = self.free.copy(), self.free_slots.copy()
        twin.counts, twin.isolated = self.counts.copy(), self.isolated.copy()
        twin.rows = [{number: [row.copy() for row in rows] for number, rows in node.items()} for node in self.rows]
        twin._saved = None
        return twin

    # Coming and going.

    def enter(self, number: int, placement: Placement) -> None:
        """Take over what a placer decided for a pipeline, slot by slot."""
        tenant = self.tenants[number]
        first = {operator.name: tenant.first + position for position, operator in enumerate(tenant.request.operators)}
        for slot, counts in placement.by_slot().items():
            node = self.room.cluster.position(slot.node)
            self._save(node)
            row = Row(tenant.offer[node].tolist())
            self.rows[node].setdefault(number, []).append(row)
            self.free_slots[node] -= 1
            for name, threads in counts.items():
                operator = first[name]
                heap, memory = self._shares(node, row, operator)
                row.counts[operator] = threads
                for position, amount in enumerate(self.slot_need[operator]):
                    row.left[position] -= threads * amount
                row.left[self._heap_at] -= heap
                self.counts[node, operator] += threads
                self.free[node] -= threads * self.demand[operator]
                if memory:
                    self.free[node, self.room.memory_axis] -= memory
            if tenant.request.constraints.isolated:
                self.isolated[node] = number

    def room_left(self) -> Room:
        """Return the remaining room, for a placer that places the next pipeline alone."""
        left = copy(self.room)
        left.free = self.free.copy()
        left.slots_taken = self.room.slots - self.free_slots
        left.reserved = self.room.reserved | (self.isolated != NOBODY)
        return left

    def placements(self, numbers: Iterable[int], by: str, reason: str = "") -> dict[int, Placement]:
        """Return the slot of every thread: slots of a node are numbered in the order of the pipelines."""
        taken = self.room.slots_taken.copy()
        bundles: dict[int, list[PlacedBundle]] = {number: [] for number in numbers}
        for number, placed in bundles.items():
            tenant = self.tenants[number]
            names = [operator.name for operator in tenant.request.operators]
            own = self.counts[:, tenant.first : tenant.first + len(names)]
            for node in np.flatnonzero(own.any(axis=1)).tolist():
                name = self.room.cluster.nodes[node].name
                for row in self.rows[node].get(number, ()):
                    slot = Slot(name, int(taken[node]))
                    taken[node] += 1
                    for operator in sorted(row.counts):
                        placed.append(PlacedBundle(names[operator - tenant.first], row.counts[operator], slot, reason))
        return {
            number: Placement(self.tenants[number].request.pipeline, by, tuple(placed))
            for number, placed in bundles.items()
        }
