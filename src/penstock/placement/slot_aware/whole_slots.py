"""Placing bundles on the slots of a plan, where every slot offers 1.0 of CPU and 1.0 of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.topology import Slot
from penstock.dataflow.tolerance import exceeds
from penstock.errors import Refusal, Shortage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.placement.contract import PlacementRequest, Room


def free_slots(room: Room) -> list[Slot]:
    """Every slot nobody has, node by node."""
    return [
        Slot(node.name, number)
        for position, node in enumerate(room.cluster.nodes)
        for number in range(int(room.slots_taken[position]), node.slots)
    ]


def too_large(by: str, request: PlacementRequest, slots: Sequence[Slot]) -> Refusal | None:
    """The refusal of a bundle that no slot can take, which more slots do not change; None where all fit."""
    closest = f"slot {slots[0]}" if slots else "the cluster"
    for operator in request.operators:
        for _, bundle in operator.bundles:
            for what, amount in (("cpu", bundle.cpu), ("memory", bundle.memory)):
                if exceeds(amount, 1):
                    shortage = Shortage(operator.name, f"{what} of one slot", amount, 1.0, closest)
                    return Refusal(by, (shortage,), more_slots_may_help=False)
    return None


def too_few(by: str, request: PlacementRequest, needed: int, offered: int) -> Refusal:
    return Refusal(by, (Shortage(request.pipeline, "slots", needed, offered, "the cluster", "pipeline"),))
