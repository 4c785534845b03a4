"""Predict what a placement does at a rate, whoever made it: supported rate, usage, network cost, latency.

Operator i with t_k threads on slot k can do I_i(t_k) there. What it is asked to do depends on how its input is dealt:
the pipeline supports the largest rate at which no slot is asked for more than it can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from penstock.base.tolerance import exceeds, ratio_key
from penstock.cluster.topology import CPU_POINTS_PER_SLOT, Distance, Slot
from penstock.dataflow.pipeline import Gain, Grouping, Pipeline, flows, stream_rates
from penstock.modelling.model import FixedDemand, Model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cluster.topology import Cluster
    from penstock.dataflow.aggregate import Aggregate
    from penstock.dataflow.pipeline import Stream
    from penstock.modelling.task_profile import TaskProfile
    from penstock.planning.placement.contract import Placement, PlacementRequest


ThreadsBySlot = Mapping[Slot, Mapping[str, int]]
Demands = Mapping[str, Model | FixedDemand | None]


class Routing(StrEnum):
    """How the input of every operator is dealt to its slots."""

    SHUFFLE = "shuffle"
    """Every thread gets an equal share."""
    SLOT_AWARE = "slot-aware"
    """Every slot gets a share in proportion to what it supports."""


@dataclass(frozen=True, slots=True)
class SupportedRate:
    """The largest rate, and the operator that limits it (None: nothing does)."""

    rate: float
    bottleneck: str | None


def spread_of(threads: ThreadsBySlot, operator: str) -> dict[Slot, int]:
    """Where the threads of one operator are."""
    return {slot: row[operator] for slot, row in threads.items() if row.get(operator)}


def peak(model: Model, threads: int) -> float:
    return model.rate(threads)


def lowest_peak(model: Model, threads: int) -> float:
    """I(t) less its spread: what the worst of the repeated trials supported."""
    return max(0.0, model.rate(threads) - model.rate_spread(threads))


def highest_peak(model: Model, threads: int) -> float:
    return model.rate(threads) + model.rate_spread(threads)


def supported_rate(
    gains: Mapping[str, Gain],
    demands: Demands,
    threads: ThreadsBySlot,
    routing: Routing,
    supports: Callable[[Model, int], float] = peak,
) -> SupportedRate:
    """`min over operators of (sum_k I(t_k)) / gain` when slot-aware, `min over slots of I(t_k) * t / t_k / gain` when
    shuffled. Operators without a model limit nothing."""
    best = SupportedRate(math.inf, None)
    for operator, gain in gains.items():
        model = demands[operator]
        if not isinstance(model, Model):
            continue
        spread = spread_of(threads, operator)
        if routing is Routing.SLOT_AWARE:
            operator_rate = sum(supports(model, count) for count in spread.values())
        else:
            total = sum(spread.values())
            operator_rate = min((supports(model, count) * total / count for count in spread.values()), default=0.0)
        limit = gain.pipeline_rate_at(operator_rate)
        if ratio_key(limit) < ratio_key(best.rate):
            best = SupportedRate(limit, operator)
    return best


def received(model: Model, spread: Mapping[Slot, int], rate: float, routing: Routing) -> dict[Slot, float]:
    """How much of an operator's input rate each of its slots gets."""
    if routing is Routing.SHUFFLE:
        weights = {slot: float(count) for slot, count in spread.items()}
    else:
        weights = {slot: model.rate(count) for slot, count in spread.items()}
    total = sum(weights.values())
    return {slot: rate * weight / total for slot, weight in weights.items()}


# The rate a placement supports when every stream keeps its own grouping.
#
# The load of a slot is the sum over its input streams of (tuples/s it gets) / (tuples/s it can do), affine in the
# pipeline's rate. Assumed: keys and direct choices spread evenly over threads; `global` is done by one thread; `all`
# gives every thread of the slot a copy of every tuple.


Shares = dict["Slot", float]


def supported_rate_as_declared(
    pipeline: Pipeline, gains: Mapping[str, Gain], demands: Demands, threads: ThreadsBySlot
) -> SupportedRate:
    """The largest rate at which no slot of any operator with a model is loaded above 1."""
    best = SupportedRate(math.inf, None)
    output: dict[str, Shares] = {}
    carried_by = {id(s): gain for s, gain in zip(pipeline.streams, flows(pipeline).streams, strict=True)}
    for operator, gain in gains.items():
        spread = spread_of(threads, operator)
        total = sum(spread.values())
        even = {slot: count / total for slot, count in spread.items()}
        model = demands[operator]
        streams = pipeline.inputs(operator)
        dealt = [
            (carried_by[id(stream)], stream_shares(stream, spread, output[stream.sender], model)) for stream in streams
        ]
        if not streams:
            dealt = [(gain, even)]
        output[operator] = _mix([shares for _, shares in dealt]) if dealt else even
        if not isinstance(model, Model):
            continue
        for slot, count in spread.items():
            load = Gain(0.0, 0.0)
            for position, (carried, shares) in enumerate(dealt):
                one_thread = bool(streams) and streams[position].grouping is Grouping.GLOBAL
                capacity = model.rate(1) if one_thread else model.rate(count)
                part = shares.get(slot, 0.0) / capacity
                load = Gain(load.factor + carried.factor * part, load.constant + carried.constant * part)
            limit = load.pipeline_rate_at(1.0)
            if ratio_key(limit) < ratio_key(best.rate):
                best = SupportedRate(limit, operator)
    return best


