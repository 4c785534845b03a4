"""The joint problem in arrays: which bundle of which operator sits on which slot, and what every slot then carries.

A slot holds at most one bundle of an operator, with a measured number of threads. With x the choice,

    S_i = sum over slots of I_i(x_ki),    load_i = w_i / S_i <= 1,    use_k = sum_i load_i (C, M)_i(x_ki) + fixed

because slot-aware routing feeds every bundle of an operator the same share of its peak. A choice is right when every
load and every use is at most 1: exactly what the prediction of the plan will say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.modelling.model import Model


@dataclass(frozen=True, slots=True)
class Fixed:
    """`count` threads that each need (cpu, memory) on one slot, whatever the rate."""

    count: int
    cpu: float
    memory: float


class Problem:
    """Operators with models and rates above 0, and fixed threads."""

    def __init__(
        self, models: Sequence[Model], rates: Sequence[float], fixed: Sequence[Fixed], *, equal: bool = False
    ) -> None:
        """`equal`: all bundles of an operator have the same number of threads, so that dealing evenly to threads
        (shuffle) feeds slots just as slot-aware routing does."""
        self.models = models
        self.rates = np.array(rates, dtype=float)
        self.fixed = fixed
        self.equal = equal
        most = max((len(model.points) for model in models), default=0)
        self.peak = np.zeros((len(models), most + 1))
        """I by operator and point; point 0 is "not on this slot"."""
        self.need = np.zeros((len(models), most + 1, 2))
        """(C, M) by operator and point."""
        for i, model in enumerate(models):
            for p, point in enumerate(model.points, start=1):
                self.peak[i, p] = point.rate
                self.need[i, p] = point.cpu, point.memory
        self.fixed_need = np.array([(f.cpu, f.memory) for f in fixed], dtype=float).reshape(-1, 2)

    @property
    def operators(self) -> int:
        return len(self.models)

    def points(self, operator: int) -> range:
        return range(1, len(self.models[operator].points) + 1)


@dataclass
class JointLayout:
    """`choice[k, i]` is the point of operator i on slot k (0: none), `held[k, f]` the threads of fixed f there."""

    choice: NDArray[np.int64]
    held: NDArray[np.int64]

    @property
    def slots(self) -> int:
        return len(self.choice)


def supplied(problem: Problem, choice: NDArray[np.int64]) -> NDArray[np.float64]:
    """S, what all bundles of every operator support together."""
    total: NDArray[np.float64] = problem.peak[np.arange(problem.operators), choice].sum(axis=0)
    return total


def loads(problem: Problem, choice: NDArray[np.int64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        load: NDArray[np.float64] = problem.rates / supplied(problem, choice)
    return load


def use(problem: Problem, layout: JointLayout) -> NDArray[np.float64]:
    """(cpu, memory) of every slot."""
    load = np.minimum(loads(problem, layout.choice), 1e18)
    bundles = problem.need[np.arange(problem.operators), layout.choice] * load[None, :, None]
    total: NDArray[np.float64] = bundles.sum(axis=1) + layout.held @ problem.fixed_need
    return total


def is_right(problem: Problem, layout: JointLayout) -> bool:
    """Every load and every use at most 1."""
    most = 1 + TOLERANCE
    return bool((loads(problem, layout.choice) <= most).all() and (use(problem, layout) <= most).all())


# The joint problem with N slots as a mixed integer program, solved by HiGHS through scipy.
#
# x[k,i,p] = 1: slot k has the bundle of point p of operator i. load_i is a variable, and u[k,i,p] = load_i x[k,i,p] is
# made linear by `u <= x`, `u <= load_i`, `u >= load_i + x - 1`:
#
# sum_kp I_ip u_kip = w_i,    sum_p x_kip <= 1,    sum_ip (C, M)_ip u_kip + fixed <= 1 for every slot
#
# Nothing is minimised: does a layout exist? How long it looks is counted in nodes of the search tree, so that the
# answer does not depend on the machine; the time limit is there so that a bad case ends.


MOST_SECONDS = 20.0
MOST_PATTERNS = 20_000
"""Ways to fill a slot up to which all are listed."""


class NoLayout(Enum):
    IMPOSSIBLE = "no layout exists"
    UNKNOWN = "the search ended without an answer"


def solver_is_installed() -> bool:
    """scipy comes with `pip install 'penstock[solve]'`; without it the joint allocator searches only."""
    try:
        import scipy.optimize  # noqa: F401, PLC0415 - heavy, and optional
    except ImportError:
        return False
    return True


def variables(problem: Problem, slots: int) -> int:
    """Bundles a slot can have, times slots."""
    return slots * sum(len(problem.points(i)) for i in range(problem.operators))


def solve(problem: Problem, slots: int, nodes: int) -> JointLayout | NoLayout:
    """Return a valid layout of exactly `slots` slots, a proof that there is none, or neither within `nodes`."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - heavy, and optional
    from scipy.sparse import csr_array  # noqa: PLC0415

    rows = _Rows(problem, slots)
    matrix = csr_array((rows.values, (rows.row, rows.column)), shape=(len(rows.low), rows.size))
    result: Any = milp(
        np.zeros(rows.size),
        constraints=LinearConstraint(matrix, rows.low, rows.high),
        integrality=rows.whole,
        bounds=Bounds(np.zeros(rows.size), rows.most),
        options={"node_limit": nodes, "time_limit": MOST_SECONDS},
    )
    if result.x is None:
        return NoLayout.IMPOSSIBLE if result.status == 2 else NoLayout.UNKNOWN
    layout = rows.layout(result.x)
    return layout if is_right(problem, layout) else NoLayout.UNKNOWN


