"""CPU that moving tuples between nodes takes, where task profiles say what a tuple costs to move.

Threads of a stream's two operators talk evenly: of what a thread sends, the share that stays on its node is that of
the receiver's threads there. With a_n and b_n the shares of sender and receiver on node n, threads that are the share q
of the sender's and sit on n move `S q (1 - b_n)` tuples/s, those of the receiver `S q (1 - a_n)`; each costs its own
operator's `moving_cpu` points. This is the second part of Eq. 3 of P-Deployer, for any placement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cluster.resources import CPU_POINTS_PER_SLOT
from penstock.dataflow.rates import stream_rates
from penstock.prediction.rate import spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.modelling.task_profile import TaskProfile
    from penstock.prediction.rate import ThreadsBySlot


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
