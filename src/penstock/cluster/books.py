"""Arithmetic on the answers of a cluster manager: free slots, which slots to take, changes between two answers.
All but `PolledWatch` is pure."""

from __future__ import annotations

import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError, nearest
from penstock.cluster.contract import ClusterEvent, ClusterEventKind, ManagedNode, SlotRequest
from penstock.cluster.topology import CPU, DEFAULT_DIMENSIONS, MEMORY, Cluster, Dimension, Node, Slot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from penstock.cluster.contract import ClusterManager, Holder


def topology_of(nodes: Sequence[ManagedNode]) -> Cluster | None:
    """Return the planner's snapshot; None if the slots of a node are not known. Nodes whose rack is not known are each
    in a rack of their own: the planner must not count on two of them being close."""
    made = []
    for node in nodes:
        if node.slots is None:
            return None
        rack = f"rack of {node.name}" if node.rack is None else node.rack
        made.append(
            Node(node.name, rack, node.slots, dict(node.capacity), price=node.price, labels=frozenset(node.labels))
        )
    own = dict.fromkeys(name for node in nodes for name in node.capacity if name not in {CPU, MEMORY})
    return Cluster(tuple(made), (*DEFAULT_DIMENSIONS, *(Dimension(name, hard=True, weight=0.0) for name in own)))