def cover(problem: Problem, load: NDArray[np.float64], nodes: int) -> tuple[NDArray[np.int64], list[int]] | None:
    """Return slot patterns and their counts that cover all rates with the min number of slots, if every bundle carries
    at most the given load; None if the patterns are too many, or no solution was found.

    `min sum_p x_p` with `sum_p load_i I_i(p) x_p >= w_i`, x whole, over the ways p to fill a slot within 1.
    """
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415 - heavy, and optional

    ways = np.zeros((1, 0), dtype=np.int64)
    used = np.zeros((1, 2))
    for i in range(problem.operators):
        points = [0, *problem.points(i)]
        ways = np.hstack([np.repeat(ways, len(points), axis=0), np.tile(points, len(ways))[:, None]])
        used = np.repeat(used, len(points), axis=0) + np.tile(problem.need[i, points] * load[i], (len(used), 1))
        fits = used.max(axis=1) <= 1
        ways, used = ways[fits], used[fits]
        if len(ways) > MOST_PATTERNS:
            return None
    supply = problem.peak[np.arange(problem.operators), ways] * (load / problem.rates)
    result: Any = milp(
        np.ones(len(ways)),
        constraints=LinearConstraint(supply.T, np.ones(problem.operators), np.inf),
        integrality=np.ones(len(ways)),
        options={"node_limit": nodes, "time_limit": MOST_SECONDS},
    )
    if result.x is None:
        return None
    counts = np.rint(result.x).astype(np.int64)
    if (counts @ supply < 1 - TOLERANCE).any():
        return None
    taken = counts > 0
    return ways[taken], counts[taken].tolist()


