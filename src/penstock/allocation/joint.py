"""Joint: threads, sizes of bundles and slots decided together, over the measured points and both resources.

MBA charges a full bundle a whole slot whatever it uses, and feeds a partial one more than it was charged for. Here a
slot holds bundles of several operators, each with a measured number of threads, and its CPU and memory at the planned
rate are kept at 1 or below as the prediction counts them. The fewest slots come from a search (`joint_search`) between
a lower bound (`penstock.modelling.bounds`) and what MBA with SAM would need; where the search ends above the bound and
the case is small, a mixed integer program (`joint_solver`) is asked whether fewer do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from penstock.allocation.contract import Bundle, Need, OperatorAllocation, Pattern, idle_operator
from penstock.allocation.joint_problem import Fixed, Layout, Problem, is_right, loads
from penstock.allocation.joint_search import repaired, search, thinned
from penstock.allocation.joint_solver import solve, solver_is_installed, variables
from penstock.allocation.published import published
from penstock.modelling.bounds import ModelledDemand, Spread, fewest_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.modelling.model import Model

LARGEST = 128
"""Slots up to which a case is searched whole; larger ones are so many copies of a part this large."""
MOST_VARIABLES = 80
"""Bundles times slots up to which the solver is asked."""

Given = Need | OperatorAllocation


@dataclass(frozen=True, slots=True)
class Joint:
    """Few slots, then few bundles. O(N log N) per candidate and number of slots N up to 128, constant in N beyond."""

    routing: Literal["slot-aware", "shuffle"] = "slot-aware"
    """The router the plan is for; `shuffle` gives all bundles of an operator the same number of threads."""
    solver_nodes: Annotated[int, Field(ge=0)] = 50
    """Nodes of the solver's search tree for each number of slots tried; 0: never ask it."""

    name: ClassVar[str] = "joint"

    def allocate(self, operator: str, rate: float, model: Model) -> OperatorAllocation:
        return self.allocate_together([Need(operator, rate, model)])[0][0]

    def allocate_together(
        self, operators: Sequence[Given]
    ) -> tuple[list[OperatorAllocation], tuple[tuple[int, Pattern], ...]]:
        case = _Case(operators, equal=self.routing == "shuffle")
        bound = case.bound
        copies = max(1, bound // LARGEST)
        part = case.problem(copies)
        layout, how = self._solved(part, case.part_bound(copies), case.order if copies == 1 else None)
        return case.answer(layout, copies, how)

    def _solved(self, problem: Problem, bound: int, sweep: Sequence[tuple[bool, int]] | None) -> tuple[Layout, str]:
        """A right layout with as few slots as were found, and how it was found. `sweep` is SAM's, for the whole."""
        found, how = _searched(problem, bound, Spread(*_demand(problem))), "searched"
        if sweep is not None and not problem.equal and (known := published(problem, sweep)) is not None:
            if known.slots <= found.slots:
                repaired(problem, known)
            if known.slots < found.slots and is_right(problem, known):
                found, how = known, "mba with sam"
        if found.slots > bound and self.solver_nodes and solver_is_installed():
            for slots in range(bound, found.slots):
                if variables(problem, slots) > MOST_VARIABLES:
                    break
                answer = solve(problem, slots, self.solver_nodes)
                if isinstance(answer, Layout):
                    found, how = answer, "solved"
                    break
        return thinned(problem, found), how


def _searched(problem: Problem, bound: int, spread: Spread) -> Layout:
    """Slot by slot upwards from the bound, in strides where many are missing."""
    slots = bound
    step = 0
    while True:
        found = search(problem, slots, spread.scarcest(slots))
        if found is not None:
            return found
        step += 1
        slots += 1 if step < 16 else max(1, slots // 16)


def _demand(problem: Problem) -> tuple[list[ModelledDemand], float, float]:
    return (
        [ModelledDemand(m, float(r)) for m, r in zip(problem.models, problem.rates, strict=True)],
        sum(f.count * f.cpu for f in problem.fixed),
        sum(f.count * f.memory for f in problem.fixed),
    )


class _Case:
    """The operators of a pipeline, sorted into those to decide and those that are given."""

    def __init__(self, operators: Sequence[Given], *, equal: bool) -> None:
        self._operators = operators
        self._equal = equal
        self._needs = [o for o in operators if isinstance(o, Need) and o.rate > 0]
        given = [
            (o.name, count, bundle)
            for o in (_given(o) for o in operators)
            if o is not None
            for count, bundle in o.bundles
        ]
        self._fixed = [entry for entry in given if max(entry[2].cpu, entry[2].memory) <= 1]
        self._too_large = [entry for entry in given if max(entry[2].cpu, entry[2].memory) > 1]

    @property
    def order(self) -> list[tuple[bool, int]]:
        """(whether it has a model, its position among those) in topological order, as SAM sweeps them."""
        names = {need.operator: (True, i) for i, need in enumerate(self._needs)}
        names |= {name: (False, f) for f, (name, _, _) in enumerate(self._fixed)}
        listed = (o.operator if isinstance(o, Need) else o.name for o in self._operators)
        return [names[name] for name in listed if name in names]

    @property
    def bound(self) -> int:
        return self.part_bound(1)

    def part_bound(self, copies: int) -> int:
        return fewest_slots(*_demand(self.problem(copies)))

    def problem(self, copies: int) -> Problem:
        """The part of the case that each of so many equal copies does."""
        return Problem(
            [need.model for need in self._needs],
            [need.rate / copies for need in self._needs],
            [Fixed(count // copies, bundle.cpu, bundle.memory) for _, count, bundle in self._fixed],
            equal=self._equal,
        )

    def answer(
        self, layout: Layout, copies: int, how: str
    ) -> tuple[list[OperatorAllocation], tuple[tuple[int, Pattern], ...]]:
        problem = self.problem(copies)
        patterns: Counter[Pattern] = Counter()
        for row, held in zip(layout.choice.tolist(), layout.held.tolist(), strict=True):
            pattern = [
                (need.operator, need.model.points[p - 1].threads) for need, p in zip(self._needs, row, strict=True) if p
            ]
            pattern += [(name, n) for (name, _, _), n in zip(self._fixed, held, strict=True) if n]
            patterns[tuple(pattern)] += copies
        for name, count, bundle in self._fixed:
            patterns.update(_alone(name, count % copies, bundle))
        for name, count, _ in self._too_large:
            patterns[((name, 1),)] += count
        load = loads(problem, layout.choice)
        decided = {}
        for i, need in enumerate(self._needs):
            chosen = Counter(p for p in layout.choice[:, i].tolist() if p)
            bundles = tuple(
                (
                    copies * chosen[p],
                    Bundle(
                        need.model.points[p - 1].threads,
                        float(load[i] * problem.need[i, p, 0]),
                        float(load[i] * problem.need[i, p, 1]),
                    ),
                )
                for p in sorted(chosen, reverse=True)
            )
            decided[need.operator] = OperatorAllocation(
                need.operator, need.rate, bundles, self._reason(need, bundles, float(load[i]), how)
            )
        allocated = []
        for operator in self._operators:
            given = _given(operator)
            allocated.append(decided[operator.operator] if given is None and isinstance(operator, Need) else given)
        return [operator for operator in allocated if operator is not None], tuple(
            (count, pattern) for pattern, count in patterns.items()
        )

    @staticmethod
    def _reason(need: Need, bundles: Sequence[tuple[int, Bundle]], load: float, how: str) -> str:
        sizes = " and ".join(f"{count} of {bundle.threads}" for count, bundle in bundles)
        return (
            f"bundles of '{need.model.name}' threads, {sizes}, fed {100 * load:.4g} % of what they support for "
            f"{need.rate:g}/s; decided with the slots of all operators ({how})"
        )


def _given(operator: Given) -> OperatorAllocation | None:
    if isinstance(operator, OperatorAllocation):
        return operator
    return None if operator.rate > 0 else idle_operator(operator.operator, operator.rate)


def _alone(name: str, threads: int, bundle: Bundle) -> dict[Pattern, int]:
    """Threads that do not divide into the copies: as many to a slot of their own as fit."""
    size = max(bundle.cpu, bundle.memory)
    fit = max(1, int((1 + 1e-9) / size)) if size * max(threads, 1) > 1 else max(threads, 1)
    slots = {((name, fit),): threads // fit, ((name, threads % fit),): int(threads % fit > 0)}
    return {pattern: count for pattern, count in slots.items() if count}
