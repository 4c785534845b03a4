"""The scheduler pass: who wants what, the division, and a decision with its reasons for everybody it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cluster.topology import Slot
from penstock.control.core.blame import Blamable, Blaming, working_on
from penstock.control.core.culprits import blamed_division
from penstock.control.core.deadlines import in_time, response, too_late
from penstock.control.core.division import Wish, document
from penstock.control.core.outcome import DecisionKind, PassRecord, Rejected
from penstock.control.core.records import Change
from penstock.control.core.states import WANTING, PipelineState
from penstock.sharing.policies.admission import DEFAULT_PATIENCE
from penstock.sharing.registry import SHARERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from penstock.control.core.division import Division
    from penstock.control.core.records import PipelineRecord
    from penstock.control.core.turn import Turn

PERIODIC = "time has passed"


def make_pass(turn: Turn) -> None:
    """1. who wants what  2. divide  3. a decision for everyone whose slots change, or one that nothing does."""
    if turn.cause is None or not turn.divides:
        return
    cause, turn.cause = turn.cause, None
    _count_served(turn)
    size_all(turn)
    inputs = inputs_of(turn)
    division = blamed_division(inputs)
    number = turn.state.decided + 1
    changed = [name for name, slots in division.slots.items() if set(slots) != set(turn.pipelines[name].assigned)]
    if changed:
        shares = {name: turn.state.units(slots) for name, slots in division.slots.items()}
        turn.keep_pass(PassRecord(number, turn.now, cause, inputs, shares))
    for name in changed:
        with working_on(name):
            _decide(turn, name, division, inputs, cause, number)
    for name, slots in division.slots.items():
        with working_on(name):
            _note_shortage(turn, name, slots, division.waiting.get(name))
    if not changed and cause != PERIODIC:
        turn.decide("", DecisionKind.NOTHING, 0, 0, f"{cause}: every pipeline keeps what it has")
    turn.set_state(last_pass=turn.now)


def taking_part(record: PipelineRecord) -> bool:
    return record.state in WANTING and not record.paused


def inputs_of(turn: Turn, priorities: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What the division depends on; `priorities` as if they were already written."""
    given = priorities or {}
    # in whole turns of patience: who has just begun to wait does not drive out who runs, or they would swap for ever
    with Blaming(Blamable.POLICY, turn.state.policy.sharing):
        asked_patience = getattr(SHARERS.create(turn.state.policy.sharing), "patience", None)
    patience = asked_patience or DEFAULT_PATIENCE

    alive = {node.name for node in _alive(turn)}

    def order(record: PipelineRecord) -> tuple[bool, int]:
        """As submitted; where a policy lets some wait for others, those who run stand before those who do not."""
        with working_on(record.name):
            runs = turn.state.units(tuple(slot for slot in record.assigned if slot.node in alive)) >= record.minimum
            return asked_patience is not None and not runs, record.number

    taken = {slot for record in turn.pipelines.values() for slot in (*record.assigned, *record.may_hold)}

    def wish(record: PipelineRecord) -> Wish:
        with working_on(record.name):
            return Wish(
                name=record.name,
                desired=record.desired,
                minimum=record.minimum,
                priority=given.get(record.name, record.priority),
                waited=0.0 if record.waiting_since is None else turn.age(record.waiting_since) // patience * patience,
                fairness=min(1.0, max(0.0, record.served.degree)),
                slots=record.assigned or _planned(record, taken),
                in_time=in_time(turn, record),
            )

    wishes = [wish(record) for record in sorted(turn.pipelines.values(), key=order) if taking_part(record)]
    return document(turn.state.policy.sharing, _alive(turn), turn.state.unit_slots, wishes)


def _planned(record: PipelineRecord, taken: set[Slot]) -> tuple[Slot, ...]:
    """The slots of the plan that was submitted, as far as nobody has them: then they are its own."""
    if record.submission.plan is None:
        return ()
    rows = record.submission.plan["placement"]
    free = [slot for slot in (Slot(row["node"], row["slot"]) for row in rows) if slot not in taken]
    taken.update(free)
    return tuple(free)


def _alive(turn: Turn) -> Any:
    return replace(turn.state, nodes=turn.nodes).alive()


def size_all(turn: Turn) -> None:
    """What the models say everybody needs for its target now."""
    for record in list(turn.pipelines.values()):
        if taking_part(record):
            with working_on(record.name):
                _size(turn, record)


