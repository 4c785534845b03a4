"""The contract of allocation policies: the threads and slots of each operator. Also a lower bound of the slots of any
answer."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from penstock.base.tolerance import TOLERANCE, covers, exceeds, ratio_key, tie_key, whole_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.modelling.model import Model
    from penstock.modelling.task_profile import TaskProfile, Traffic


Pattern = tuple[tuple[str, int], ...]
"""Contents of one slot: (operator, threads)."""


@dataclass(frozen=True, slots=True)
class ThreadBundle:
    """Threads of one operator that go to one slot together, with their demand there (1.0 = the slot)."""

    threads: int
    cpu: float
    memory: float
    exclusive: bool = False
    """The slot takes nothing else, not even a bundle that needs nothing."""


@dataclass(frozen=True, slots=True)
class OperatorAllocation:
    """Threads of one operator and the bundles they come in, in the order they are placed."""

    name: str
    rate: float
    bundles: tuple[tuple[int, ThreadBundle], ...]
    """(how many, which): equal bundles are counted, not listed."""
    reason: str
    is_end: bool = False
    """A source or sink with a fixed demand: published slot counts leave these out."""
    moving_cpu: float = 0.0
    """Part of `cpu` that disappears if all neighbours are on its node. The slots needed do not count it, because the
    placer decides how much of it remains."""

    @property
    def threads(self) -> int:
        return sum(count * bundle.threads for count, bundle in self.bundles)

    @property
    def cpu(self) -> float:
        return sum(count * bundle.cpu for count, bundle in self.bundles)

    @property
    def memory(self) -> float:
        return sum(count * bundle.memory for count, bundle in self.bundles)


def slots_needed(cpu: float, memory: float) -> int:
    """`max(ceil(cpu), ceil(memory))`, forgiving what rounding adds to a whole number."""
    return max(whole_up(cpu), whole_up(memory))


@dataclass(frozen=True, slots=True)
class Allocation:
    """The answer for a whole pipeline, operators in topological order."""

    allocator: str
    operators: tuple[OperatorAllocation, ...]
    notes: tuple[str, ...] = ()
    """Notes for a reader of the plan."""
    patterns: tuple[tuple[int, Pattern], ...] = ()
    """(number of slots, contents of each), if the allocator decided them; most leave them to the placer."""

    def operator(self, name: str) -> OperatorAllocation:
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def slots(self) -> int:
        """Slots without sources and sinks of fixed demand, as the documents count."""
        inner = [operator for operator in self.operators if not operator.is_end]
        return slots_needed(sum(o.cpu - o.moving_cpu for o in inner), sum(o.memory for o in inner))

    @property
    def slots_with_sources_and_sinks(self) -> int:
        cpu = sum(o.cpu - o.moving_cpu for o in self.operators)
        needed = slots_needed(cpu, sum(o.memory for o in self.operators))
        return max(needed, sum(count for count, _ in self.patterns))


def idle_operator(name: str, rate: float) -> OperatorAllocation:
    """One thread that needs nothing: an operator that receives nothing must still exist to be run."""
    return OperatorAllocation(name, rate, ((1, ThreadBundle(1, 0.0, 0.0)),), "receives nothing: one idle thread")


class Allocator(Protocol):
    """Decides the threads of ONE operator with a model; the planner calls it once per operator.

    `rate` is the operator's input rate, at least 0 and finite. The answer's threads must be enough for it by the
    policy's own rule. Pure: same input, same answer.
    """

    name: ClassVar[str]

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation: ...


@runtime_checkable
class ProfileAllocator(Allocator, Protocol):
    """An allocator that decides by the cost of a tuple. It is called with task profiles; an operator that has only a
    slot model gets the costs of that model's single thread."""

    def allocate_profiled(
        self, operator: str, traffic: Traffic, profile: TaskProfile, slot_memory_mb: float
    ) -> OperatorAllocation: ...


@runtime_checkable
class NodeAllocator(Allocator, Protocol):
    """An allocator whose threads depend on how many nodes there are."""

    def on_nodes(self, nodes: int) -> Allocator:
        """Return the allocator for a cluster of `nodes` nodes."""
        ...


