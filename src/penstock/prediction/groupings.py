"""The rate a placement supports when every stream keeps its own grouping.

The load of a slot is the sum over its input streams of (tuples/s it gets) / (tuples/s it can do), affine in the
pipeline's rate. Assumed: keys and direct choices spread evenly over threads; `global` is done by one thread; `all`
gives every thread of the slot a copy of every tuple.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Grouping, Pipeline
from penstock.dataflow.rates import Gain, flows
from penstock.modelling.model import Model
from penstock.prediction.rate import Routing, SupportedRate, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Stream
    from penstock.prediction.rate import Demands, ThreadsBySlot

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