def routed(pipeline: Pipeline, routing: Routing) -> Pipeline:
    """The pipeline as it is dealt when routing is chosen for it: plain shuffle streams follow the routing, all others
    what they declare."""
    if routing is Routing.SHUFFLE:
        return pipeline
    streams = [
        stream.model_copy(update={"grouping": Grouping.SLOT_AWARE}) if stream.grouping is Grouping.SHUFFLE else stream
        for stream in pipeline.streams
    ]
    return Pipeline.of(pipeline.name, pipeline.operators.values(), streams, pipeline.constraints)


def stream_shares(stream: Stream, spread: Mapping[Slot, int], sender: Shares, model: object) -> Shares:
    """The part of the stream's tuples each slot of the receiver gets; the parts add up to more than 1 for `all`."""
    total = sum(spread.values())
    even = {slot: count / total for slot, count in spread.items()}
    match stream.grouping:
        case Grouping.SLOT_AWARE if isinstance(model, Model):
            capacity = {slot: model.rate(count) for slot, count in spread.items()}
            return {slot: rate / sum(capacity.values()) for slot, rate in capacity.items()}
        case Grouping.ALL:
            return {slot: float(count) for slot, count in spread.items()}
        case Grouping.GLOBAL:
            return {next(iter(spread)): 1.0}
        case Grouping.LOCAL_OR_SHUFFLE:
            homeless = sum(part for slot, part in sender.items() if slot not in spread)
            return {slot: sender.get(slot, 0.0) + homeless * part for slot, part in even.items()}
        case _:
            return even


def _mix(dealt: list[Shares]) -> Shares:
    """Where an operator's output starts: the mean of where its inputs arrive, as shares."""
    slots = dict.fromkeys(slot for shares in dealt for slot in shares)
    sums = {slot: sum(shares.get(slot, 0.0) for shares in dealt) for slot in slots}
    total = sum(sums.values())
    return {slot: value / total for slot, value in sums.items()}


# CPU and memory of every slot and node at a rate.


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


# CPU of one tuple, by the models of its operators.


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


# Network cost of a placement: how far tuples travel between threads.
#
# The cost of a stream a -> b is the mean, over all pairs of a thread of a and a thread of b, of the distance
# between their slots (`Distance`: 0 same slot, 1 same node, 2 same rack, 3 other rack). With a_g the share of
# a's threads in group g, the chance that a pair shares a group is the sum of a_g b_g over groups, and each
# level shared saves one:
#
#     cost(a -> b) = 3 - sum over racks a_r b_r - sum over nodes a_n b_n - sum over slots a_s b_s
#
# Every stream counts once: parallel streams each, and a stream from an operator to itself too.


Group = TypeVar("Group")


def stream_costs(request: PlacementRequest, placement: Placement, cluster: Cluster) -> tuple[float, ...]:
    """The cost of each stream of a placed pipeline, in declared order; 0 where one end has no thread."""
    slots: dict[str, dict[Slot, float]] = {operator.name: {} for operator in request.operators}
    for operator, threads, slot, _ in placement.bundles:
        row = slots[operator]
        row[slot] = row.get(slot, 0.0) + threads
    total = {operator.name: float(operator.threads) for operator in request.operators}
    shares = [{slot: threads / total[name] for slot, threads in row.items()} for name, row in slots.items()]
    nodes = [_summed((slot.node, share) for slot, share in row.items()) for row in shares]
    rack = {node.name: node.rack for node in cluster.nodes}
    racks = [_summed((rack[node], share) for node, share in row.items()) for row in nodes]
    return tuple(
        float(Distance.OTHER_RACK)
        - _shared(racks[sender], racks[receiver])
        - _shared(nodes[sender], nodes[receiver])
        - _shared(shares[sender], shares[receiver])
        if shares[sender] and shares[receiver]
        else 0.0
        for sender, receiver in request.streams
    )


def weighted_cost(costs: Iterable[float], weights: Iterable[float]) -> float:
    """sum of weight x cost / sum of weights; 0 where nothing weighs."""
    pairs = list(zip(costs, weights, strict=True))
    total = sum(weight for _, weight in pairs)
    return sum(cost * weight for cost, weight in pairs) / total if total > 0 else 0.0


def mean_cost(costs: Iterable[float]) -> float:
    """The mean over streams; 0 where there is none. Of a cluster: over all streams of all its placed
    pipelines."""
    values = list(costs)
    return sum(values) / len(values) if values else 0.0


def _summed(amounts: Iterable[tuple[Group, float]]) -> dict[Group, float]:
    table: dict[Group, float] = {}
    for group, amount in amounts:
        table[group] = table.get(group, 0.0) + amount
    return table


def _shared(a: Mapping[Group, float], b: Mapping[Group, float]) -> float:
    """Sum over groups of a_g b_g."""
    if len(b) < len(a):
        a, b = b, a
    return sum(share * b[group] for group, share in a.items() if group in b)


# A quick estimate of a tuple's latency from source to sink.
#
# Assumed, per operator and slot: Poisson arrivals and a constant service time (M/D/c), the thread time at the slot's
# peak, t / I(t). Queues wait half as long as with exponential service. A slot at its measured peak was stable there, so
# a load above 0.99 up to 1 counts as 0.99; above 1 there is no bound. A tuple also waits for the engine's next batch
# once, evenly spread over the interval, and travels between slots. The pipeline's latency is that of its slowest path,
# percentile by percentile: for p95 and p99 this errs on the high side.


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


# Time until an aggregation's result for a tuple is sent, if windows are sent once they are closed.
#
# A tuple is due at any time of a stretch of S seconds at whose end a window starts; of the windows of W seconds it is
# in, the last one ends between `W - S` and W later. Spark closes a window with a watermark: the latest time it has
# seen, less the L seconds it waits for late rows, as of the batch before. So a batch must bring a tuple that was
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
