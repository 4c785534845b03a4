"""Which slots of a new placement take over from which slots that run: as few threads as possible should move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.placement.contract import Placement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster, Slot
    from penstock.planning.file import SavedPlan

MOST_MATCHED = 3000
"""Slots beyond which nothing is exchanged: the table of all pairs would be too large."""


@dataclass(frozen=True, slots=True)
class ThreadMoves:
    """Threads of a re-planned pipeline: `kept` stay on their slot, `moved` run before and after but elsewhere,
    `started` and `stopped` run only after or only before."""

    kept: int
    moved: int
    started: int
    stopped: int

    def document(self) -> dict[str, int]:
        return {"kept": self.kept, "moved": self.moved, "started": self.started, "stopped": self.stopped}


def running(current: SavedPlan, cluster: Cluster) -> dict[Slot, dict[str, int]]:
    """What runs on machines the cluster still has: those with the same name, size and number of slots."""
    same = {
        node.name
        for node in current.nodes
        if any(n.name == node.name and n.size == node.size and n.slots == node.slots for n in cluster.nodes)
    }
    return {slot: row for slot, row in current.threads_by_slot().items() if slot.node in same}


def by_operator(rows: Mapping[Slot, Mapping[str, int]]) -> dict[str, dict[Slot, int]]:
    """Threads on every slot, by operator instead of by slot."""
    table: dict[str, dict[Slot, int]] = {}
    for slot, row in rows.items():
        for operator, threads in row.items():
            table.setdefault(operator, {})[slot] = threads
    return table


def moves(
    before: Mapping[Slot, Mapping[str, int]],
    reachable: Mapping[Slot, Mapping[str, int]],
    after: Mapping[Slot, Mapping[str, int]],
) -> ThreadMoves:
    """Threads are interchangeable: as many of an operator's stay on a slot as both have there. `reachable` is the part
    of `before` on machines that are still there."""
    kept = moved = started = stopped = 0
    for name in dict.fromkeys(name for rows in (before, after) for row in rows.values() for name in row):
        was = sum(row.get(name, 0) for row in before.values())
        becomes = sum(row.get(name, 0) for row in after.values())
        stay = sum(min(row.get(name, 0), after.get(slot, {}).get(name, 0)) for slot, row in reachable.items())
        kept += stay
        moved += min(was, becomes) - stay
        started += max(becomes - was, 0)
        stopped += max(was - becomes, 0)
    return ThreadMoves(kept, moved, started, stopped)


def exchanged(
    placement: Placement, cluster: Cluster, before: Mapping[Slot, Mapping[str, int]], *, alike: bool
) -> Placement:
    """The placement with the contents of equal slots exchanged so that more threads are where they were.

    Slots are equal when their nodes offer the same per slot (and, unless `alike`, only on the same node). Pairs of a
    new slot and one that runs are taken greedily, the most threads in common first.
    """
    new = placement.by_slot()
    slots = list(cluster.slots)
    if len(slots) > MOST_MATCHED:
        return placement
    target = _matched(new, slots, before, _kinds(cluster, slots, alike=alike))
    return Placement(
        placement.pipeline,
        placement.placer,
        tuple(bundle._replace(slot=target[bundle.slot]) for bundle in placement.bundles),
    )


def _kinds(cluster: Cluster, slots: list[Slot], *, alike: bool) -> NDArray[np.int64]:
    """A number for every slot; slots with equal numbers may exchange what they hold."""
    known: dict[object, int] = {}
    kinds = []
    for slot in slots:
        node = cluster.node(slot.node)
        offer = tuple(sorted((name, amount / node.slots) for name, amount in node.capacity.items()))
        kinds.append(known.setdefault(offer if alike else slot.node, len(known)))
    return np.array(kinds, dtype=np.int64)


def _matched(
    new: Mapping[Slot, Mapping[str, int]],
    slots: list[Slot],
    before: Mapping[Slot, Mapping[str, int]],
    kinds: NDArray[np.int64],
) -> dict[Slot, Slot]:
    """Where the contents of every slot go."""
    names = dict.fromkeys(name for row in new.values() for name in row)
    common = np.zeros((len(slots), len(slots)))
    for name in names:
        comes = np.array([new.get(slot, {}).get(name, 0) for slot in slots], dtype=float)
        runs = np.array([before.get(slot, {}).get(name, 0) for slot in slots], dtype=float)
        common += np.minimum(comes[:, None], runs[None, :])
    common[kinds[:, None] != kinds[None, :]] = 0.0
    common[common > 0] += 0.5 * np.eye(len(slots))[common > 0]
    rows, columns = np.nonzero(common)
    order = np.argsort(-common[rows, columns], kind="stable")
    target: dict[int, int] = {}
    taken: set[int] = set()
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if row not in target and column not in taken:
            target[row] = column
            taken.add(column)
    stays = [k for k in range(len(slots)) if k not in target and k not in taken]
    target.update((k, k) for k in stays)
    taken.update(stays)
    for kind in np.unique(kinds).tolist():
        free = iter([k for k in np.flatnonzero(kinds == kind).tolist() if k not in taken])
        for k in np.flatnonzero(kinds == kind).tolist():
            if k not in target:
                target[k] = next(free)
    return {slots[row]: slots[column] for row, column in target.items()}
