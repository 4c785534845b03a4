"""CPU and memory of every slot and node at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.modelling.model import FixedDemand, Model
from penstock.prediction.rate import Routing, received, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.dataflow.rates import Gain
    from penstock.prediction.rate import Demands, ThreadsBySlot


@dataclass(frozen=True, slots=True)
class SlotUsage:
    """In slots: 1.0 is all of one slot."""

    cpu: float = 0.0
    memory: float = 0.0

    def plus(self, cpu: float, memory: float) -> SlotUsage:
        return SlotUsage(self.cpu + cpu, self.memory + memory)


def slot_usage(
    gains: Mapping[str, Gain],
    demands: Demands,
    declared: Mapping[str, SlotUsage],
    threads: ThreadsBySlot,
    rate: float,
    routing: Routing,
) -> dict[Slot, SlotUsage]:
    """Per slot, the sum over its bundles of C(t), M(t) times min(1, received / I(t)).

    Operators of fixed demand count as they are; `declared` holds the demand of one thread of those without a model.
    """
    usage: dict[Slot, SlotUsage] = {slot: SlotUsage() for slot in threads}
    for operator, gain in gains.items():
        demand = demands[operator]
        spread = spread_of(threads, operator)
        if isinstance(demand, Model):
            for slot, share in received(demand, spread, gain.at(rate), routing).items():
                count = spread[slot]
                part = min(1.0, share / demand.rate(count))
                usage[slot] = usage[slot].plus(demand.cpu(count) * part, demand.memory(count) * part)
        else:
            per_thread = SlotUsage(demand.cpu, demand.memory) if isinstance(demand, FixedDemand) else declared[operator]
            for slot, count in spread.items():
                usage[slot] = usage[slot].plus(per_thread.cpu * count, per_thread.memory * count)
    return usage


def with_cpu(slots: Mapping[Slot, SlotUsage], more: Mapping[Slot, float]) -> dict[Slot, SlotUsage]:
    """The usage of slots with so much more CPU, in slots."""
    return {slot: used.plus(more.get(slot, 0.0), 0.0) for slot, used in slots.items()}


def node_usage(slots: Mapping[Slot, SlotUsage]) -> dict[str, SlotUsage]:
    usage: dict[str, SlotUsage] = {}
    for slot, used in slots.items():
        usage[slot.node] = usage.get(slot.node, SlotUsage()).plus(used.cpu, used.memory)
    return usage
