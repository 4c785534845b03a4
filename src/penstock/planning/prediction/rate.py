"""The rate any placement supports, whoever made it.

Operator i with t_k threads on slot k can do I_i(t_k) there. What it is asked to do depends on how its input is dealt:
the pipeline supports the largest rate at which no slot is asked for more than it can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cluster.topology import Slot
from penstock.dataflow.pipeline import Grouping, Pipeline
from penstock.dataflow.rates import Gain, flows
from penstock.modelling.model import FixedDemand, Model

if TYPE_CHECKING:
    from penstock.dataflow.pipeline import Stream


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
        if limit < best.rate:
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
            if limit < best.rate:
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
