"""Threads of one pipeline on the slots of its nodes: dealt out in turn, or with the fewest moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.cluster.topology import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.topology import Node

ThreadLayout = Mapping[Slot, tuple[int, ...]]
"""Which threads (numbered from 0) sit on which slot."""


def worker_slots(nodes: Sequence[Node], workers: int) -> list[Slot]:
    """`workers` slots taken evenly: slot 0 of every node, then slot 1, ... while there are any."""
    slots: list[Slot] = []
    for number in range(max((node.slots for node in nodes), default=0)):
        for node in nodes:
            if len(slots) == workers:
                return slots
            if number < node.slots:
                slots.append(Slot(node.name, number))
    return slots


def dealt(nodes: Sequence[Node], workers: int, threads: int) -> dict[Slot, tuple[int, ...]]:
    """Thread i to worker i mod W."""
    slots = worker_slots(nodes, workers)
    return {slot: tuple(range(position, threads, len(slots))) for position, slot in enumerate(slots)}


def moved_least(
    before: ThreadLayout, nodes: Sequence[Node], workers: int, threads: int
) -> tuple[dict[Slot, tuple[int, ...]], int]:
    """An even layout on `nodes` that leaves as many threads of `before` where they are as any, and how many move.

    Even means what dealing out would give: workers even over nodes, threads even over workers. A worker's threads
    count as kept up to its even share, so the fullest workers are kept, and the odd worker and the odd thread stay
    where they save one.
    """
    slots = _kept_slots(before, nodes, workers)
    if not slots:
        return {}, 0
    share, odd = divmod(threads, len(slots))
    fullest = sorted(range(len(slots)), key=lambda position: -len(before.get(slots[position], ())))
    room = dict.fromkeys(slots, share)
    for position in fullest[:odd]:
        room[slots[position]] += 1
    layout: dict[Slot, list[int]] = {}
    for slot in slots:
        running = [thread for thread in before.get(slot, ()) if thread < threads]
        layout[slot] = running[: room[slot]]
    placed = {thread for row in layout.values() for thread in row}
    homeless = iter([thread for thread in range(threads) if thread not in placed])
    for slot, row in layout.items():
        row.extend(next(homeless) for _ in range(room[slot] - len(row)))
    ran = {thread for row in before.values() for thread in row if thread < threads}
    return {slot: tuple(sorted(row)) for slot, row in layout.items()}, len(ran - placed)


def _kept_slots(before: ThreadLayout, nodes: Sequence[Node], workers: int) -> list[Slot]:
    """As many slots of every node as taking them evenly gives; those where workers run first, the fullest foremost."""
    by_node: dict[str, list[Slot]] = {node.name: [] for node in nodes}
    for slot in sorted(before, key=lambda slot: (-len(before[slot]), slot.number)):
        if slot.node in by_node:
            by_node[slot.node].append(slot)
    counts = dict.fromkeys(by_node, 0)
    left = min(workers, sum(node.slots for node in nodes))
    while left:
        open_nodes = [node for node in nodes if counts[node.name] < node.slots]
        if left < len(open_nodes):
            open_nodes.sort(key=lambda node: -_saved(before, by_node[node.name], counts[node.name]))
            open_nodes = open_nodes[:left]
        for node in open_nodes:
            counts[node.name] += 1
        left -= len(open_nodes)
    chosen: list[Slot] = []
    for node in nodes:
        kept = by_node[node.name][: counts[node.name]]
        numbers = {slot.number for slot in kept}
        fresh = (number for number in range(node.slots) if number not in numbers)
        chosen += kept
        chosen += [Slot(node.name, next(fresh)) for _ in range(counts[node.name] - len(kept))]
    return chosen


def _saved(before: ThreadLayout, running: Sequence[Slot], count: int) -> int:
    """Threads of the worker that one slot more on a node would keep."""
    return len(before[running[count]]) if count < len(running) else 0
