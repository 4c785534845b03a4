"""The joint problem in arrays: which bundle of which operator sits on which slot, and what every slot then carries.

A slot holds at most one bundle of an operator, with a measured number of threads. With x the choice,

    S_i = sum over slots of I_i(x_ki),    load_i = w_i / S_i <= 1,    use_k = sum_i load_i (C, M)_i(x_ki) + fixed

because slot-aware routing feeds every bundle of an operator the same share of its peak. A choice is right when every
load and every use is at most 1: exactly what the prediction of the plan will say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE

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