def _size(turn: Turn, record: PipelineRecord) -> None:
    needed = record.elastic_units
    if needed is None and record.target.rate is not None:
        needed = turn.sizing.units_for(record.submission, record.target.rate)
    if needed is not None and needed != record.needed:
        turn.change(record.name, needed=needed)


def _count_served(turn: Turn) -> None:
    """Fairness over time: what each held of what it desired since the last pass."""
    seconds = turn.age(turn.state.last_pass) if turn.state.last_pass else 0.0
    if not seconds:
        return
    for record in list(turn.pipelines.values()):
        if taking_part(record):
            with working_on(record.name):
                served = record.served.after(seconds, turn.state.units(record.held), record.desired)
                turn.change(record.name, served=served)


def _decide(turn: Turn, name: str, division: Division, inputs: Mapping[str, Any], cause: str, pass_number: int) -> None:
    record = turn.pipelines[name]
    slots = _by_age(record.assigned, division.slots[name])
    before, after = turn.state.units(record.assigned), turn.state.units(slots)
    kind = _kind(before, after)
    number = turn.decide(
        name,
        kind,
        before,
        after,
        f"{cause}; {inputs['sharing']} gives it {after} of the {record.desired} it desires",
        (*_rejected(record, slots, inputs, before, after, division.waiting.get(name)), *too_late(turn, name, division)),
        _expected(turn, record, after, len(set(slots) - set(record.assigned))),
        pass_number,
    )
    same = record.change is not None and (record.state is PipelineState.DRAINED or record.change.asked_at == turn.now)
    open_change = record.change if same else None
    change = (
        Change((number,), turn.now, turn.now)
        if open_change is None
        else replace(open_change, decisions=(*open_change.decisions, number))
    )
    turn.change(name, assigned=slots, change=change if slots else None)


def _by_age(before: tuple[Slot, ...], after: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """What it keeps first, in the order it came: when there is less again, what came last goes first."""
    given = set(after)
    kept = [slot for slot in before if slot in given]
    return (*kept, *(slot for slot in after if slot not in before))


def _kind(before: int, after: int) -> DecisionKind:
    if not after:
        return DecisionKind.WAIT
    if not before:
        return DecisionKind.START
    if after == before:
        return DecisionKind.MOVE
    return DecisionKind.GROW if after > before else DecisionKind.SHRINK


def _rejected(
    record: PipelineRecord,
    slots: tuple[Slot, ...],
    inputs: Mapping[str, Any],
    before: int,
    after: int,
    reason: str | None,
) -> tuple[Rejected, ...]:
    rejected = []
    wanted = sum(entry["desired"] for entry in inputs["pipelines"])
    there = sum(len(group["names"]) * (group["slots"] // inputs["unit_slots"]) for group in inputs["nodes"])
    if after < record.desired:
        why = reason or f"all together desire {wanted} of {there}"
        rejected.append(Rejected(f"{record.desired}, as it desires", why))
    if before and before != after:
        rejected.append(
            Rejected(f"{before}, as before", f"{inputs['sharing']} with what everybody desires now gives {after}")
        )
    if before and not set(slots) & set(record.assigned):
        rejected.append(Rejected("the slots it had", "none of them is alive or its own any more"))
    return tuple(rejected)


def _expected(turn: Turn, record: PipelineRecord, units: int, gained: int) -> dict[str, Any]:
    rate = turn.sizing.rate_on(record.submission, units) if units else 0.0
    target = record.target.rate
    return {
        "units": units,
        "slots_gained": gained,
        "rate": rate,
        "meets_target": None if rate is None or target is None else rate >= target,
        **response(turn, record, units),
    }


def _note_shortage(turn: Turn, name: str, slots: tuple[Slot, ...], reason: str | None) -> None:
    """Less than the minimum is said, with why and since when."""
    record = turn.pipelines[name]
    short = turn.state.units(slots) < record.minimum
    why = (reason or f"gets {turn.state.units(slots)} of at least {record.minimum}") if short else None
    if not slots and not short:
        why = "no share"
    # the wait is over when it runs, not when it is promised something: what it was promised has still to be freed
    waits = why is not None or turn.state.units(record.held) < record.minimum
    since = record.waiting_since if waits else None
    if why is not None and since is None:
        since = turn.now
    if (why, since) != (record.waiting, record.waiting_since):
        turn.change(name, waiting=why, waiting_since=since)


def share_with(turn: Turn, name: str, priority: int) -> int:
    """Units the pipeline would get if it had that priority."""
    if not turn.divides:
        return turn.state.units(turn.pipelines[name].assigned)
    return turn.state.units(blamed_division(inputs_of(turn, {name: priority})).slots.get(name, ()))
