"""What MBA with SAM would do, as a layout: the joint allocator never takes more slots than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.allocation.joint_problem import Layout
from penstock.allocation.mba import ModelBased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.allocation.contract import Bundle
    from penstock.allocation.joint_problem import Problem

MOST_BUNDLES = 2000
_SLACK = 1e-9


def published(problem: Problem, order: Sequence[tuple[bool, int]]) -> Layout | None:
    """Full bundles on slots of their own, every other bundle best fit in SAM's sweeps; None where they are many.

    `order` is that of the sweeps: (has a model, position). It may ask slots for more than 1: the caller looks.
    """
    queues: list[tuple[bool, int, list[Bundle | None]]] = []
    for modelled, position in order:
        bundles: list[Bundle | None] = []
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


def _swept(problem: Problem, queues: list[tuple[bool, int, list[Bundle | None]]]) -> Layout:
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
                fits = [r for r in rows if r[2][0] >= fixed.cpu - _SLACK and r[2][1] >= fixed.memory - _SLACK]
                row = min(fits, key=lambda r: r[2][0] + r[2][1]) if fits else opened()
                row[2][0] -= fixed.cpu
                row[2][1] -= fixed.memory
            if modelled and bundle is not None:
                points = problem.models[position].points
                row[0][position] = 1 + next(p for p, point in enumerate(points) if point.threads == bundle.threads)
            else:
                row[1][position] += 1
    return Layout(
        np.array([row[0] for row in rows], dtype=np.int64).reshape(len(rows), problem.operators),
        np.array([row[1] for row in rows], dtype=np.int64).reshape(len(rows), len(problem.fixed)),
    )
