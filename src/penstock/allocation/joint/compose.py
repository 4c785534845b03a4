"""How many bundles of which size every operator gets when there are N slots: the candidates the packing tries.

Spread over N slots an operator does w/N on each, and the cheapest way of doing that lies between two corners of the
hull of its points (`penstock.modelling.bounds`): so many slots with the one, the others with the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.dataflow.tolerance import covers, ratio_key, tie_key, whole_down, whole_up
from penstock.modelling.bounds import hull, segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.allocation.joint.problem import Problem

Counts = list[tuple[int, int]]
"""(point, slots) of one operator."""


Blend = tuple[tuple[float, float], ...]
"""(mixture of CPU and memory to save on, the share of the spread that does), see `Spread.blend`."""


@dataclass(frozen=True, slots=True)
class BundleStyle:
    """`mixed`: as many sizes as the hull says, not one for all; `dense`: as few bundles as do, instead of one on every
    slot."""

    blend: Blend
    mixed: bool
    dense: bool


def styles(cheapest: Blend, *, equal: bool) -> Iterator[BundleStyle]:
    """The most promising first."""
    seen = set()
    for blend in (cheapest, ((0.5, 1.0),), ((1.0, 1.0),), ((0.0, 1.0),)):
        for mixed in (False,) if equal else (True, False):
            for dense in (False, True):
                style = BundleStyle(blend, mixed, dense)
                if style not in seen:
                    seen.add(style)
                    yield style


def composed(problem: Problem, slots: int, style: BundleStyle) -> list[Counts] | None:
    """The bundles of every operator; None where an operator cannot do its rate on so many slots."""
    bundles = []
    for i in range(problem.operators):
        counts = _mixed(problem, i, slots, style) if style.mixed else _uniform(problem, i, slots, style)
        if counts is None:
            return None
        bundles.append(counts)
    return bundles


def _mixed(problem: Problem, i: int, slots: int, style: BundleStyle) -> Counts | None:
    rate = float(problem.rates[i])
    wanted: dict[int, float] = {}
    for mixture, share in style.blend:
        between = segment(hull(problem.models[i], mixture), rate / slots)
        if between is None:
            return None
        left, right, part = between
        for corner, weight in ((left, 1 - part), (right, part)):
            wanted[corner.index + 1] = wanted.get(corner.index + 1, 0.0) + share * weight * slots
    absent = wanted.pop(0, 0.0)
    if len(wanted) == 1 and absent:
        (point,) = wanted
        return [(point, _at_least(rate / float(problem.peak[i, point]), slots) if style.dense else slots)]
    return _rounded(problem, i, slots, rate, wanted)


def _rounded(problem: Problem, i: int, slots: int, rate: float, wanted: dict[int, float]) -> Counts | None:
    """Whole numbers near those wanted that support the rate: the largest fractions are rounded up, while there are
    slots free; then bundles are exchanged for larger ones."""
    counts = {point: whole_down(amount) for point, amount in wanted.items()}
    by_fraction = sorted(wanted, key=lambda point: tie_key(counts[point] - wanted[point], slots))
    peak = problem.peak[i]

    def lacks() -> bool:
        return not covers(sum(count * float(peak[point]) for point, count in counts.items()), rate)

    for point in by_fraction:
        if lacks() and sum(counts.values()) < slots:
            counts[point] += 1
    rising = sorted(counts, key=lambda point: float(peak[point]))
    while lacks():
        smaller = next((point for point in rising[:-1] if counts[point]), None)
        if smaller is None:
            if sum(counts.values()) >= slots:
                return None
        else:
            counts[smaller] -= 1
        counts[rising[-1]] += 1
    return [(point, count) for point, count in counts.items() if count]


def _uniform(problem: Problem, i: int, slots: int, style: BundleStyle) -> Counts | None:
    """One size for all: the one with the least cost per tuple that can do the rate."""
    rate = float(problem.rates[i])
    capable = [p for p in problem.points(i) if covers(float(problem.peak[i, p]) * slots, rate)]
    if not capable:
        return None
    h = sum(mixture * share for mixture, share in style.blend)

    def cost(p: int) -> float:
        cpu, memory = problem.need[i, p]
        return ratio_key(float((h * cpu + (1 - h) * memory) / problem.peak[i, p]))

    best = min(capable, key=cost)
    return [(best, _at_least(rate / float(problem.peak[i, best]), slots) if style.dense else slots)]


def _at_least(count: float, most: int) -> int:
    """Rounded up, forgiving what rounding adds to a whole number; at least 1."""
    return min(max(whole_up(count), 1), most)