@runtime_checkable
class ElasticAllocator(Allocator, Protocol):
    """An allocator that changes the threads of a running pipeline and does not choose them anew."""

    def beside(self, threads: Mapping[str, int]) -> Allocator:
        """Return the allocator for a pipeline that has this number of threads of each operator."""
        ...


@dataclass(frozen=True, slots=True)
class Need:
    """An operator with a model and the rate it must do."""

    operator: str
    rate: float
    model: Model


@runtime_checkable
class JointAllocator(Allocator, Protocol):
    """An allocator that decides for all operators together, and what every slot holds.

    `operators` come in topological order, those whose bundles are given (sources, sinks, declared demands) as they
    are; the answer has all of them in the same order, and patterns that hold every one of their threads.
    """

    def allocate_together(
        self, operators: Sequence[Need | OperatorAllocation]
    ) -> tuple[list[OperatorAllocation], tuple[tuple[int, Pattern], ...]]: ...


# A lower bound on slots: no allocation that keeps every slot within its CPU and memory needs fewer than this.
#
# A slot whose bundle of operator i has t threads does any rate r <= I(t) at a cost of r*C(t)/I(t). So whatever a slot
# does for i, (rate, cost) is on or above g_i, the lower convex hull of (0, 0) and the measured (I(t), C(t)); no slot
# exceeds the peak rate. Over N slots that share the rates w_i, convexity gives a total cost of at least
# `sum_i N g_i(w_i / N)`, and N slots offer N: N is too small if `sum_i g_i(w_i / N) > 1`. The same holds for memory,
# and for any mixture `h C + (1 - h) M`. Fixed demands f add f / N. The left side falls as N grows, so bisection finds
# the smallest N that passes for all mixtures.
#
# With N fixed, the left side F(h) is a minimum of linear functions of h, so it is concave: the cheapest way of doing
# the rates at one h costs (c, m), and `h c + (1 - h) m` is a line on or above F everywhere. The crossing of the lines
# of both sides is the next h to look at, until a crossing is at most 1 (N passes) or F is above 1 (it does not).
# This is the linear program "spread the measured points over N slots" by its dual, without a solver.


_MOST_CROSSINGS = 40
"""Each crossing removes a line; models have few points, so a handful is usual."""


def fewest_slots(modelled: Sequence[Need], fixed_cpu: float, fixed_memory: float, *, at_least: int = 1) -> int:
    """The lower bound on slots; `fixed_*` is what operators without a model need in all, and `at_least` is known
    already."""
    spread = CheapestSpread(modelled, fixed_cpu, fixed_memory)
    low = high = max(at_least, 1)
    while not spread.enough(high):
        low, high = high + 1, high * 2
    return low + bisect_left(range(low, high), x=True, key=spread.enough)


@dataclass(frozen=True, slots=True)
class Corner:
    """A corner of a hull: a measured point (`index` in the model's points; -1 is the origin) and its mixed cost."""

    rate: float
    cost: float
    index: int


def hull(model: Model, mixture: float) -> list[Corner]:
    """The lower convex hull of (0, 0) and (I(t), h C(t) + (1 - h) M(t)), up to the peak rate."""
    corners = sorted(
        (
            Corner(point.rate, mixture * point.cpu + (1 - mixture) * point.memory, index)
            for index, point in enumerate(model.points)
        ),
        key=lambda corner: (ratio_key(corner.rate), tie_key(corner.cost, 1.0), corner.index),
    )
    kept = [Corner(0.0, 0.0, -1)]
    for corner in corners:
        if not exceeds(corner.rate, kept[-1].rate):
            continue
        while len(kept) >= 2 and _turns_down(kept[-2], kept[-1], corner):
            kept.pop()
        kept.append(corner)
    return kept


def segment(corners: Sequence[Corner], rate: float) -> tuple[Corner, Corner, float] | None:
    """The two corners a rate lies between, and its share of the way to the second; None above the peak."""
    if exceeds(rate, corners[-1].rate):
        return None
    for left, right in pairwise(corners):
        if rate <= right.rate:
            return left, right, (rate - left.rate) / (right.rate - left.rate)
    return corners[-2], corners[-1], 1.0


