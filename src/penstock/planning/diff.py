"""What changes, and what moves, from one plan to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.planning.file import SavedPlan


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
