"""Which operators to separate and fuse: those that stand out from the others."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from penstock.dataflow.pipeline import Kind
from penstock.dataflow.rates import flows
from penstock.dataflow.rewrite import RewriteStep, Rewritten, What, fuse, separate
from penstock.dataflow.tolerance import exceeds, whole_up
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline


def separate_heavy(pipeline: Pipeline, loads: Mapping[str, float], factor: float) -> Rewritten:
    """Separate every operator that needs more than a slot and more than `factor` times the median of the others.

    Into as many as bring each part down to that, but into no more than the slots it fills: parts of less than a slot
    would only share one. `min(ceil(load / (factor * median)), ceil(load))`, loads in slots.
    """
    done: list[RewriteStep] = []
    inner = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.OPERATOR]
    for name in inner:
        others = median([loads[other] for other in inner if other != name] or [0.0])
        if others <= 0 or not exceeds(loads[name], factor * others) or not exceeds(loads[name], 1.0):
            continue
        parts = min(whole_up(loads[name] / (factor * others)), whole_up(loads[name]))
        why = f"its load of {loads[name]:.3g} is {loads[name] / others:.3g} times the median of the others"
        try:
            pipeline, step = separate(pipeline, name, parts, why)
        except BadInputError as error:
            step = (RewriteStep(What.LEFT, (name,), (), str(error)),)
        done += step
    return Rewritten(pipeline, tuple(done))


def fuse_busy(pipeline: Pipeline, rate: float, factor: float) -> Rewritten:
    """Fuse the ends of every stream with more than `factor` times the median traffic (bytes/s) of the others, the
    busiest first. What is fused once is not fused again."""
    traffic: dict[tuple[str, str], float] = {}
    for stream, gain in zip(pipeline.streams, flows(pipeline).streams, strict=True):
        pair = stream.sender, stream.receiver
        traffic[pair] = traffic.get(pair, 0.0) + gain.at(rate) * stream.bytes
    done: list[RewriteStep] = []
    fused: set[str] = set()
    for pair in sorted(traffic, key=lambda pair: -traffic[pair]):
        others = median([amount for other, amount in traffic.items() if other != pair] or [0.0])
        kinds = {pipeline.operators[name].kind for name in pair if name in pipeline.operators}
        if others <= 0 or not exceeds(traffic[pair], factor * others) or fused & set(pair) or kinds != {Kind.OPERATOR}:
            continue
        why = f"{traffic[pair]:.3g} bytes/s between them, {traffic[pair] / others:.3g} times the median of the others"
        try:
            pipeline, step = fuse(pipeline, *pair, why)
            fused |= set(pair)
        except BadInputError as error:
            step = (RewriteStep(What.LEFT, pair, (), str(error)),)
        done += step
    return Rewritten(pipeline, tuple(done))
