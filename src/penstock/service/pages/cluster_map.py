"""The cluster as the page shows it: racks, nodes, slots, and who holds what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.control.core.states import NodeState

if TYPE_CHECKING:
    from penstock.cluster.topology import Slot
    from penstock.control.core.records import ControllerState


def cluster_map(state: ControllerState) -> dict[str, Any]:
    """A slot has one holder, or one it is promised to, or none."""
    holders: dict[Slot, str] = {}
    promised: dict[Slot, str] = {}
    for record in state.pipelines.values():
        holders.update(dict.fromkeys(record.held, record.name))
        promised.update(dict.fromkeys(record.may_hold, record.name))
    racks: dict[str, list[dict[str, Any]]] = {}
    for node in state.nodes.values():
        if node.state is NodeState.GONE:
            continue
        slots: list[dict[str, Any] | None] = [None] * node.slots
        for held, table in ((False, promised), (True, holders)):
            for number in range(node.slots):
                holder = table.get((node.name, number))  # type: ignore[call-overload] # a Slot is such a pair
                if holder is not None:
                    slots[number] = {"pipeline": holder, "held": held}
        racks.setdefault(node.rack, []).append(
            {
                "name": node.name,
                "state": str(node.state),
                "since": node.since,
                "price": node.price,
                "capacity": dict(node.capacity),
                "slots": slots,
            }
        )
    return {"unit_slots": state.unit_slots, "racks": [{"name": name, "nodes": nodes} for name, nodes in racks.items()]}
