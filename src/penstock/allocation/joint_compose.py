"""How many bundles of which size every operator gets when there are N slots: the candidates the packing tries.

Spread over N slots an operator does w/N on each, and the cheapest way of doing that lies between two corners of the
hull of its points (`penstock.modelling.bounds`): so many slots with the one, the others with the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.modelling.bounds import hull, segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.allocation.joint_problem import Problem

Counts = list[tuple[int, int]]
"""(point, slots) of one operator."""


@dataclass(frozen=True, slots=True)
class Style:
    """`mixture` of CPU and memory to save on; `mixed`: two sizes where the hull says so; `dense`: as few bundles as
    do, instead of one on every slot."""

    mixture: float
    mixed: bool
    dense: bool


def styles(scarcest: float, *, equal: bool) -> Iterator[Style]:
    """The most promising first."""
    seen = set()
    for mixture in (scarcest, 0.5, 1.0, 0.0):
        for mixed in (False,) if equal else (True, False):
            for dense in (False, True):
                style = Style(mixture, mixed, dense)
                if style not in seen:
                    seen.add(style)
                    yield style


def composed(problem: Problem, slots: int, style: Style) -> list[Counts] | None:
    """The bundles of every operator; None where an operator cannot do its rate on so many slots."""
    found = []
    for i in range(problem.operators):
        counts = _mixed(problem, i, slots, style) if style.mixed else _uniform(problem, i, slots, style)
        if counts is None:
            return None
        found.append(counts)
    return found


def _mixed(problem: Problem, i: int, slots: int, style: Style) -> Counts | None:
    rate = float(problem.rates[i])
    between = segment(hull(problem.models[i], style.mixture), rate / slots)
    if between is None:
        return None
    left, right, _ = between
    if left.index < 0:
        return [(right.index + 1, _at_least(rate / right.rate, slots) if style.dense else slots)]
    more = _at_least((rate - slots * left.rate) / (right.rate - left.rate), slots)
    return [(point, count) for point, count in ((right.index + 1, more), (left.index + 1, slots - more)) if count]


def _uniform(problem: Problem, i: int, slots: int, style: Style) -> Counts | None:
    """One size for all: the one with the least cost per tuple that can do the rate."""
    rate = float(problem.rates[i])
    able = [p for p in problem.points(i) if problem.peak[i, p] * slots >= rate * (1 - 1e-12)]
    if not able:
        return None
    h = style.mixture

    def cost(p: int) -> float:
        cpu, memory = problem.need[i, p]
        return float((h * cpu + (1 - h) * memory) / problem.peak[i, p])

    best = min(able, key=cost)
    return [(best, _at_least(rate / float(problem.peak[i, best]), slots) if style.dense else slots)]


def _at_least(count: float, most: int) -> int:
    """Rounded up, forgiving what rounding adds to a whole number; at least 1."""
    return min(max(math.ceil(count - 1e-9), 1), most)
