"""A backlog, and how long it will last."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.control.elasticity.memory import Memory, Observed
    from penstock.control.elasticity.options import ElasticOptions


def catch_up_seconds(backlog: float, rate: float, capacity: float) -> float:
    """backlog / (capacity - rate); for ever where what arrives is all that can be done."""
    if backlog <= 0:
        return 0.0
    return backlog / (capacity - rate) if capacity > rate else inf


def wait_seconds(backlog: float, capacity: float) -> float:
    """How long the newest tuple waits for those before it."""
    if backlog <= 0:
        return 0.0
    return backlog / capacity if capacity > 0 else inf


def wait_after(backlog: float, rate: float, capacity: float, seconds: float) -> float:
    """How long the newest tuple waits after so many more seconds."""
    return wait_seconds(backlog + (rate - capacity) * seconds, capacity)


def rate_to_catch_up(backlog: float, rate: float, seconds: float, change_seconds: float) -> float:
    """What must be done per second so that the backlog is gone in `seconds` after the change, which takes
    `change_seconds` in which at worst nothing is done:  rate + (backlog + rate * change) / seconds"""
    return rate + (backlog + rate * change_seconds) / seconds


def seconds_with_change(backlog: float, rate: float, capacity: float, then: float, change_seconds: float) -> float:
    """How long a backlog lasts where `capacity` becomes `then` after the change, and it is worked on meanwhile:

    change + (backlog + (rate - capacity) * change) / (then - rate)
    """
    at_change = max(0.0, backlog + (rate - capacity) * change_seconds)
    return change_seconds + catch_up_seconds(at_change, rate, then)


# Response time on a number of units at the current load, to be compared with a deadline.
#
# A batch has a fixed cost, however large it is. With a fixed cost f and a utilisation of rho, batches that follow each
# other settle when a batch takes as long as its content took to arrive:
#
# t = f + rho * t   =>   t = f / (1 - rho)
#
# A tuple waits for the next batch and then for the whole of it: at most 2 t, which is the prediction. It is infinite if
# the load reaches the capacity.


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


# When a change pays: the waste so far against the cost of a change, with waits that double.
#
# A change costs the work not done while it happens, and the disturbance: twenty changes a day are too many. Waste adds
# up while fewer units are needed than there are; a change pays once the waste has reached its cost (waiting that long
# costs at most twice the optimum with a known future).


MOST_DOUBLINGS = 4


def change_seconds(memory: Memory) -> float:
    return memory.change_seconds.value if memory.change_seconds.readings else memory.first_change


def cost_of_change(memory: Memory, options: ElasticOptions, units: int) -> float:
    """Unit-seconds: units * (how long a change takes + what a change is worth * 2^doublings)"""
    return units * (change_seconds(memory) + options.worth_seconds * float(1 << memory.doublings))


def doublings_after(memory: Memory, options: ElasticOptions, now: float, *, grows: bool) -> int:
    """One more after a change of direction that came before the last change had paid for itself, one less after one
    that had."""
    last = memory.last
    if last is None or (last.after > last.before) == grows:
        return memory.doublings
    saved = abs(last.after - last.before) * (now - last.at)
    if saved < max(last.before, last.after) * options.worth_seconds:
        return min(MOST_DOUBLINGS, memory.doublings + 1)
    return max(0, memory.doublings - 1)


# Effect of the last change: if a larger size processes no more, size is not the bottleneck.


SETTLE_SECONDS = 40.0
GIVEN_UP_SECONDS = 3600.0
"""So long no more growth is tried from a size that gained nothing."""


def judged(memory: Memory, observed: Observed, expected_gain: float, options: ElasticOptions, now: float) -> Memory:
    """Once, when the units have come and had time: `expected_gain` is what the models promised in tuples/s.

    gain = rate done now - rate done before;  no effect where there is still a backlog and gain < no_effect * promised
    """
    last = memory.last
    if last is None or last.judged or last.after <= last.before:
        return memory
    if observed.held < last.after or now - last.at < change_seconds(memory) + SETTLE_SECONDS:
        return memory
    done = observed.processed_rate or 0.0
    gain = done - last.rate_before
    memory = memory._replace(last=replace(last, judged=True))
    waits = observed.backlog > done
    if waits and gain < options.no_effect * expected_gain:
        return memory._replace(ineffective_until=now + GIVEN_UP_SECONDS, ineffective_at=last.after)
    return memory


def may_grow(memory: Memory, asked: int, now: float) -> bool:
    return memory.ineffective_until is None or now >= memory.ineffective_until or asked < memory.ineffective_at