class CheapestSpread:
    """Rates and fixed demands spread evenly over any number of slots: what each slot then costs at the least."""

    def __init__(self, modelled: Sequence[Need], fixed_cpu: float, fixed_memory: float) -> None:
        self._modelled = [demand for demand in modelled if demand.rate > 0]
        self._fixed = (fixed_cpu, fixed_memory)
        self._hulls: dict[float, list[list[Corner]]] = {}

    def enough(self, slots: int) -> bool:
        """Return whether no mixture of CPU and memory proves that `slots` slots are too few."""
        return self.mixture(slots) is None

    def mixture(self, slots: int) -> float | None:
        """Return the mixture that proves that `slots` slots are too few; None if there is none."""
        (low, low_line), (high, high_line) = ((h, self._line(h, slots)) for h in (0.0, 1.0))
        for h, line in ((low, low_line), (high, high_line)):
            if _on(line, h) > 1 + TOLERANCE:
                return h
        for _ in range(_MOST_CROSSINGS):
            h = _crossing(low_line, high_line)
            if not low < h < high or _on(low_line, h) <= 1 + TOLERANCE:
                return None
            line = self._line(h, slots)
            if _on(line, h) > 1 + TOLERANCE:
                return h
            if line[0] > line[1]:
                low, low_line = h, line
            else:
                high, high_line = h, line
        return None

    def blend(self, slots: int) -> list[tuple[float, float]]:
        """Return mixtures with their shares in the cheapest spread over `slots` slots, CPU and memory both counted.

        If both are scarce that is a blend of two: one saves memory, the other CPU, and their shares make the slots use
        as much of the one as of the other.
        """
        low, high = (0.0, self._line(0.0, slots)), (1.0, self._line(1.0, slots))
        if math.isinf(low[1][0]) or low[1][0] <= low[1][1]:
            return [(0.0, 1.0)]
        if high[1][0] >= high[1][1]:
            return [(1.0, 1.0)]
        for _ in range(_MOST_CROSSINGS):
            h = _crossing(low[1], high[1])
            line = self._line(h, slots)
            if not low[0] < h < high[0] or _on(line, h) >= _on(low[1], h) - TOLERANCE:
                break
            low, high = ((h, line), high) if line[0] > line[1] else (low, (h, line))
        cpu_above, memory_above = low[1][0] - low[1][1], high[1][1] - high[1][0]
        share = memory_above / (cpu_above + memory_above)
        return [(low[0], share), (high[0], 1 - share)]

    def _line(self, mixture: float, slots: int) -> tuple[float, float]:
        """(cpu, memory) of one slot in the cheapest spread at a mixture; infinite above a peak."""
        if mixture not in self._hulls:
            self._hulls[mixture] = [hull(demand.model, mixture) for demand in self._modelled]
        cpu, memory = self._fixed[0] / slots, self._fixed[1] / slots
        for demand, corners in zip(self._modelled, self._hulls[mixture], strict=True):
            between = segment(corners, demand.rate / slots)
            if between is None:
                return math.inf, math.inf
            left, right, share = between
            for corner, part in ((left, 1 - share), (right, share)):
                if corner.index >= 0:
                    point = demand.model.points[corner.index]
                    cpu += part * point.cpu
                    memory += part * point.memory
        return cpu, memory


def _turns_down(a: Corner, b: Corner, c: Corner) -> bool:
    """Whether b lies on or above the line from a to c, so that the hull passes below it."""
    return covers((b.cost - a.cost) * (c.rate - b.rate), (c.cost - b.cost) * (b.rate - a.rate), scale=c.rate)


def _on(line: tuple[float, float], mixture: float) -> float:
    """`h c + (1 - h) m`, where infinity times 0 is still too much."""
    return math.inf if math.isinf(line[0]) else mixture * line[0] + (1 - mixture) * line[1]


def _crossing(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The h at which two lines `h c + (1 - h) m` are equal."""
    slope = (a[0] - a[1]) - (b[0] - b[1])
    return (b[1] - a[1]) / slope if abs(slope) > 1e-15 else math.nan
