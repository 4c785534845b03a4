"""The priority manager: levels, who may change them when, and the documented order of messages.

    pipeline: trigger on | manager: deactivate | pipeline: drained | manager: priority, then a pass
    manager: activate with the new share | pipeline: first tuple

That is `documented`, for whoever asks for it. By itself rescheduling is `live`: executors come and go while a pipeline
flows, the priority is written at once and nobody drains. A pipeline whose share would stay the same is not touched
either way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.messages import DecisionKind, Rejected
from penstock.control.core.passes import share_with, taking_part
from penstock.control.core.records import Change, Happening, PipelineState, Rescheduling
from penstock.control.core.trigger_kinds import find_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import PipelineRecord, Trigger
    from penstock.control.core.turn import Turn


def effective_priority(record: PipelineRecord) -> int:
    """The highest level of the triggers that are on, else the one it was given."""
    on = [trigger.priority for trigger in record.triggers if trigger.on and trigger.enabled]
    return min([record.initial_priority, *on])


def follow_priority(turn: Turn, name: str, why: str) -> None:
    """Bring the pipeline to the level its triggers say, in the order the policy asks for."""
    record = turn.pipelines[name]
    level = effective_priority(record)
    current = record.priority if record.pending_priority is None else record.pending_priority
    if level == current:
        return
    if turn.state.policy.fixes_priorities and record.state is not PipelineState.SUBMITTED:
        reason = f"{turn.state.policy.sharing} does not change priorities while a pipeline runs"
        turn.decide(name, DecisionKind.NOTHING, record.priority, record.priority, f"{why}; {reason}")
        return
    if not taking_part(record):
        turn.change(name, priority=level, pending_priority=None)
        return
    share = share_with(turn, name, level)
    units = record.granted if record.assigned else 0
    rejected = (
        (Rejected("draining it", f"its share stays {units}"),)
        if share == units
        else (Rejected(f"level {record.priority}, as before", f"it would keep {units} instead of {share}"),)
    )
    number = turn.decide(
        name, DecisionKind.PRIORITY, record.priority, level, why, rejected, {"units": share, "units_before": units}
    )
    documented = turn.state.policy.rescheduling is Rescheduling.DOCUMENTED
    if documented and record.state is PipelineState.ACTIVE and share != units:
        turn.change(name, pending_priority=level, change=Change((number,), turn.now))
        turn.say(name, "message", "manager", "pipeline", "deactivate")
        turn.move(name, Happening.DEACTIVATED, why)
        return
    if record.state is PipelineState.DRAINING:
        turn.change(name, pending_priority=level)
        return
    write_priority(turn, name, level)
    if share != units and record.state is PipelineState.ACTIVE:
        turn.change(name, change=Change((number,), turn.now, turn.now))
    turn.want_pass(why)


def write_priority(turn: Turn, name: str, level: int) -> None:
    record = turn.pipelines[name]
    if level != record.priority:
        turn.say(name, "message", "manager", "scheduler", f"priority {record.priority} becomes {level}")
    turn.change(name, priority=level, pending_priority=None)


# Hysteresis of a trigger: a condition, a dwell time, and a lower threshold for the way back.
#
# on   once the condition has held for `for_seconds`
# off  once the value has been below `below` for `for_seconds`
#
# Between the two thresholds nothing changes, and a value that is not reported changes nothing either.


def evaluated(trigger: Trigger, values: Mapping[str, float], signals: Mapping[int, float], now: float) -> Trigger:
    """The trigger after these readings."""
    if not trigger.enabled or trigger.by_hand:
        return trigger
    leans = find_kind(trigger.kind).wants_on(trigger, values, signals)
    if leans is None or leans == trigger.on:
        return replace(trigger, leaning_since=None)
    since = now if trigger.leaning_since is None else min(trigger.leaning_since, now)
    if now - since < trigger.for_seconds:
        return replace(trigger, leaning_since=since)
    return switched(trigger, on=leans, now=now)


def switched(trigger: Trigger, *, on: bool, now: float, by_hand: bool = False) -> Trigger:
    return replace(trigger, on=on, on_since=now if on else None, leaning_since=None, by_hand=by_hand and on)


def described(trigger: Trigger) -> str:
    return f"trigger {trigger.id}: {find_kind(trigger.kind).describe(trigger)}"
