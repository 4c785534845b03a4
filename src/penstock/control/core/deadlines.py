"""Deadlines in a division: a pipeline's latency target against the response time predicted for its share, from the load
it has now and from what was learned of its batches."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.control.core.outcome import Rejected
from penstock.control.elasticity.response import response_seconds, units_in_time
from penstock.control.learning.learned import UNKNOWN
from penstock.control.learning.parts import BATCH_COST

if TYPE_CHECKING:
    from penstock.control.core.division import Division
    from penstock.control.core.records import PipelineRecord
    from penstock.control.core.turn import Turn
    from penstock.control.learning.learned import Learned

STEADY = 0.95
"""Of the load: so much less is the same load still."""


def in_time(turn: Turn, record: PipelineRecord) -> int:
    """Of what it desires, the fewest units that keep its latency target; 0 where it has none, where nobody knows its
    load or what units do, and where all it desires is not enough."""
    deadline_ms, rate = record.target.latency_ms, _load(record)
    if deadline_ms is None or rate is None:
        return 0
    cost, has = _batch_cost(turn, record)[0], turn.state.units(record.assigned)

    def needed(load: float) -> int:
        return units_in_time(
            load, deadline_ms / 1000, cost, record.desired, lambda units: _capacity(turn, record, units)
        )

    units = needed(rate)
    # what it has is not changed for a load that only swings
    return has if has < units and 0 < needed(STEADY * rate) <= has else units


def response(turn: Turn, record: PipelineRecord, units: int) -> dict[str, Any]:
    """What is expected of so many units: the response time, whether it is in time, and what that was worked out from.
    Nothing where there is no deadline, or no load is known."""
    deadline_ms, rate = record.target.latency_ms, _load(record)
    capacity = _capacity(turn, record, units)
    if deadline_ms is None or rate is None or capacity is None or not units:
        return {}
    cost, cost_from = _batch_cost(turn, record)
    seconds = response_seconds(rate, capacity, cost)
    return {
        "response_s": seconds if isfinite(seconds) else None,
        "in_time": seconds <= deadline_ms / 1000,
        "batch_cost": cost_from,
    }


def too_late(turn: Turn, name: str, division: Division) -> tuple[Rejected, ...]:
    """What the policy alone would have given it, and whose deadline stood against that."""
    alone = division.alone.get(name)
    if alone is None or alone == turn.state.units(division.slots[name]):
        return ()
    if name not in division.late:
        whose = ", ".join(f"'{late}'" for late in division.late)
        return (Rejected(f"{alone}, as the policy alone divides", f"then {whose} would miss its deadline"),)
    record = turn.pipelines[name]
    rate, capacity = _load(record) or 0.0, _capacity(turn, record, alone) or 0.0
    seconds = response_seconds(rate, capacity, _batch_cost(turn, record)[0])
    takes = f"{seconds:.3g} s" if isfinite(seconds) else "ever longer"
    deadline = (record.target.latency_ms or 0) / 1000
    why = f"tuples would take {takes} at {rate:.4g} tuples/s; its deadline is {deadline:g} s"
    return (Rejected(f"{alone}, as the policy alone divides", why),)


def _load(record: PipelineRecord) -> float | None:
    """What arrives; before that was measured, what it is meant for."""
    memory = record.following.memory
    if memory is not None and memory.smoothed is not None:
        return memory.smoothed.level
    return record.target.rate


def _capacity(turn: Turn, record: PipelineRecord, units: int) -> float | None:
    rate = turn.sizing.rate_on(record.submission, units) if units else 0.0
    memory = record.following.memory
    return rate if rate is None or memory is None else rate * memory.speed.factor


def _batch_cost(turn: Turn, record: PipelineRecord) -> tuple[float, str]:
    """Seconds, and where they come from."""
    learned: Learned = record.following.learned.get(BATCH_COST, UNKNOWN)
    if not learned.counts:
        profiled = turn.sizing.batch_cost(record.submission)
        return profiled, f"profiled: {profiled:.3g} s"
    return learned.value, f"learned: {learned.value:.3g} s (spread {learned.spread:.3g}, {learned.readings} readings)"
