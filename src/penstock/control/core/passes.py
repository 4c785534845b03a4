"""The scheduler pass: what every pipeline needs, the shares, a plan for each on its share, and a decision with its
reasons for everyone it changes.

need ──► share (sharing policy) ──► plan (`share_plans`) ──► decisions
             ▲                          │ a plan is refused
             └──────────────────────────┘ others get what it cannot use
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.base.tolerance import whole_up
from penstock.cluster.topology import MEMORY, Slot
from penstock.control.core.division import Wish, blamed_division, document
from penstock.control.core.messages import DecisionKind, PassRecord, Rejected
from penstock.control.core.records import WANTING, Change, EngineName, PipelineState
from penstock.control.core.share_plans import change_document, chosen, executor_mb, plan_shares, runs_alike
from penstock.control.core.turn import Blamable, Blaming, working_on
from penstock.control.elasticity.estimates import response_seconds, units_in_time
from penstock.control.elasticity.learned_factor import UNKNOWN
from penstock.control.elasticity.readings import BATCH_COST
from penstock.planning.registry import SHARERS
from penstock.planning.sharing.division import DEFAULT_PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.division import Division
    from penstock.control.core.records import PipelinePlan, PipelineRecord, Submission
    from penstock.control.core.share_plans import SharePlan
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
    shared = _shared(turn)
    number = turn.state.decided + 1
    changed = [name for name in shared.shares if _differs(turn.pipelines[name], shared.made.get(name))]
    if changed:
        turn.keep_pass(PassRecord(number, turn.now, cause, shared.inputs, shared.shares))
    for name in changed:
        with working_on(name):
            _decide(turn, name, shared, cause, number)
    for name, share in shared.shares.items():
        with working_on(name):
            made = shared.made.get(name)
            _note_shortage(turn, name, share, shared.division.waiting.get(name), made)
            _note_plan(turn, name, share, made, cause, number)
    if turn.state.decided < number and cause != PERIODIC:
        turn.decide("", DecisionKind.NOTHING, 0, 0, f"{cause}: every pipeline keeps what it has")
    turn.set_state(last_pass=turn.now)


@dataclass(frozen=True)
class _Shared:
    """Shares, and the plans that were made on them."""

    division: Division
    inputs: Mapping[str, Any]
    shares: Mapping[str, int]
    made: Mapping[str, SharePlan]


MAX_DIVISIONS = 3
"""Times shares are divided in a pass because plans are refused."""


MAX_GROWTH = 4
"""Units beyond what the models say that a pipeline gets because its placer needs them."""


def _shared(turn: Turn) -> _Shared:
    """Divide and plan. A pipeline whose placer needs more than its share asks for a unit more; what one whose plan is
    refused all the same cannot use goes to those who desire more."""
    shared = _planned(turn, inputs_of(turn))
    for _ in range(MAX_GROWTH):
        if not _grow(turn, shared):
            break
        shared = _planned(turn, inputs_of(turn))
    last: dict[str, int] = {}
    for _ in range(MAX_DIVISIONS - 1):
        shares, pipelines = shared.shares, shared.inputs["pipelines"]
        usable = {
            name: turn.state.units(plan.assigned)
            for name, plan in shared.made.items()
            if plan.shortage is not None and turn.state.units(plan.assigned) < shares[name]
        }
        others_wait = any(
            shares[entry["name"]] < entry["desired"] for entry in pipelines if entry["name"] not in usable
        )
        if not usable.keys() - last or not others_wait:
            break
        # those that can use nothing are planned once more, on what the others leave
        last |= {name: shares[name] for name, units in usable.items() if not units}
        wishes = [_limited(entry, usable) for entry in pipelines if entry["name"] not in last]
        shared = _planned(turn, {**shared.inputs, "pipelines": wishes}, last)
    return shared


def _planned(turn: Turn, inputs: Mapping[str, Any], last: Mapping[str, int] = MappingProxyType({})) -> _Shared:
    division = blamed_division(inputs)
    shares = {name: turn.state.units(slots) for name, slots in division.slots.items()} | dict(last)
    return _Shared(division, inputs, shares, plan_shares(turn, shares, last))


def _grow(turn: Turn, shared: _Shared) -> bool:
    """Have placed pipelines ask for a unit more that were refused although they got all they desire."""
    free = turn.state.capacity - sum(turn.state.units(plan.assigned) for plan in shared.made.values())
    grew = False
    for name, made in shared.made.items():
        record = turn.pipelines[name]
        follows = record.submission.desired is None and record.submission.engine is EngineName.PLACED
        at_most = record.maximum is None or record.needed < record.maximum
        if (
            follows
            and at_most
            and made.shortage is not None
            and shared.shares[name] >= record.desired
            and record.grown < MAX_GROWTH
            and free > record.grown
        ):
            turn.change(name, needed=record.needed + 1, grown=record.grown + 1)
            grew = True
    return grew


def _limited(entry: Mapping[str, Any], usable: Mapping[str, int]) -> Mapping[str, Any]:
    """Return the wish of a pipeline that can use so many units only."""
    if entry["name"] not in usable:
        return entry
    units = usable[entry["name"]]
    return {**entry, "desired": units, "minimum": min(entry["minimum"], units)}


def _differs(record: PipelineRecord, made: SharePlan | None) -> bool:
    """Return whether other slots, or other threads on them, were decided for it."""
    if made is None:
        return bool(record.assigned)
    if set(made.assigned) != set(record.assigned):
        return True
    return made.plan is not None and record.plan is not None and not runs_alike(made.plan, record.plan)


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
            there = turn.state.units(tuple(slot for slot in record.assigned if slot.node in alive))
            runs = there >= _least(turn, record)
            return asked_patience is not None and not runs, record.number

    def wish(record: PipelineRecord) -> Wish:
        with working_on(record.name):
            return Wish(
                name=record.name,
                desired=record.desired,
                minimum=record.minimum,
                priority=given.get(record.name, record.priority),
                waited=0.0 if record.waiting_since is None else turn.age(record.waiting_since) // patience * patience,
                fairness=min(1.0, max(0.0, record.served.degree)),
                slots=record.assigned,
                in_time=in_time(turn, record),
            )

    wishes = [wish(record) for record in sorted(turn.pipelines.values(), key=order) if taking_part(record)]
    return document(turn.state.policy.sharing, _alive(turn), turn.state.unit_slots, wishes)


def _least(turn: Turn, record: PipelineRecord) -> int:
    """Return the units it must hold to run: its minimum, unless its plan needs fewer."""
    planned = turn.state.units(record.assigned)
    return min(record.minimum, planned) if planned else record.minimum


def _alive(turn: Turn) -> Any:
    return replace(turn.state, nodes=turn.nodes).alive()


def size_all(turn: Turn) -> None:
    """Set the units that every pipeline needs for its present rate."""
    unit_mb = _unit_memory(turn)
    for record in list(turn.pipelines.values()):
        if taking_part(record):
            with working_on(record.name):
                _size(turn, record, unit_mb)


def _size(turn: Turn, record: PipelineRecord, unit_mb: float | None) -> None:
    needed = record.elastic_units
    rate = record.target.rate
    if needed is None and rate is not None:
        submission = chosen(record.submission, turn.state.policy)
        needed = turn.sizing.units_for(submission, rate)
        if needed is not None:
            needed = max(needed, _units_for_memory(turn, submission, rate, needed, unit_mb))
    if needed is None:
        # without a model it needs the units it was submitted with
        needed = record.submission.desired
    if needed is None and record.submission.engine is EngineName.PLACED:
        needed = turn.sizing.units_to_place(chosen(record.submission, turn.state.policy))
    if needed is None:
        return
    # what its placer needs beyond that stays until the models say another number
    grown = record.grown if record.needed - record.grown == needed else 0
    if (needed + grown, grown) != (record.needed, record.grown):
        turn.change(record.name, needed=needed + grown, grown=grown)


def _unit_memory(turn: Turn) -> float | None:
    """Return the mean MB of a unit over all nodes that tell their memory; None if none does."""
    nodes = [node for node in _alive(turn) if node.capacity.get(MEMORY, 0) > 0]
    slots = sum(node.slots for node in nodes)
    return sum(node.capacity[MEMORY] for node in nodes) / slots * turn.state.unit_slots if slots else None


def _units_for_memory(turn: Turn, submission: Submission, rate: float, units: int, unit_mb: float | None) -> int:
    """Return how many units have the memory it needs: ceil(MB needed / mean MB of a unit).

    A share is counted in units, so it is the dominant of CPU (`units_for`) and memory that counts. A fused pipeline
    needs that of its executors, a placed one that of its threads.
    """
    if unit_mb is None:
        return 1
    if submission.engine is EngineName.PLACED:
        used = turn.sizing.usage(submission, rate)
        needed = 0.0 if used is None else used[1]
    else:
        needed = units * turn.state.unit_slots * executor_mb(submission.choices)
    return max(1, whole_up(needed / unit_mb))


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


def _decide(turn: Turn, name: str, shared: _Shared, cause: str, pass_number: int) -> None:
    record, division, inputs = turn.pipelines[name], shared.division, shared.inputs
    made, share = shared.made.get(name), shared.shares[name]
    slots = _by_age(record.assigned, made.assigned if made is not None else ())
    before, after = turn.state.units(record.assigned), turn.state.units(slots)
    same_slots = bool(after) and set(slots) == set(record.assigned)
    kind = DecisionKind.REPLAN if same_slots else _kind(before, after)
    refused = division.waiting.get(name) or (made.shortage if made is not None else None)
    plan = made.plan if made is not None else None
    expected = _expected(turn, record, after, len(set(slots) - set(record.assigned)), plan)
    if made is not None and (plan is not None or record.plan is not None):
        expected["plan"] = change_document(record.plan if record.assigned else None, plan, made.decision)
    alternatives = made.decision.rejected if made is not None else ()
    number = turn.decide(
        name,
        kind,
        before,
        after,
        f"{cause}; {inputs['sharing']} gives it {share} of the {record.desired} it desires"
        + (f", and its plan uses {after}" if 0 < after < share else ""),
        (
            *_rejected(record, slots, inputs, before, share if plan is not None else after, refused),
            *(Rejected("another plan", why) for why in alternatives),
            *too_late(turn, name, division),
        ),
        expected,
        pass_number,
    )
    same = record.change is not None and (record.state is PipelineState.DRAINED or record.change.asked_at == turn.now)
    open_change = record.change if same else None
    change = (
        Change((number,), turn.now, turn.now)
        if open_change is None
        else replace(open_change, decisions=(*open_change.decisions, number))
    )
    turn.change(name, assigned=slots, plan=plan, change=change if slots else None)


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


def _expected(turn: Turn, record: PipelineRecord, units: int, gained: int, plan: PipelinePlan | None) -> dict[str, Any]:
    """Return what is expected of the units it gets: of a placed plan what that predicts, else what models say."""
    if plan is not None and plan.engine is EngineName.PLACED:
        rate = plan.predicted_rate
    else:
        rate = turn.sizing.rate_on(chosen(record.submission, turn.state.policy), units) if units else 0.0
    target = record.target.rate
    return {
        "units": units,
        "slots_gained": gained,
        "rate": rate,
        "meets_target": None if rate is None or target is None else rate >= target,
        **response(turn, record, units),
    }


def _note_shortage(turn: Turn, name: str, share: int, reason: str | None, made: SharePlan | None) -> None:
    """Record why and since when a pipeline has less than its minimum, or no plan."""
    record = turn.pipelines[name]
    short = share < record.minimum
    why = (reason or f"gets {share} of at least {record.minimum}") if short else None
    if not share and not short:
        why = "no share"
    if why is None and made is not None and not made.assigned:
        why = made.shortage or "it has no plan"
    # the wait ends when it holds its minimum, not when slots are assigned: those must be freed first
    waits = why is not None or turn.state.units(record.held) < _least(turn, record)
    since = record.waiting_since if waits else None
    if why is not None and since is None:
        since = turn.now
    if (why, since) != (record.waiting, record.waiting_since):
        turn.change(name, waiting=why, waiting_since=since)


def _note_plan(turn: Turn, name: str, share: int, made: SharePlan | None, cause: str, pass_number: int) -> None:
    """Keep what changes nothing for executors, and decide about a plan that is refused: once for each reason."""
    record = turn.pipelines[name]
    plan = made.plan if made is not None else None
    refused = made.shortage if made is not None else None
    if made is not None and plan is not None and plan != record.plan:
        record = turn.change(name, plan=plan)
    if share != record.granted:
        record = turn.change(name, granted=share)
    if _words(refused) == _words(record.refused):
        return
    turn.change(name, refused=refused)
    if refused is None or made is None:
        return
    units = turn.state.units(record.assigned)
    why = f"{cause}; a plan for {share} units is refused: {refused}" + ("; it keeps the plan it has" if units else "")
    expected = {"units": units, "plan": change_document(plan, plan, made.decision)}
    rejected = tuple(Rejected("another plan", reason) for reason in made.decision.rejected)
    turn.decide(name, DecisionKind.WAIT, units, units, why, rejected, expected, pass_number)


def _words(text: str | None) -> str | None:
    """Return a reason without its numbers: free memory changes all the time, and the reason is the same."""
    return None if text is None else re.sub(r"[\d.,]+", "#", text)


def share_with(turn: Turn, name: str, priority: int) -> int:
    """Units the pipeline would get if it had that priority."""
    if not turn.divides:
        return turn.state.units(turn.pipelines[name].assigned)
    return turn.state.units(blamed_division(inputs_of(turn, {name: priority})).slots.get(name, ()))
