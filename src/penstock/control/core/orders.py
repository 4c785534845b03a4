"""From what was decided to what is asked for: who starts, who drains, and an order for everybody's executors.

A slot is asked for only when nobody else can still be on it. Slots that are given up free themselves when the executors
that had them say so; whoever is to have them grows then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.messages import OrderKind, PipelineOrder
from penstock.control.core.records import RUNNING, EngineName, Happening, NodeHappening, NodePhase, PipelineState
from penstock.control.core.share_plans import part_of_plan, runs_alike
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.core.turn import Blamable, Blaming, working_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.cluster.topology import Slot
    from penstock.control.core.records import ControllerState, PipelinePlan, PipelineRecord, Trigger
    from penstock.control.core.turn import Turn


# The stages of a change that is under way: drained, placed, first tuple.


def note_placed(turn: Turn, name: str) -> None:
    """Placed is who runs on exactly what was decided."""
    record = turn.pipelines[name]
    change = record.change
    if (
        change is not None
        and change.drained_at is not None
        and change.placed_at is None
        and record.state is PipelineState.ACTIVE
        and set(record.held) == set(record.target_places)
        and runs_alike(record.ordered, record.plan)
    ):
        turn.change(name, change=replace(change, placed_at=turn.now))


RESTING = frozenset({PipelineState.SUBMITTED, PipelineState.WAITING, PipelineState.DRAINED})


def settle(turn: Turn) -> None:
    occupied = {slot: record.name for record in turn.pipelines.values() for slot in record.may_hold}
    for name in sorted(turn.pipelines, key=lambda name: turn.pipelines[name].number):
        with working_on(name):
            _settle(turn, name, occupied)
    _break_cycle(turn, occupied)
    _empty_nodes(turn)


def _break_cycle(turn: Turn, occupied: Mapping[Slot, str]) -> None:
    """Drain a placed pipeline that waits for slots of others which wait, in turn, for slots of its own."""
    waits_for: dict[str, set[str]] = {}
    for name, record in turn.pipelines.items():
        if record.state in RUNNING and record.plan is not None and record.plan.engine is EngineName.PLACED:
            others = {occupied.get(slot, name) for slot in record.target_places} - {name}
            if others:
                waits_for[name] = others
    for name in sorted(waits_for, key=lambda name: -turn.pipelines[name].number):
        seen: set[str] = set()
        ahead = list(waits_for[name])
        while ahead:
            other = ahead.pop()
            if other not in seen:
                seen.add(other)
                ahead += waits_for.get(other, ())
        if name in seen and turn.pipelines[name].state is PipelineState.ACTIVE:
            turn.say(name, "message", "manager", "pipeline", "deactivate")
            turn.move(name, Happening.DEACTIVATED, "it and others wait for each other's slots")
            turn.change(name, requested=(), ordered=None, serial=turn.pipelines[name].serial + 1)
            return


def _settle(turn: Turn, name: str, occupied: dict[Slot, str]) -> None:
    record = turn.pipelines[name]
    free = tuple(slot for slot in record.target_places if occupied.get(slot, name) == name)
    record = _moved(turn, record, free)
    requested, ordered = _next_order(record, free)
    if requested != record.requested or not runs_alike(ordered, record.ordered):
        record = turn.change(
            name,
            requested=requested,
            ordered=ordered,
            may_hold=record.may_hold | frozenset(requested),
            serial=record.serial + 1,
            change=record.change and replace(record.change, placed_at=None),
        )
        occupied.update(dict.fromkeys(requested, name))
    note_placed(turn, record.name)


def _next_order(record: PipelineRecord, free: tuple[Slot, ...]) -> tuple[tuple[Slot, ...], PipelinePlan | None]:
    """Return the slots to ask for now, and the plan to run on them.

    A fused pipeline runs on the slots that are free. A placed one needs all its threads: until every slot of its plan
    is free it keeps the plan it runs.
    """
    if record.state not in RUNNING:
        return (), None
    plan = record.plan
    if plan is None or not record.assigned:
        return free, None
    if plan.engine is EngineName.FUSED:
        return free, part_of_plan(plan, free)
    if len(free) == len(plan.slots):
        return plan.places, plan
    return record.requested, record.ordered


def _moved(turn: Turn, record: PipelineRecord, free: tuple[Slot, ...]) -> PipelineRecord:
    name, state = record.name, record.state
    if state in RESTING or (record.paused and state is PipelineState.BACKING_OFF):
        if record.paused:
            return turn.move(name, Happening.PAUSED, assigned=(), waiting=None, waiting_since=None, change=None)
        enough = len(record.target_places)
        if record.plan is None or record.plan.engine is EngineName.FUSED:
            enough = min(enough, record.minimum * turn.state.unit_slots)
        if record.assigned and len(free) >= enough:
            return turn.move(
                name, Happening.PLACED, f"{len(free)} slots", incarnation=record.incarnation + 1, forced=False
            )
        if state is not PipelineState.WAITING:
            return turn.move(name, Happening.SHORT, record.waiting or "its slots are being freed by others")
        return record
    if state in RUNNING and (record.paused or not record.assigned):
        why = "paused" if record.paused else record.waiting or "no share"
        turn.say(name, "message", "manager", "pipeline", "deactivate")
        return turn.move(name, Happening.DEACTIVATED, why)
    return record


def _empty_nodes(turn: Turn) -> None:
    leaving = {node.name for node in turn.nodes.values() if node.state is NodePhase.LEAVING}
    if leaving:
        used = {slot.node for record in turn.pipelines.values() for slot in (*record.may_hold, *record.assigned)}
        for name in sorted(leaving - used):
            with Blaming(Blamable.NODE, name):
                turn.move_node(name, NodeHappening.EMPTIED)


_KINDS = {
    PipelineState.STARTING: OrderKind.RUN,
    PipelineState.ACTIVE: OrderKind.RUN,
    PipelineState.DRAINING: OrderKind.DRAIN,
    PipelineState.ENDING: OrderKind.END,
    PipelineState.FAILED: OrderKind.END,
    PipelineState.KILLED: OrderKind.END,
}


def orders(state: ControllerState) -> Iterator[PipelineOrder]:
    """What is wanted of everybody's executors. A function of the state alone: a controller that starts anew gives the
    same orders, and whoever has them already does nothing."""
    for record in state.pipelines.values():
        kind = _KINDS.get(record.state, OrderKind.REST)
        yield PipelineOrder(
            record.name,
            record.serial,
            record.incarnation,
            kind,
            record.submission,
            record.requested,
            record.forced,
            record.load,
            tuple(_condition(trigger) for trigger in record.triggers if find_kind(trigger.kind).watches_rows),
            record.ordered,
        )


def _condition(trigger: Trigger) -> Trigger:
    """Whether it is on or leans is nothing executors need to know."""
    return replace(trigger, on=False, on_since=None, leaning_since=None, by_hand=False)
