"""How long a tuple takes on so many units while as much arrives as now: what a deadline is held against.

A batch costs something whatever it holds. With a fixed cost f and a load of rho of what the units can do, batches that
follow each other settle where a batch takes as long as what it holds took to arrive:

    t = f + rho * t   =>   t = f / (1 - rho)

A tuple waits for the next batch and then for the whole of it: 2 t at most, which is what is predicted. Where all that
can be done arrives, or more, it is for ever.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def response_seconds(rate: float, capacity: float, batch_cost: float) -> float:
    if capacity <= rate:
        return inf
    return 2 * batch_cost / (1 - rate / capacity)


def units_in_time(
    rate: float, deadline_s: float, batch_cost: float, most: int, rate_on: Callable[[int], float | None]
) -> int:
    """The fewest of at most so many units with which tuples are in time; 0 where none are enough, or nobody knows what
    they do. `rate_on` does not fall as units are added."""

    def in_time(units: int) -> bool:
        capacity = rate_on(units)
        return capacity is not None and response_seconds(rate, capacity, batch_cost) <= deadline_s

    if most < 1 or not in_time(most):
        return 0
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if in_time(middle) else (middle, high)
    return high
