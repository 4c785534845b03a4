"""How many pipelines any placement can hold, from what nodes have in all: every placement keeps these sums."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.placement.contract import PlacementRequest

MIXES = (0.0, 0.5, 1.0)
"""Weights tried for every dimension."""


def total_demand(request: PlacementRequest) -> NDArray[np.float64]:
    """What all threads of a pipeline need together; memory they share is left out, so it is a lower bound."""
    rows = [np.multiply(operator.demand, operator.threads) for operator in request.operators]
    return np.sum(rows, axis=0) if rows else np.zeros(0)


def most_that_fit(sizes: NDArray[np.float64], capacity: NDArray[np.float64]) -> int:
    """The most pipelines whose demands (rows) fit into the capacity taken as one.

    A set that fits in every dimension also fits in any weighted sum of them, and of a sum the smallest go in first.
    The least over several weightings bounds the number: for weights w, the k smallest of w.x sum up to w.capacity.
    """
    most = len(sizes)
    share = sizes / np.where(capacity > 0, capacity, 1e-300)
    if share.shape[1] > 4:
        weights = [tuple(row) for row in np.eye(share.shape[1]).tolist()]
    else:
        weights = [mix for mix in product(MIXES, repeat=share.shape[1]) if any(mix)]
    for mix in weights:
        total = np.cumsum(np.sort(share @ np.array(mix)))
        most = min(most, int(np.count_nonzero(total <= sum(mix) * (1 + TOLERANCE))))
    return most


def greedy_orders(sizes: NDArray[np.float64], capacity: NDArray[np.float64]) -> list[list[int]]:
    """Orders in which to take pipelines so that many fit, the most promising first: by rising share of the capacity,
    the largest, the sum, or that of one dimension. Promising is what fits into the capacity taken as one."""
    share = sizes / np.where(capacity > 0, capacity, 1e-300)
    keys: Sequence[NDArray[np.float64]] = (share.max(axis=1, initial=0.0), share.sum(axis=1), *share.T)
    counts: dict[tuple[int, ...], int] = {}
    for key in keys:
        order = np.argsort(key, kind="stable")
        left = np.ones(share.shape[1])
        count = 0
        for position in order.tolist():
            if (share[position] <= left + TOLERANCE).all():
                left = left - share[position]
                count += 1
        counts.setdefault(tuple(order.tolist()), count)
    return [list(order) for order in sorted(counts, key=lambda order: -counts[order])]
