"""How few slots could possibly do: no plan that keeps every slot within its CPU and memory needs fewer.

A slot whose bundle of operator i has t threads does any rate r <= I(t) at a cost of r*C(t)/I(t). So whatever a slot
does for i, (rate, cost) lies on or above g_i, the lower convex hull of (0, 0) and the measured (I(t), C(t)); no slot
does more than the peak rate. Over N slots that share the rates w_i, convexity gives a total cost of at least
`sum_i N g_i(w_i / N)`, and N slots offer N: N is too few while `sum_i g_i(w_i / N) > 1`. The same holds for memory,
and for any mixture `h C + (1 - h) M`. Fixed demands f add f / N. The left side falls as N grows, so bisection finds
the smallest N that passes for all mixtures tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.modelling.model import Model

_MIXTURES = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, slots=True)
class ModelledDemand:
    """An operator with a model and the rate it must do."""

    model: Model
    rate: float


def fewest_slots(modelled: Sequence[ModelledDemand], fixed_cpu: float, fixed_memory: float) -> int:
    """The lower bound on slots; `fixed_*` is what operators without a model need in all."""
    bound = 1
    for mixture in _MIXTURES:
        hulls = [(_hull(demand.model, mixture), demand.rate) for demand in modelled]
        fixed = mixture * fixed_cpu + (1 - mixture) * fixed_memory
        bound = max(bound, _fewest(hulls, fixed, bound))
    return bound


Hull = list[tuple[float, float]]


def _fewest(hulls: list[tuple[Hull, float]], fixed: float, at_least: int) -> int:
    def enough(slots: int) -> bool:
        return sum(_at(hull, rate / slots) for hull, rate in hulls) + fixed / slots <= 1 + 1e-9

    low, high = at_least, at_least
    while not enough(high):
        low, high = high + 1, high * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


def _hull(model: Model, mixture: float) -> Hull:
    """The lower convex hull of (0, 0) and (I(t), h C(t) + (1 - h) M(t)), up to the peak rate."""
    points = sorted(
        [
            (0.0, 0.0),
            *((point.rate, mixture * point.cpu + (1 - mixture) * point.memory) for point in model.points),
        ]
    )
    hull: Hull = []
    for rate, cost in points:
        if hull and rate == hull[-1][0]:
            continue
        while len(hull) >= 2 and _turns_down(hull[-2], hull[-1], (rate, cost)):
            hull.pop()
        hull.append((rate, cost))
    return hull


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) >= (c[1] - b[1]) * (b[0] - a[0])


def _at(hull: Hull, rate: float) -> float:
    if rate > hull[-1][0] * (1 + 1e-12):
        return math.inf
    for (left, low), (right, high) in pairwise(hull):
        if rate <= right:
            return low + (high - low) * (rate - left) / (right - left)
    return hull[-1][1]
