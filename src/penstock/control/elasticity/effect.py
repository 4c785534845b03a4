"""Whether the last change did anything: a size that grew and does no more is not what is short."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.elasticity.waiting import change_seconds

if TYPE_CHECKING:
    from penstock.control.elasticity.memory import Memory
    from penstock.control.elasticity.options import ElasticOptions
    from penstock.control.elasticity.verdict import Observed

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
