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
from penstock.modelling.model import FixedDemand, Model

if TYPE_CHECKING:
    from penstock.dataflow.rates import Gain

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
