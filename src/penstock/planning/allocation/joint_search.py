"""Packing by balance and repair: a layout of N slots, or none found.

Bundles go, the largest operators first, the large ones to the least loaded slots (`balanced`); overload above 1 is
repaired by exchanging between slots and by changing sizes, always the change that removes the most overload
(`repaired`); at last bundles that are not needed are dropped (`thinned`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import (
    TOLERANCE,
    covers,
    exceeds,
    first_largest,
    ratio_key,
    tie_key,
    tie_keys,
    whole_down,
    whole_up,
)
from penstock.planning.allocation.contract import hull, segment
from penstock.planning.allocation.joint_problem import JointLayout, Problem, is_right, loads, supplied, use

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


# Number and size of bundles for every operator on N slots: the candidates the packing tries.
#
# Spread over N slots an operator does w/N on each, and the cheapest mix lies between two corners of the hull of its
# points (`penstock.planning.allocation.contract`): some slots with the one, the others with the other.


Counts = list[tuple[int, int]]
"""(point, slots) of one operator."""


Blend = tuple[tuple[float, float], ...]
"""(mixture of CPU and memory to save on, the share of the spread that does), see `Spread.blend`."""


@dataclass(frozen=True, slots=True)
class BundleStyle:
    """`mixed`: several sizes, as the hull suggests, not one for all; `dense`: the min number of bundles, instead of one
    on every slot."""

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
    """Return the bundles of every operator; None if an operator cannot reach its rate on that number of slots."""
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


PAIRS = 20_000
"""Exchanges of two things at once are tried while there are no more than this many of them to look at."""
SIZES = 60_000
"""The same for changing the size of a bundle."""
ROUNDS = 40


def search(problem: Problem, slots: int, cheapest: Blend) -> JointLayout | None:
    """Return a valid layout with `slots` slots, if one of the candidates can be made valid."""
    tried: set[tuple[tuple[tuple[int, int], ...], ...]] = set()
    for style in styles(cheapest, equal=problem.equal):
        counts = composed(problem, slots, style)
        if counts is None:
            return None
        key = tuple(tuple(row) for row in counts)
        if key in tried:
            continue
        tried.add(key)
        layout = balanced(problem, slots, counts)
        if repaired(problem, layout):
            return layout
    return None


def balanced(problem: Problem, slots: int, counts: Sequence[Counts]) -> JointLayout:
    """Return a layout with every operator's bundles, largest first, on the slots with the least on them; operators with
    large bundles first. Fixed threads are dealt evenly, their remainder like a bundle."""
    size = problem.operators
    choice = np.zeros((slots, size), dtype=np.int64)
    held = np.zeros((slots, len(problem.fixed)), dtype=np.int64)
    points = [np.repeat([p for p, _ in row], [n for _, n in row]) for row in counts]
    load = np.array([problem.rates[i] / problem.peak[i, points[i]].sum() for i in range(size)])
    demands = [problem.need[i, points[i]] * load[i] for i in range(size)]
    used = np.zeros((slots, 2))
    for f, fixed in enumerate(problem.fixed):
        held[:, f] = fixed.count // slots
        used += held[:, f, None] * problem.fixed_need[f]
    largest = [float(demand.max(initial=0.0)) for demand in demands]
    largest += [float(problem.fixed_need[f].max(initial=0.0)) for f in range(len(problem.fixed))]
    for item in sorted(range(len(largest)), key=lambda item: -tie_key(largest[item], 1.0)):
        if item >= size:
            f = item - size
            rest = problem.fixed[f].count % slots
            where = np.argsort(tie_keys((used + problem.fixed_need[f]).max(axis=1), 1.0), kind="stable")[:rest]
            held[where, f] += 1
            used[where] += problem.fixed_need[f]
            continue
        demand = demands[item]
        order = np.argsort(-tie_keys(demand.max(axis=1), 1.0), kind="stable")
        where = np.argsort(tie_keys((used + demand.mean(axis=0)).max(axis=1), 1.0), kind="stable")[: len(demand)]
        choice[where, item] = points[item][order]
        used[where] += demand[order]
    return JointLayout(choice, held)


def repaired(problem: Problem, layout: JointLayout) -> bool:
    """Change the layout until every slot is within 1; return False if no change helps any more."""
    if not (loads(problem, layout.choice) <= 1 + TOLERANCE).all():
        return False
    for _ in range(ROUNDS):
        used = use(problem, layout)
        over = _over(used)
        if over.max(initial=0.0) <= TOLERANCE:
            return True
        worst = first_largest(over, 1.0)
        if not _exchange(problem, layout, used, worst) and not _resize(problem, layout, used):
            return False
    return False


def _over(used: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the part above 1, cpu and memory added."""
    above: NDArray[np.float64] = np.maximum(used - 1, 0.0).sum(axis=-1)
    return above


