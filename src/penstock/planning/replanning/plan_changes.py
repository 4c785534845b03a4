"""What changes, and what moves, from one plan to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.planning.placement.contract import Placement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.cluster.topology import Cluster, Slot
    from penstock.planning.files import SavedPlan


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """Threads of one operator before and after; `kept` stay on their slot, the rest stop or start somewhere."""

    operator: str
    before: int
    after: int
    kept: int

    @property
    def moved(self) -> int:
        """Threads that exist in both plans but not on the same slot."""
        return min(self.before, self.after) - self.kept


@dataclass(frozen=True, slots=True)
class SlotChange:
    """Threads that come to and go from one slot, by operator."""

    slot: Slot
    change: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PlanDiff:
    before: SavedPlan
    after: SavedPlan
    operators: tuple[OperatorChange, ...]
    slots: tuple[SlotChange, ...]
    nodes_added: tuple[str, ...]
    nodes_removed: tuple[str, ...]

    @property
    def threads_moved(self) -> int:
        return sum(operator.moved for operator in self.operators)

    def document(self) -> dict[str, Any]:
        return {
            "before": _summary(self.before),
            "after": _summary(self.after),
            "threads_moved": self.threads_moved,
            "operators": {
                operator.operator: {
                    "before": operator.before,
                    "after": operator.after,
                    "kept": operator.kept,
                    "moved": operator.moved,
                }
                for operator in self.operators
            },
            "slots": [
                {"node": change.slot.node, "slot": change.slot.number, "threads": dict(change.change)}
                for change in self.slots
            ],
            "nodes_added": list(self.nodes_added),
            "nodes_removed": list(self.nodes_removed),
        }


def _summary(plan: SavedPlan) -> dict[str, Any]:
    return {
        "pipeline": plan.pipeline,
        "rate": plan.rate,
        "allocator": plan.allocator,
        "placer": plan.placer,
        "slots": plan.slots.placed,
        "nodes": len(plan.nodes),
        "price_per_hour": plan.price_per_hour,
    }


def diff(before: SavedPlan, after: SavedPlan) -> PlanDiff:
    """Threads are interchangeable: as many of an operator's threads stay on a slot as both plans have there. Nothing
    stays on a node that is replaced by one of another size."""
    old, new = before.threads_by_slot(), after.threads_by_slot()
    operators = dict.fromkeys([*before.operators, *after.operators])
    slots = dict.fromkeys([*old, *new])
    changes = []
    for slot in slots:
        was, becomes = old.get(slot, {}), new.get(slot, {})
        change = {name: becomes.get(name, 0) - was.get(name, 0) for name in operators}
        changes.append(SlotChange(slot, {name: count for name, count in change.items() if count}))
    old_nodes = {node.name: node for node in before.nodes}
    new_nodes = {node.name: node for node in after.nodes}
    stay = [slot for slot in slots if old_nodes.get(slot.node) == new_nodes.get(slot.node)]
    return PlanDiff(
        before,
        after,
        tuple(
            OperatorChange(
                name,
                sum(row.get(name, 0) for row in old.values()),
                sum(row.get(name, 0) for row in new.values()),
                sum(min(old.get(slot, {}).get(name, 0), new.get(slot, {}).get(name, 0)) for slot in stay),
            )
            for name in operators
        ),
        tuple(change for change in changes if change.change),
        tuple(name for name in new_nodes if new_nodes[name] != old_nodes.get(name)),
        tuple(name for name in old_nodes if old_nodes[name] != new_nodes.get(name)),
    )


# Match the slots of a new placement with running slots so that as few threads as possible move.


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
