"""Which operators to separate, fuse and replicate: those that stand out from the others."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import flows
from penstock.dataflow.rewrite import Done, Rewritten, What, fuse, replicate, separate
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline


def separate_heavy(pipeline: Pipeline, loads: Mapping[str, float], factor: float) -> Rewritten:
    """Separate every operator whose load is above `factor` times the median of the others', into as many as bring each
    down to that: `ceil(load / (factor * median))`."""
    done: list[Done] = []
    inner = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR]
    for name in inner:
        others = median([loads[other] for other in inner if other != name] or [0.0])
        if others <= 0 or loads[name] <= factor * others:
            continue
        parts = math.ceil(loads[name] / (factor * others) - 1e-9)
        why = f"its load of {loads[name]:.3g} is {loads[name] / others:.3g} times the median of the others"
        try:
            pipeline, step = separate(pipeline, name, parts, why)
        except BadInputError as error:
            step = (Done(What.LEFT, (name,), (), str(error)),)
        done += step
    return Rewritten(pipeline, tuple(done))


def fuse_busy(pipeline: Pipeline, rate: float, factor: float) -> Rewritten:
    """Fuse the ends of every stream with more than `factor` times the median traffic (bytes/s) of the others, the
    busiest first. What is fused once is not fused again."""
    traffic: dict[tuple[str, str], float] = {}
    for stream, gain in zip(pipeline.streams, flows(pipeline).streams, strict=True):
        pair = stream.sender, stream.receiver
        traffic[pair] = traffic.get(pair, 0.0) + gain.at(rate) * stream.bytes
    done: list[Done] = []
    fused: set[str] = set()
    for pair in sorted(traffic, key=lambda pair: -traffic[pair]):
        others = median([amount for other, amount in traffic.items() if other != pair] or [0.0])
        kinds = {pipeline.operators[name].kind for name in pair if name in pipeline.operators}
        if others <= 0 or traffic[pair] <= factor * others or fused & set(pair) or kinds != {Kind.OPERATOR}:
            continue
        why = f"{traffic[pair]:.3g} bytes/s between them, {traffic[pair] / others:.3g} times the median of the others"
        try:
            pipeline, step = fuse(pipeline, *pair, why)
            fused |= set(pair)
        except BadInputError as error:
            step = (Done(What.LEFT, pair, (), str(error)),)
        done += step
    return Rewritten(pipeline, tuple(done))


def replicate_for(pipeline: Pipeline, rate: float, peaks: Mapping[str, float]) -> Rewritten:
    """As many threads as the rate needs, where one thread of an operator does `peaks[operator]` tuples/s:
    `ceil(input rate / peak)`, at least 1. Operators without a peak are left alone."""
    done: list[Done] = []
    for name, gain in flows(pipeline).operators.items():
        if name not in peaks:
            continue
        if not peaks[name] > 0:
            raise BadInputError(f"operator '{name}': expected a peak above 0 tuples/s, found {peaks[name]:g}")
        needed = max(1, math.ceil(gain.at(rate) / peaks[name] - 1e-9))
        if needed != pipeline.operators[name].threads:
            why = f"for {gain.at(rate):.4g} tuples/s at {peaks[name]:.4g} each"
            pipeline, step = replicate(pipeline, name, needed, why)
            done += step
    return Rewritten(pipeline, tuple(done))
