"""From what was decided to what is asked for: who starts, who drains, and an order for everybody's executors.

A slot is asked for only when nobody else can still be on it. Slots that are given up free themselves when the executors
that had them say so; whoever is to have them grows then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.messages import OrderKind, PipelineOrder
from penstock.control.core.records import RUNNING, Happening, NodeHappening, NodePhase, PipelineState
from penstock.control.core.trigger_kinds import find_kind
from penstock.control.core.turn import Blamable, Blaming, working_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cluster.topology import Slot
    from penstock.control.core.records import ControllerState, PipelineRecord, Trigger
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
        and set(record.held) == set(record.assigned)
    ):
        turn.change(name, change=replace(change, placed_at=turn.now))


RESTING = frozenset({PipelineState.SUBMITTED, PipelineState.WAITING, PipelineState.DRAINED})


def settle(turn: Turn) -> None:
    occupied = {slot: record.name for record in turn.pipelines.values() for slot in record.may_hold}
    for name in sorted(turn.pipelines, key=lambda name: turn.pipelines[name].number):
        with working_on(name):
            _settle(turn, name, occupied)
    _empty_nodes(turn)


def _settle(turn: Turn, name: str, occupied: dict[Slot, str]) -> None:
    record = turn.pipelines[name]
    free = tuple(slot for slot in record.assigned if occupied.get(slot, name) == name)
    record = _moved(turn, record, free)
    requested = free if record.state in RUNNING else ()
    if requested != record.requested:
        record = turn.change(
            name,
            requested=requested,
            may_hold=record.may_hold | frozenset(requested),
            serial=record.serial + 1,
            change=record.change and replace(record.change, placed_at=None),
        )
        occupied.update(dict.fromkeys(requested, name))
    note_placed(turn, record.name)


def _moved(turn: Turn, record: PipelineRecord, free: tuple[Slot, ...]) -> PipelineRecord:
    name, state = record.name, record.state
    if state in RESTING or (record.paused and state is PipelineState.BACKING_OFF):
        if record.paused:
            return turn.move(name, Happening.PAUSED, assigned=(), waiting=None, waiting_since=None, change=None)
        enough = min(len(record.assigned), record.minimum * turn.state.unit_slots)
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
        )


def _condition(trigger: Trigger) -> Trigger:
    """Whether it is on or leans is nothing executors need to know."""
    return replace(trigger, on=False, on_since=None, leaning_since=None, by_hand=False)