def free_slots(nodes: Sequence[ManagedNode], holdings: Collection[Slot]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the slots that are not held, by node. Nodes that are not alive have none."""
    return {
        node.name: tuple(number for number in range(node.slots or 0) if Slot(node.name, number) not in holdings)
        if node.alive
        else ()
        for node in nodes
    }


def slots_left(node: ManagedNode) -> int | None:
    """Return the number of slots an executor can have, as the manager counts CPU: slots x free / capacity. It counts
    executors of applications that have just ended, which `holdings` no longer lists."""
    total, left = node.capacity.get(CPU), node.free.get(CPU)
    return None if node.slots is None or not total or left is None else round(node.slots * left / total)


def amounts_left(node: Node, holders: Collection[Holder]) -> Mapping[str, float]:
    """Return what executors leave of a node's resources, each of which holds a slot.

    CPU belongs to the slots: capacity x (slots - held) / slots. Memory is what they ask for: capacity - sum of memory.
    No executor asks for custom resources.
    """
    left = dict(node.capacity)
    left[CPU] = node.capacity[CPU] * max(0, node.slots - len(holders)) / node.slots
    left[MEMORY] = max(0.0, node.capacity[MEMORY] - sum(holder.memory_mb or 0.0 for holder in holders))
    return MappingProxyType(left)


def check_requests(requests: Sequence[SlotRequest], nodes: Sequence[ManagedNode]) -> None:
    """Raise `BadInputError` for a request that no change of load can meet: an unknown node or slot, too much memory."""
    by_name = {node.name: node for node in nodes}
    for request in requests:
        if request.node is None:
            candidates = list(nodes)
        elif request.node in by_name:
            candidates = [by_name[request.node]]
        else:
            raise BadInputError(f"node '{request.node}' is not in the cluster; {nearest(request.node, by_name)}")
        slots = candidates[0].slots if request.node is not None else None
        if request.number is not None and slots is not None and not 0 <= request.number < slots:
            raise BadInputError(f"slot {request}: node '{request.node}' has {slots} slots")
        limits = [node.capacity[MEMORY] for node in candidates if MEMORY in node.capacity]
        if request.memory_mb is not None and limits and request.memory_mb > max(limits):
            raise BadInputError(f"executor of {request.memory_mb} MB on {request}: a node has {max(limits):g} MB")


def choose_slots(
    requests: Sequence[SlotRequest], nodes: Sequence[ManagedNode], holdings: Collection[Slot]
) -> list[Slot | None]:
    """Return a free slot for each request, or None: named slots first, then named nodes (their lowest number), then
    anywhere (the node with most free slots, ties in order). A request with a size takes a node with that much free
    memory."""
    free = {name: list(numbers) for name, numbers in free_slots(nodes, holdings).items()}
    memory = {node.name: node.free.get(MEMORY) for node in nodes}
    chosen: list[Slot | None] = [None] * len(requests)

    def take(place: int, slot: Slot) -> None:
        free[slot.node].remove(slot.number)
        left, wanted = memory.get(slot.node), requests[place].memory_mb
        if left is not None and wanted is not None:
            memory[slot.node] = left - wanted
        chosen[place] = slot

    def fits(node: str, request: SlotRequest) -> bool:
        left = memory.get(node)
        return bool(free.get(node)) and (left is None or request.memory_mb is None or request.memory_mb <= left)

    order = sorted(
        range(len(requests)), key=lambda place: (requests[place].number is None, requests[place].node is None)
    )
    for place in order:
        request = requests[place]
        if request.node is not None:
            number = request.number
            if fits(request.node, request) and (number is None or number in free[request.node]):
                take(place, Slot(request.node, free[request.node][0] if number is None else number))
        else:
            open_nodes = [node.name for node in nodes if fits(node.name, request)]
            if open_nodes:
                name = max(open_nodes, key=lambda each: len(free[each]))
                take(place, Slot(name, free[name][0]))
    return chosen


def why_not_free(request: SlotRequest, nodes: Sequence[ManagedNode], holdings: Mapping[Slot, Holder]) -> str:
    """Return why a request has no slot now: who holds it, or that its node is not alive."""
    if request.node is None:
        return "no slot of any node is free with enough memory"
    node = next((each for each in nodes if each.name == request.node), None)
    if node is None or not node.alive:
        return f"node '{request.node}' is not alive"
    mine = {
        slot: holder
        for slot, holder in holdings.items()
        if slot.node == request.node and request.number in {None, slot.number}
    }
    if mine:
        return ", ".join(f"{slot} is held by {holder}" for slot, holder in sorted(mine.items()))
    return f"node '{request.node}' has not enough free memory"


def changes(
    nodes: tuple[Sequence[ManagedNode], Sequence[ManagedNode]],
    holdings: tuple[Mapping[Slot, Holder], Mapping[Slot, Holder]],
) -> list[ClusterEvent]:
    """Return the events that lead from one answer to the next: nodes first, then executors."""
    kind = ClusterEventKind
    before, after = ({node.name: node for node in each} for each in nodes)
    events = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        was, now = old is not None and old.alive, new is not None and new.alive
        if was and not now:
            events.append(ClusterEvent(kind.NODE_LOST, name, why="it left" if new is None else "it does not answer"))
        elif now and not was:
            events.append(ClusterEvent(kind.NODE_JOINED, name))
        elif old is not None and new is not None and (old.slots, old.capacity) != (new.slots, new.capacity):
            events.append(ClusterEvent(kind.NODE_RESIZED, name))
    held_before, held_after = holdings
    for slot in sorted({*held_before, *held_after}):
        had, has = held_before.get(slot), held_after.get(slot)
        if had == has:
            continue
        if had is not None:
            events.append(ClusterEvent(kind.EXECUTOR_LOST, slot.node, slot, had.application))
        if has is not None:
            events.append(ClusterEvent(kind.EXECUTOR_GAINED, slot.node, slot, has.application))
    return events


class PolledWatch:
    """Changes of a cluster whose manager sends no events: two answers are compared."""

    def __init__(self, cluster: ClusterManager, every: float) -> None:
        self._cluster = cluster
        self._every = every
        self._over = threading.Event()
        self._nodes: Sequence[ManagedNode] = cluster.nodes() or ()
        self._holdings: Mapping[Slot, Holder] = cluster.holdings() or {}
        self._silent = False
        self._refusals = len(cluster.refusals())

    def poll(self) -> list[ClusterEvent]:
        refused = list(self._cluster.refusals())[self._refusals :]
        self._refusals += len(refused)
        nodes = self._cluster.nodes()
        holdings = None if nodes is None else self._cluster.holdings()
        if nodes is None:
            first = [] if self._silent else [ClusterEvent(ClusterEventKind.SILENT)]
            self._silent = True
            return [*first, *refused]
        first = [ClusterEvent(ClusterEventKind.BACK)] if self._silent else []
        self._silent = False
        held = self._holdings if holdings is None else holdings
        events = changes((self._nodes, nodes), (self._holdings, held))
        self._nodes, self._holdings = nodes, held
        return [*first, *events, *refused]

    def __iter__(self) -> Iterator[ClusterEvent]:
        while not self._over.is_set():
            yield from self.poll()
            self._over.wait(self._every)

    def close(self) -> None:
        self._over.set()
