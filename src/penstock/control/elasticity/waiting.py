"""When a change is worth it: what is wasted now against what a change costs, and waits that double.

A change costs the work that is not done while it happens, and the trouble of every change: nobody wants twenty a day.
What is wasted is added up while less is needed than there is; it pays to change when so much was wasted as the change
costs (who waits that long never pays more than twice what one who knows the future pays).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.control.elasticity.memory import Memory
    from penstock.control.elasticity.options import ElasticOptions

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
