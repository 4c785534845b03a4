"""Setting aside a pipeline or a trigger that makes steps raise, so that all others are decided upon."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.outcome import DecisionKind
from penstock.control.core.priorities import follow_priority
from penstock.control.core.states import Happening, PipelineState
from penstock.control.core.triggers import switched
from penstock.control.elasticity.memory import Following
from penstock.sharing.measures import Served

if TYPE_CHECKING:
    from penstock.control.core.incoming import DisableTrigger, Quarantine
    from penstock.control.core.turn import Turn

UNTOUCHED = frozenset({PipelineState.FAILED, PipelineState.ENDING, PipelineState.KILLED})


def quarantine(turn: Turn, remedy: Quarantine) -> None:
    """Set a pipeline to failed, from any state in which it takes part. Forget all that was computed for it, because any
    of it may raise, but not the slots it may hold: they are taken until its executors report otherwise."""
    record = turn.pipelines.get(remedy.pipeline)
    if record is None or record.state in UNTOUCHED:
        return
    units = turn.state.units(record.assigned)
    turn.move(
        record.name,
        Happening.BROKE,
        remedy.why,
        assigned=(),
        needed=1,
        elastic_units=None,
        following=Following(),
        readings={},
        served=Served(),
        change=None,
        retry_at=None,
        pending_priority=None,
        waiting=remedy.why,
        waiting_since=turn.now,
    )
    turn.decide(record.name, DecisionKind.FAIL, units, 0, remedy.why)
    turn.want_pass(f"'{record.name}' has failed")


def disable_trigger(turn: Turn, remedy: DisableTrigger) -> None:
    """Off and disabled; the priority follows."""
    record = turn.pipelines.get(remedy.pipeline)
    trigger = None if record is None else next((known for known in record.triggers if known.id == remedy.id), None)
    if record is None or trigger is None or not trigger.enabled:
        return
    off = replace(switched(trigger, on=False, now=turn.now), enabled=False)
    turn.change(record.name, triggers=tuple(off if known.id == off.id else known for known in record.triggers))
    turn.say(record.name, "trigger", "enabled", "disabled", f"trigger {trigger.id}: {remedy.why}")
    follow_priority(turn, record.name, f"trigger {trigger.id} was disabled")