def _exchange(problem: Problem, layout: JointLayout, used: NDArray[np.float64], k: int) -> bool:
    """Exchange between slot k and another: an operator's bundles, or a fixed thread, or two such things at once."""
    size, kinds = problem.operators, len(problem.fixed)
    bundles = problem.need[np.arange(size), layout.choice] * loads(problem, layout.choice)[None, :, None]
    gives = np.where(layout.held[k, :, None] > 0, -problem.fixed_need, 0.0)
    gives = np.broadcast_to(gives, (layout.slots, kinds, 2))
    takes = np.where(layout.held[:, :, None] > 0, problem.fixed_need, 0.0)
    change = np.concatenate([bundles - bundles[k], gives, takes, np.zeros((layout.slots, 1, 2))], axis=1)
    pairs = layout.slots * change.shape[1] ** 2 <= PAIRS
    both = change[:, :, None, :] + (change[:, None, :, :] if pairs else 0.0)
    after = _over(used[k] + both) + _over(used[:, None, None, :] - both)
    gain = _over(used[k]) + _over(used)[:, None, None] - after
    gain[k] = 0.0
    if pairs:
        same = np.arange(change.shape[1])
        gain[:, same, same] = 0.0
    best = np.unravel_index(first_largest(gain, 1.0), gain.shape)
    if gain[best] <= TOLERANCE:
        return False
    other = int(best[0])
    for item in {int(best[1]), int(best[2])} if pairs else {int(best[1])}:
        if item < size:
            layout.choice[[k, other], item] = layout.choice[[other, k], item]
        elif item < size + 2 * kinds:
            f, sign = (item - size) % kinds, -1 if item < size + kinds else 1
            layout.held[k, f] += sign
            layout.held[other, f] -= sign
    return True


def _resize(problem: Problem, layout: JointLayout, used: NDArray[np.float64]) -> bool:
    """Change the size of one bundle, or add or drop one: the change that removes the most overload of all slots."""
    slots = layout.slots
    total = supplied(problem, layout.choice)
    best, change = 0.0, None
    now = float(_over(used).sum())
    for i in range(problem.operators):
        points = [0, *problem.points(i)]
        if slots * slots * len(points) > SIZES:
            continue
        if problem.equal:
            points = [0, int(layout.choice[:, i].max())]
        current = layout.choice[:, i]
        supply = total[i] - problem.peak[i, current][:, None] + problem.peak[i, points]
        with np.errstate(divide="ignore"):
            load = np.where(supply >= problem.rates[i] * (1 - TOLERANCE), problem.rates[i] / supply, np.inf)
        was = problem.need[i, current]
        feasible = np.isfinite(load) & (current[:, None] != np.array(points))
        load = np.where(feasible, load, 1.0)
        rest = used - was * (problem.rates[i] / total[i])
        after = rest + was * load[:, :, None, None]
        ks = np.arange(slots)
        after[ks, :, ks] = rest[:, None, :] + problem.need[i, points] * load[:, :, None]
        gain = np.where(feasible, now - _over(after).sum(axis=-1), -np.inf)
        k, p = np.unravel_index(first_largest(gain, 1.0), gain.shape)
        if exceeds(float(gain[k, p]), best, 1.0):
            best, change = float(gain[k, p]), (int(k), i, points[int(p)])
    if change is None:
        return False
    layout.choice[change[0], change[1]] = change[2]
    return True


def thinned(problem: Problem, layout: JointLayout) -> JointLayout:
    """Return the layout without bundles that are not needed, and without the slots that are then empty."""
    drop_surplus(problem, layout)
    full = layout.choice.any(axis=1) | layout.held.any(axis=1)
    return JointLayout(layout.choice[full], layout.held[full])


def drop_surplus(problem: Problem, layout: JointLayout) -> None:
    """Drop every bundle the others can do without, those that support least first."""
    peak = problem.peak[np.arange(problem.operators), layout.choice]
    slots, operators = np.nonzero(layout.choice)
    order = np.argsort(tie_keys(peak[slots, operators] / problem.peak.max(axis=1)[operators], 1.0), kind="stable")
    for k, i in zip(slots[order].tolist(), operators[order].tolist(), strict=True):
        point = int(layout.choice[k, i])
        left = float(supplied(problem, layout.choice)[i] - problem.peak[i, point])
        if not covers(left, float(problem.rates[i])):
            continue
        layout.choice[k, i] = 0
        if not is_right(problem, layout):
            layout.choice[k, i] = point
