"""A quick estimate of how long a tuple takes from source to sink.

Assumed, per operator and slot: tuples arrive at random (Poisson), every one takes a thread the same time (M/D/c), and
that time is what it is at the slot's peak, t / I(t). Queues wait half as long as with exponential service. A slot at
its measured peak was stable there, so a load above 0.99 up to 1 counts as 0.99; above 1 there is no bound. A tuple
also waits for the engine's next batch once, evenly spread over the interval, and travels between slots. The
pipeline's latency is that of its slowest path, percentile by percentile: for p95 and p99 this errs on the high side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.tolerance import exceeds
from penstock.modelling.model import Model
from penstock.planning.prediction.rate import Routing, received, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Cluster, Distance, Slot
    from penstock.dataflow.aggregate import Aggregate
    from penstock.dataflow.pipeline import Pipeline
    from penstock.dataflow.rates import Gain
    from penstock.planning.prediction.rate import Demands, ThreadsBySlot


PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
HIGHEST_STABLE_LOAD = 0.99
DEFAULT_BATCH_INTERVAL_MS = 100.0


@dataclass(frozen=True, slots=True)
class LatencyAssumptions:
    """Milliseconds: of the engine's batch interval, and of one hop by distance. Guesses until measured."""

    batch_interval_ms: float = DEFAULT_BATCH_INTERVAL_MS
    same_node_ms: float = 0.05
    same_rack_ms: float = 0.5
    other_rack_ms: float = 1.0

    def hop_ms(self, distance: Distance) -> float:
        return (0.0, self.same_node_ms, self.same_rack_ms, self.other_rack_ms)[distance]


def erlang_c(servers: int, offered: float) -> float:
    """The probability that a tuple waits in M/M/c with `offered` = arrival rate x service time < servers.

    By Erlang B's recursion `B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1))`, then `C = B / (1 - rho (1 - B))`.
    """
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def sojourn_seconds(threads: int, peak_rate: float, load: float, percentile: float) -> float:
    """Wait and service of one tuple. `S = t / I(t)`; `P(wait > x) = C exp(-2 x (t - a) / S)` with a = load x t.

    The 2 is M/D/c's: with constant service a queue drains twice as fast as with exponential.
    """
    service = threads / peak_rate
    if exceeds(load, 1):
        return math.inf
    offered = min(load, HIGHEST_STABLE_LOAD) * threads
    waiting = erlang_c(threads, offered)
    tail = 1 - percentile
    if waiting <= tail:
        return service
    return service + service / (2 * (threads - offered)) * math.log(waiting / tail)


def latency_ms(
    pipeline: Pipeline,
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: ThreadsBySlot,
    cluster: Cluster,
    rate: float,
    routing: Routing,
    assumptions: LatencyAssumptions,
) -> dict[str, float]:
    """Percentiles of a tuple's way along the slowest path; infinite where an operator is asked for too much."""
    hops = {
        (stream.sender, stream.receiver): _hop_ms(
            spread_of(threads, stream.sender), spread_of(threads, stream.receiver), cluster, assumptions
        )
        for stream in pipeline.streams
    }
    return {
        name: percentile * assumptions.batch_interval_ms
        + _slowest_path(pipeline, gains, demands, threads, rate, routing, percentile, hops)
        for name, percentile in PERCENTILES.items()
    }


def _slowest_path(
    pipeline: Pipeline,
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: ThreadsBySlot,
    rate: float,
    routing: Routing,
    percentile: float,
    hops: Mapping[tuple[str, str], float],
) -> float:
    until: dict[str, float] = {}
    for operator, gain in gains.items():
        arrival = max(
            (until[stream.sender] + hops[stream.sender, operator] for stream in pipeline.inputs(operator)),
            default=0.0,
        )
        demand = demands[operator]
        worst = 0.0
        if isinstance(demand, Model):
            spread = spread_of(threads, operator)
            shares = received(demand, spread, gain.at(rate), routing)
            worst = max(
                sojourn_seconds(count, demand.rate(count), shares[slot] / demand.rate(count), percentile)
                for slot, count in spread.items()
            )
        until[operator] = arrival + 1000 * worst
    return max(until.values())


def _hop_ms(
    senders: Mapping[Slot, int],
    receivers: Mapping[Slot, int],
    cluster: Cluster,
    assumptions: LatencyAssumptions,
) -> float:
    """The mean over pairs of threads, from the shares of both on every slot, node and rack.

    `other - sum_racks a b (other - rack) - sum_nodes a b (rack - node) - sum_slots a b node`
    """
    other, rack, node = assumptions.other_rack_ms, assumptions.same_rack_ms, assumptions.same_node_ms
    mean = other
    for saved, place in (
        (other - rack, lambda slot: cluster.node(slot.node).rack),
        (rack - node, lambda slot: slot.node),
        (node, lambda slot: slot),
    ):
        there: dict[object, float] = {}
        for slot, count in senders.items():
            there[place(slot)] = there.get(place(slot), 0.0) + count / sum(senders.values())
        met = sum(there.get(place(slot), 0.0) * count for slot, count in receivers.items())
        mean -= saved * met / sum(receivers.values())
    return max(0.0, mean)


# When what an aggregation makes of a tuple leaves it, where windows are sent on once they are closed.
#
# A tuple is due at any time of a stretch of S seconds at whose end a window starts; of the windows of W seconds it is
# in, the last one ends between `W - S` and W later. Spark closes a window with a watermark: the latest time it has
# seen, less the L seconds it waits for what is late, as of the batch before. So a batch must bring a tuple that was
# due L after the window's end, which takes that tuple's latency (d for the batch, and up to a period T until that
# begins), and the next batch sends the window on, another d later. Of all tuples the part q has left after
#
# W - S + q S + L + (d + q T) + d      seconds.
#
# Assumed: tuples go on coming, in the order they were due; the parts of S and T a tuple waits for are the same, which
# for parts above one half errs on the high side.


def closing_seconds(aggregate: Aggregate, batch: float, period: float, part: float = 0.5) -> float:
    """Until so large a part of an aggregation's tuples has left it, with batches of d = `batch` every T = `period`."""
    window = aggregate.window_seconds or 0.0
    slide = aggregate.slide_seconds or window
    return window - slide + part * slide + aggregate.late_seconds + batch + part * period + batch
