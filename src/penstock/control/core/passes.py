"""The scheduler pass: who wants what, the division, and a decision with its reasons for everybody it changes."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.cluster.topology import Slot
from penstock.control.core.division import Wish, blamed_division, document
from penstock.control.core.messages import DecisionKind, PassRecord, Rejected
from penstock.control.core.records import WANTING, Change, PipelineState
from penstock.control.core.turn import Blamable, Blaming, working_on
from penstock.control.elasticity.estimates import response_seconds, units_in_time
from penstock.control.elasticity.learned_factor import UNKNOWN
from penstock.control.elasticity.readings import BATCH_COST
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.division import DEFAULT_PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.division import Division
    from penstock.control.core.records import PipelineRecord
    from penstock.control.core.turn import Turn
    from penstock.control.elasticity.learned_factor import Learned


# Deadlines in a division: a pipeline's latency target against the response time predicted for its share, at its current
# load and the batch cost learned so far.


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
    # keep the size if the load only fluctuates
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
    """Set the units that every pipeline needs for its present rate."""
    for record in list(turn.pipelines.values()):
        if taking_part(record):
            with working_on(record.name):
                _size(turn, record)


def _size(turn: Turn, record: PipelineRecord) -> None:
    needed = record.elastic_units
    if needed is None and record.target.rate is not None:
        needed = turn.sizing.units_for(record.submission, record.target.rate)
    if needed is None:
        # without a model it needs the units it was submitted with
        needed = record.submission.desired
    if needed is not None and needed != record.needed:
        turn.change(record.name, needed=needed)


def _count_served(turn: Turn) -> None:
    """Add what each pipeline held, and what it needed up to its maximum, since the last pass (E-Stream, Eq. 2-4)."""
    seconds = turn.age(turn.state.last_pass) if turn.state.last_pass else 0.0
    if not seconds:
        return
    for record in list(turn.pipelines.values()):
        if taking_part(record):
            with working_on(record.name):
                needed = record.needed if record.maximum is None else min(record.needed, record.maximum)
                served = record.served.after(seconds, turn.state.units(record.held), needed)
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
    given, had = set(after), set(before)
    return (*(slot for slot in before if slot in given), *(slot for slot in after if slot not in had))


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
    # the wait ends when it holds its minimum, not when slots are assigned: those must be freed first
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
