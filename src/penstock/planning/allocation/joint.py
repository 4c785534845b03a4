"""Joint: threads, sizes of bundles and slots decided together, over the measured points and both resources.

MBA charges a whole slot for a full bundle, whatever it uses, and routes more to a partial one than it was charged for.
Here a slot holds bundles of several operators, each with a measured number of threads, and its CPU and memory at the
planned rate are kept at 1 or below as the prediction counts them. A search (`joint_search`) minimises the slots between
a lower bound (`fewest_slots`) and those of MBA with SAM; if the search ends above the bound and the case is small, a
mixed integer program (`joint_problem.solve`) is asked for a smaller number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from penstock.base.tolerance import covers, exceeds, settled, tie_key, whole_down
from penstock.modelling.model import Model
from penstock.planning.allocation.contract import (
    CheapestSpread,
    Need,
    OperatorAllocation,
    Pattern,
    ThreadBundle,
    fewest_slots,
    idle_operator,
)
from penstock.planning.allocation.joint_problem import (
    Fixed,
    JointLayout,
    Problem,
    cover,
    is_right,
    loads,
    solve,
    solver_is_installed,
    variables,
)
from penstock.planning.allocation.joint_search import repaired, search, thinned
from penstock.planning.allocation.mba import ModelBased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# The layout of MBA with SAM: an upper bound on the slots of the joint allocator.


MOST_BUNDLES = 2000


def published(problem: Problem, order: Sequence[tuple[bool, int]]) -> JointLayout | None:
    """Full bundles on slots of their own, every other bundle best fit in SAM's sweeps; None if they are too many.

    `order` is that of the sweeps: (has a model, position). A slot may get more than 1: the caller checks it.
    """
    queues: list[tuple[bool, int, list[ThreadBundle | None]]] = []
    for modelled, position in order:
        bundles: list[ThreadBundle | None] = []
        if modelled:
            model, rate = problem.models[position], float(problem.rates[position])
            if rate / model.peak_rate > MOST_BUNDLES:
                return None
            for count, bundle in ModelBased().allocate("", rate, model).bundles:
                bundles += [bundle] * count
        else:
            if problem.fixed[position].count > MOST_BUNDLES:
                return None
            bundles = [None] * problem.fixed[position].count
        queues.append((modelled, position, bundles))
    return _swept(problem, queues)


def _swept(problem: Problem, queues: list[tuple[bool, int, list[ThreadBundle | None]]]) -> JointLayout:
    rows: list[tuple[list[int], list[int], list[float]]] = []

    def opened() -> tuple[list[int], list[int], list[float]]:
        rows.append(([0] * problem.operators, [0] * len(problem.fixed), [1.0, 1.0]))
        return rows[-1]

    for turn in range(max((len(bundles) for _, _, bundles in queues), default=0)):
        for modelled, position, bundles in queues:
            if turn >= len(bundles):
                continue
            bundle = bundles[turn]
            if bundle is not None and bundle.exclusive:
                row, left = opened(), [-1.0, -1.0]
                row[2][:] = left
            else:
                fixed = problem.fixed[position] if bundle is None else bundle
                fits = [r for r in rows if covers(r[2][0], fixed.cpu, 1.0) and covers(r[2][1], fixed.memory, 1.0)]
                row = min(fits, key=lambda r: tie_key(r[2][0] + r[2][1], 1.0)) if fits else opened()
                row[2][0] -= fixed.cpu
                row[2][1] -= fixed.memory
            if modelled and bundle is not None:
                points = problem.models[position].points
                row[0][position] = 1 + next(p for p, point in enumerate(points) if point.threads == bundle.threads)
            else:
                row[1][position] += 1
    return JointLayout(
        np.array([row[0] for row in rows], dtype=np.int64).reshape(len(rows), problem.operators),
        np.array([row[1] for row in rows], dtype=np.int64).reshape(len(rows), len(problem.fixed)),
    )


LARGEST = 20
"""Slots up to which a case is searched whole; larger ones are copies of one part of at most this size."""
SMALLEST = 6
"""Slots a part has at least."""
TRIED = 4
"""Numbers of copies tried, those with the least lost to rounding first."""
MOST_VARIABLES = 80
"""Bundles times slots up to which the solver is asked."""

Given = Need | OperatorAllocation
Answer = tuple[list[OperatorAllocation], tuple[tuple[int, Pattern], ...]]


@dataclass(frozen=True, slots=True)
class JointPacking:
    """Few slots, then few bundles. A search over at most 20 slots, whatever the rate."""

    routing: Literal["slot-aware", "shuffle"] = "slot-aware"
    """The router the plan is for; `shuffle` gives all bundles of an operator the same number of threads."""
    solver_nodes: Annotated[int, Field(ge=0)] = 50
    """Nodes of the solver's search tree for each number of slots tried; 0: never ask it."""

    name: ClassVar[str] = "joint"

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        return self.allocate_together([Need(operator, rate, model)])[0][0]

    def allocate_together(self, operators: Sequence[Given]) -> Answer:
        case = _Case(operators, equal=self.routing == "shuffle")
        bound = case.bound(1)
        tried = []
        for copies in _copies(bound, case):
            part = case.problem(copies)
            layout, how = self._solved(part, case.bound(copies), case.order if copies == 1 else None)
            tried.append(case.answer(layout, [copies] * layout.slots, how))
            if copies > 1 and self.solver_nodes and solver_is_installed():
                covered = self._covered(case.problem(1), loads(part, layout.choice))
                tried += [case.answer(*parts) for parts in covered]
            if _slots(tried[-1]) <= bound:
                break
        best = min(tried, key=_slots)
        if bound > LARGEST and _slots(best) > bound:
            best = min([best, *self._as_published(case)], key=_slots)
        return best

    @staticmethod
    def _as_published(case: _Case) -> list[Answer]:
        """Return MBA with SAM for the whole case, if it is valid: copies of a part can lose a slot to it by
        rounding."""
        problem = case.problem(1)
        known = None if problem.equal else published(problem, case.order)
        if known is None or not is_right(problem, known):
            return []
        return [case.answer(known, [1] * known.slots, "mba with sam")]

    def _covered(self, problem: Problem, load: NDArray[np.float64]) -> list[tuple[JointLayout, list[int], str]]:
        """The whole case by patterns in which bundles carry the loads of a part, where fixed threads are few."""
        if problem.equal or any(fixed.count > 1 for fixed in problem.fixed):
            return []
        patterns = cover(problem, load, self.solver_nodes)
        if patterns is None:
            return []
        choice, counts = patterns
        held = np.zeros((len(choice), len(problem.fixed)), dtype=np.int64)
        return [(JointLayout(choice, held), counts, "solved by patterns")]

    def _solved(
        self, problem: Problem, bound: int, sweep: Sequence[tuple[bool, int]] | None
    ) -> tuple[JointLayout, str]:
        """A right layout with as few slots as were found, and how it was found. `sweep` is SAM's, for the whole."""
        layout, how = _searched(problem, bound, CheapestSpread(*_demand(problem))), "searched"
        if sweep is not None and not problem.equal and (known := published(problem, sweep)) is not None:
            if known.slots <= layout.slots:
                repaired(problem, known)
            if known.slots < layout.slots and is_right(problem, known):
                layout, how = known, "mba with sam"
        if layout.slots > bound and self.solver_nodes and solver_is_installed():
            for slots in range(bound, layout.slots):
                if variables(problem, slots) > MOST_VARIABLES:
                    break
                answer = solve(problem, slots, self.solver_nodes)
                if isinstance(answer, JointLayout):
                    layout, how = answer, "solved"
                    break
        return thinned(problem, layout), how