class _Rows:
    """The program, row by row. Variables: x, then u, then the threads of fixed demand by slot, then the loads."""

    def __init__(self, problem: Problem, slots: int) -> None:
        self.problem, self.slots = problem, slots
        self.bundles = [(i, p) for i in range(problem.operators) for p in problem.points(i)]
        width, kinds = len(self.bundles), len(problem.fixed)
        self._u = slots * width
        self._held = 2 * slots * width
        self._load = self._held + slots * kinds
        self._size = self._load + problem.operators
        self.size = self._size + (width if problem.equal else 0)
        self.whole = np.zeros(self.size)
        self.whole[: self._u] = 1
        self.whole[self._held : self._load] = 1
        self.whole[self._size :] = 1
        self.most = np.ones(self.size)
        self.most[self._held : self._load] = np.tile([fixed.count for fixed in problem.fixed], slots)
        self.values: list[float] = []
        self.row: list[int] = []
        self.column: list[int] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self._operators()
        self._products()
        self._limits()
        self._order()

    def layout(self, x: Any) -> JointLayout:
        width, kinds = len(self.bundles), len(self.problem.fixed)
        choice = np.zeros((self.slots, self.problem.operators), dtype=np.int64)
        taken = np.asarray(x)[: self._u].reshape(self.slots, width) > 0.5
        for b, (i, p) in enumerate(self.bundles):
            choice[taken[:, b], i] = p
        held = np.rint(np.asarray(x)[self._held : self._load].reshape(self.slots, kinds)).astype(np.int64)
        return JointLayout(choice, held)

    def _add(self, entries: list[tuple[int, float]], low: float, high: float) -> None:
        for column, value in entries:
            self.row.append(len(self.low))
            self.column.append(column)
            self.values.append(value)
        self.low.append(low)
        self.high.append(high)

    def _x(self, k: int, b: int) -> int:
        return k * len(self.bundles) + b

    def _operators(self) -> None:
        problem = self.problem
        for i in range(problem.operators):
            own = [(b, p) for b, (o, p) in enumerate(self.bundles) if o == i]
            rate = float(problem.rates[i])
            self._add(
                [
                    (self._u + self._x(k, b), float(problem.peak[i, p]) / rate)
                    for k in range(self.slots)
                    for b, p in own
                ],
                1.0,
                1.0,
            )
            for k in range(self.slots):
                self._add([(self._x(k, b), 1.0) for b, _ in own], 0.0, 1.0)
            if problem.equal:
                self._add([(self._size + b, 1.0) for b, _ in own], 1.0, 1.0)
                for k in range(self.slots):
                    for b, _ in own:
                        self._add([(self._x(k, b), 1.0), (self._size + b, -1.0)], -1.0, 0.0)
        for f, fixed in enumerate(problem.fixed):
            column = [self._held + k * len(problem.fixed) + f for k in range(self.slots)]
            self._add([(c, 1.0) for c in column], fixed.count, fixed.count)

    def _products(self) -> None:
        for k in range(self.slots):
            for b, (i, _) in enumerate(self.bundles):
                x, u, load = self._x(k, b), self._u + self._x(k, b), self._load + i
                self._add([(u, 1.0), (x, -1.0)], -1.0, 0.0)
                self._add([(u, 1.0), (load, -1.0)], -1.0, 0.0)
                self._add([(u, 1.0), (load, -1.0), (x, -1.0)], -1.0, 1.0)

    def _limits(self) -> None:
        problem = self.problem
        for k in range(self.slots):
            for axis in range(2):
                entries = [
                    (self._u + self._x(k, b), float(problem.need[i, p, axis])) for b, (i, p) in enumerate(self.bundles)
                ]
                entries += [
                    (self._held + k * len(problem.fixed) + f, float(problem.fixed_need[f, axis]))
                    for f in range(len(problem.fixed))
                ]
                self._add(entries, 0.0, 1.0)

    def _order(self) -> None:
        """Slots are alike: the first operator's points do not rise from slot to slot, which spares their orders."""
        own = [(b, p) for b, (i, p) in enumerate(self.bundles) if i == 0]
        for k in range(self.slots - 1):
            entries = [(self._x(k, b), float(p)) for b, p in own] + [(self._x(k + 1, b), -float(p)) for b, p in own]
            self._add(entries, 0.0, np.inf)
