"""What MBA with SAM would do, as a layout: the joint allocator never takes more slots than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.allocation.joint.problem import JointLayout
from penstock.allocation.mba import ModelBased
from penstock.dataflow.tolerance import covers, tie_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.allocation.contract import ThreadBundle
    from penstock.allocation.joint.problem import Problem

MOST_BUNDLES = 2000


def published(problem: Problem, order: Sequence[tuple[bool, int]]) -> JointLayout | None:
    """Full bundles on slots of their own, every other bundle best fit in SAM's sweeps; None where they are many.

    `order` is that of the sweeps: (has a model, position). It may ask slots for more than 1: the caller looks.
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