def _slots(answer: Answer) -> int:
    return sum(count for count, _ in answer[1])


def _copies(bound: int, case: _Case) -> list[int]:
    """Return the numbers of copies to try. Each rounds up to whole slots, so those that lose least by it are first."""
    if bound <= LARGEST:
        return [1]
    most = bound // SMALLEST
    few = range(-(-bound // LARGEST), min(most, -(-bound // LARGEST) + 24) + 1)
    return sorted(few, key=lambda copies: (copies * case.bound(copies), copies))[:TRIED]


def _searched(problem: Problem, bound: int, spread: CheapestSpread) -> JointLayout:
    """Slot by slot upwards from the bound, in strides where many are missing."""
    slots = bound
    step = 0
    while True:
        layout = search(problem, slots, tuple(spread.blend(slots)))
        if layout is not None:
            return layout
        step += 1
        slots += 1 if step < 16 else max(1, slots // 16)


def _demand(problem: Problem) -> tuple[list[Need], float, float]:
    return (
        [Need(model.name, float(rate), model) for model, rate in zip(problem.models, problem.rates, strict=True)],
        sum(f.count * f.cpu for f in problem.fixed),
        sum(f.count * f.memory for f in problem.fixed),
    )


class _Case:
    """The operators of a pipeline, sorted into those to decide and those that are given."""

    def __init__(self, operators: Sequence[Given], *, equal: bool) -> None:
        self._operators = operators
        self._equal = equal
        self._needs = [_settled(o) for o in operators if isinstance(o, Need) and o.rate > 0]
        given = [
            (o.name, count, bundle)
            for o in (_given(o) for o in operators)
            if o is not None
            for count, bundle in o.bundles
        ]
        self._fixed = [entry for entry in given if not exceeds(max(entry[2].cpu, entry[2].memory), 1)]
        self._too_large = [entry for entry in given if exceeds(max(entry[2].cpu, entry[2].memory), 1)]

    @property
    def order(self) -> list[tuple[bool, int]]:
        """(whether it has a model, its position among those) in topological order, as SAM sweeps them."""
        names = {need.operator: (True, i) for i, need in enumerate(self._needs)}
        names |= {name: (False, f) for f, (name, _, _) in enumerate(self._fixed)}
        listed = (o.operator if isinstance(o, Need) else o.name for o in self._operators)
        return [names[name] for name in listed if name in names]

    def bound(self, copies: int) -> int:
        """Return the lower bound of slots of each of `copies` copies."""
        return fewest_slots(*_demand(self.problem(copies)))

    def problem(self, copies: int) -> Problem:
        """Return the part of the case that each of `copies` equal copies carries."""
        return Problem(
            [need.model for need in self._needs],
            [need.rate / copies for need in self._needs],
            [Fixed(count // copies, bundle.cpu, bundle.memory) for _, count, bundle in self._fixed],
            equal=self._equal,
        )

    def answer(self, layout: JointLayout, counts: list[int], how: str) -> Answer:
        """Return the answer with each slot of the layout repeated."""
        problem = self.problem(1)
        times = np.array(counts, dtype=float)
        peak = problem.peak[np.arange(problem.operators), layout.choice]
        load = problem.rates / np.maximum(times @ peak, 1e-300)
        used = (problem.need[np.arange(problem.operators), layout.choice] * load[None, :, None]).sum(axis=1)
        used += layout.held @ problem.fixed_need
        patterns: Counter[Pattern] = Counter()
        rows = [self._pattern(*row) for row in zip(layout.choice.tolist(), layout.held.tolist(), strict=True)]
        for pattern, count in zip(rows, counts, strict=True):
            patterns[pattern] += count - 1
        rest = [count - int(times @ layout.held[:, f]) for f, (_, count, _) in enumerate(self._fixed)]
        patterns.update(self._one_of_each(rows, 1 - used, rest))
        for name, count, _ in self._too_large:
            patterns[((name, 1),)] += count
        rates = {o.operator: o.rate for o in self._operators if isinstance(o, Need)}
        decided = {}
        for i, need in enumerate(self._needs):
            chosen: Counter[int] = Counter()
            for p, count in zip(layout.choice[:, i].tolist(), counts, strict=True):
                chosen[p] += count
            bundles = tuple(
                (
                    chosen[p],
                    ThreadBundle(
                        need.model.points[p - 1].threads,
                        float(load[i] * problem.need[i, p, 0]),
                        float(load[i] * problem.need[i, p, 1]),
                    ),
                )
                for p in sorted(chosen, reverse=True)
                if p
            )
            decided[need.operator] = OperatorAllocation(
                need.operator, rates[need.operator], bundles, self._reason(need, bundles, float(load[i]), how)
            )
        allocated = []
        for operator in self._operators:
            given = _given(operator)
            allocated.append(decided[operator.operator] if given is None and isinstance(operator, Need) else given)
        return [operator for operator in allocated if operator is not None], tuple(
            (count, pattern) for pattern, count in patterns.items() if count
        )

    def _pattern(self, row: list[int], held: list[int]) -> Pattern:
        pattern = [
            (need.operator, need.model.points[p - 1].threads) for need, p in zip(self._needs, row, strict=True) if p
        ]
        return tuple(pattern + [(name, n) for (name, _, _), n in zip(self._fixed, held, strict=True) if n])

    def _one_of_each(self, rows: list[Pattern], left: NDArray[np.float64], rests: list[int]) -> Counter[Pattern]:
        """Return one slot of every kind with the remaining fixed threads: beside its bundles if there is room; the
        others on slots of their own, as many per slot as fit."""
        slots = [(dict(row), list(room)) for row, room in zip(rows, left.tolist(), strict=True)]
        alone: Counter[Pattern] = Counter()
        for (name, _, bundle), threads in zip(self._fixed, rests, strict=True):
            rest = threads
            for row, room in slots:
                fits = rest
                for axis, amount in enumerate((bundle.cpu, bundle.memory)):
                    if exceeds(fits * amount, room[axis], 1.0):
                        fits = whole_down(max(room[axis], 0.0) / amount)
                if fits:
                    row[name] = row.get(name, 0) + fits
                    room[0] -= fits * bundle.cpu
                    room[1] -= fits * bundle.memory
                    rest -= fits
            alone.update(_alone(name, rest, bundle))
        return alone + Counter(tuple(row.items()) for row, _ in slots)

    @staticmethod
    def _reason(need: Need, bundles: Sequence[tuple[int, ThreadBundle]], load: float, how: str) -> str:
        sizes = " and ".join(f"{count} of {bundle.threads}" for count, bundle in bundles)
        return (
            f"bundles of '{need.model.name}' threads, {sizes}, fed {100 * load:.4g} % of what they support for "
            f"{need.rate:g}/s; decided with the slots of all operators ({how})"
        )


def _settled(need: Need) -> Need:
    """The search compares sums everywhere: it starts from numbers that noise does not reach."""
    points = need.model.points
    table = settled(np.array([(point.rate, point.cpu, point.memory) for point in points])).tolist()
    kept = [
        point.model_copy(update={"rate": rate, "cpu": cpu, "memory": memory})
        for point, (rate, cpu, memory) in zip(points, table, strict=True)
    ]
    rate = float(settled(np.array([need.rate]))[0])
    return Need(need.operator, rate, Model(need.model.name, tuple(kept), need.model.measured_on))


def _given(operator: Given) -> OperatorAllocation | None:
    if isinstance(operator, OperatorAllocation):
        return operator
    return None if operator.rate > 0 else idle_operator(operator.operator, operator.rate)


def _alone(name: str, threads: int, bundle: ThreadBundle) -> dict[Pattern, int]:
    """Threads that do not divide into the copies: as many to a slot of their own as fit."""
    size = max(bundle.cpu, bundle.memory)
    fit = max(1, whole_down(1 / size)) if exceeds(size * max(threads, 1), 1) else max(threads, 1)
    slots = {((name, fit),): threads // fit, ((name, threads % fit),): int(threads % fit > 0)}
    return {pattern: count for pattern, count in slots.items() if count}
