"""CPU and memory of every slot and node at a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cluster.topology import CPU_POINTS_PER_SLOT
from penstock.dataflow.rates import stream_rates
from penstock.modelling.model import FixedDemand, Model
from penstock.planning.prediction.rate import Routing, received, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.dataflow.rates import Gain
    from penstock.modelling.task_profile import TaskProfile
    from penstock.planning.prediction.rate import Demands, ThreadsBySlot


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


# CPU seconds of one tuple, by the models of its operators.


def cpu_seconds_per_tuple(gains: Mapping[str, Gain], demands: Demands, threads: ThreadsBySlot) -> float:
    """Of everything one tuple of the source causes; what an operator's own process used, where its model says."""
    total = 0.0
    for operator, gain in gains.items():
        model = demands[operator]
        if not isinstance(model, Model):
            continue
        spread = spread_of(threads, operator)
        rate = sum(model.rate(count) for count in spread.values())
        cpu = sum(own_cpu(model, count) for count in spread.values())
        total += gain.factor * cpu / rate if rate > 0 else 0.0
    return total


def own_cpu(model: Model, threads: int) -> float:
    """CPU of the operator's own code at the peak of `threads`: that of the nearest measured point, less what its worker
    needs for batches whatever is in them, scaled to the rate; the slot's where the model does not say."""
    point = min(model.points, key=lambda measured: abs(measured.threads - threads))
    if point.operator_cpu is None or point.rate <= 0:
        return model.cpu(threads)
    on = model.measured_on
    period = (on.batch_seconds or 1.0) + (on.batch_overhead_ms or 0.0) / 1000
    batches = (on.worker_batch_cpu_ms or 0.0) / 1000 / period
    return max(0.0, point.operator_cpu - batches) / point.rate * model.rate(threads)


# CPU that moving tuples between nodes takes, where task profiles say what a tuple costs to move.
#
# Threads of a stream's two operators talk evenly: of what a thread sends, the share that stays on its node is that of
# the receiver's threads there. With a_n and b_n the shares of sender and receiver on node n, threads that are the
# share q of the sender's and sit on n move `S q (1 - b_n)` tuples/s, those of the receiver `S q (1 - a_n)`; each
# costs its own operator's `moving_cpu` points. This is the second part of Eq. 3 of P-Deployer, for any placement.


def moving_cpu(
    pipeline: Pipeline,
    profiles: Mapping[str, TaskProfile],
    threads: ThreadsBySlot,
    rate: float,
) -> dict[Slot, float]:
    """Per slot, in slots; operators without a profile move for nothing."""
    cpu_by_slot: dict[Slot, float] = {}
    if not any(profile.moving_cpu for profile in profiles.values()):
        return cpu_by_slot
    spreads = {name: spread_of(threads, name) for name in pipeline.operators}
    on_nodes = {name: _by_node(spread) for name, spread in spreads.items()}
    for stream, size in zip(pipeline.streams, stream_rates(pipeline, rate), strict=True):
        for who, other in ((stream.sender, stream.receiver), (stream.receiver, stream.sender)):
            cost = profiles[who].moving_cpu if who in profiles else 0.0
            total, others = sum(spreads[who].values()), sum(spreads[other].values())
            if not (cost and total and others):
                continue
            for slot, count in spreads[who].items():
                away = 1 - on_nodes[other].get(slot.node, 0) / others
                more = size * count / total * away * cost / CPU_POINTS_PER_SLOT
                cpu_by_slot[slot] = cpu_by_slot.get(slot, 0.0) + more
    return cpu_by_slot


def _by_node(spread: Mapping[Slot, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for slot, count in spread.items():
        counts[slot.node] = counts.get(slot.node, 0) + count
    return counts
