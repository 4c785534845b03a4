"""What people ask for: checked against the state, then done. A refusal says what is wrong and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError
from penstock.control.core.messages import DecisionKind
from penstock.control.core.priorities import described, follow_priority, switched
from penstock.control.core.records import (
    DEADLINES,
    MOST_UNITS,
    EngineName,
    Happening,
    NodeHappening,
    NodePhase,
    PipelineRecord,
    PipelineState,
    PlanChoices,
    Trigger,
)
from penstock.control.core.turn import reason_of
from penstock.control.elasticity.memory import Following
from penstock.control.elasticity.options import changed_options, checked_options
from penstock.control.errors import ConflictError, FieldError, NotFoundError
from penstock.dataflow.load import LEAST_RATE, MOST_RATE, parse_load
from penstock.planning.registry import ALLOCATORS, PLACERS, SEGMENTERS, SHARERS
from penstock.planning.sharing.measures import Served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.messages import (
        AddTrigger,
        Amend,
        DisableTrigger,
        EditTrigger,
        ExpectNode,
        Kill,
        NodesRefused,
        Quarantine,
        ReleaseNode,
        RemoveTrigger,
        SetPolicy,
        Submit,
        SwitchTrigger,
    )
    from penstock.control.core.records import NodeRecord, ServiceTarget, Submission
    from penstock.control.core.turn import Turn


# Requests that could not be carried out later, refused before anything is stored: whatever a pass, an executor or a
# decision about a size would stumble over. Every refusal names its field.


LONGEST_LOAD = 10_000
"""Characters."""
LOWEST_LEVEL = 1000
MOST_GAIN = 1e12
"""Tuples of an operator for one of a source's."""
MOST_SLOTS = 10_000
"""Max slots of a node."""
MOST_CAPACITY = 1e15
LONGEST_DWELL = 86_400.0
"""Seconds."""


def check_submission(turn: Turn, asked: Submission) -> None:
    check_sizes(turn, asked.minimum, asked.maximum, asked.desired)
    check_target(asked.target)
    check_load(asked.load)
    check_elastic(asked.elastic)
    if asked.priority is not None:
        check_level(asked.priority)
    check_choices(asked.choices)
    check_sizing(turn, asked, asked.target)


def check_sizes(turn: Turn, minimum: int, maximum: int | None, desired: int | None) -> None:
    for field, units in (("minimum", minimum), ("maximum", maximum), ("desired", desired)):
        if units is not None and not 1 <= units <= MOST_UNITS:
            raise FieldError(field, f"expected a whole number from 1 to {MOST_UNITS}, found {units}")
    there = sum(
        node.slots // turn.state.unit_slots
        for node in turn.nodes.values()
        if node.state in {NodePhase.ALIVE, NodePhase.JOINING}
    )
    if minimum > there:
        raise FieldError("minimum", f"{minimum} is above the {there} the cluster has")
    if maximum is not None and maximum < minimum:
        raise FieldError("maximum", f"{maximum} is below the minimum of {minimum}")
    if desired is not None and desired < minimum:
        raise FieldError("desired", f"{desired} is below the minimum of {minimum}")


def check_target(target: ServiceTarget) -> None:
    """Raise if the rate or the latency of the target is out of range."""
    rate, latency = target.rate, target.latency_ms
    if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
        raise FieldError("target.rate", f"expected {LEAST_RATE:g} to {MOST_RATE:g} tuples/s, found {rate:g}")
    if latency is not None and not 0 < latency < float("inf"):
        raise FieldError("target.latency_ms", f"expected a number above 0, found {latency:g}")


def check_load(load: str | None) -> None:
    if load is None:
        return
    if len(load) > LONGEST_LOAD:
        raise FieldError("load", f"expected at most {LONGEST_LOAD} characters, found {len(load)}")
    if load.startswith("trace:"):
        raise FieldError("load", "a trace is a file of yours; give its spells as steps:SECONDSxRATE,...")
    try:
        parse_load(load)
    except BadInputError as error:
        raise FieldError("load", str(error).removeprefix("load: ")) from error


def check_elastic(elastic: Mapping[str, Any] | None) -> None:
    if elastic:
        checked_options(elastic)


def check_choices(choices: PlanChoices) -> None:
    """Raise if a policy is not known, or an executor has no possible size."""
    for field, registry, name in (
        ("allocator", ALLOCATORS, choices.allocator),
        ("placer", PLACERS, choices.placer),
        ("segmenter", SEGMENTERS, choices.segmenter),
    ):
        if name is not None:
            try:
                registry.create(name)
            except BadInputError as error:
                raise FieldError(field, str(error)) from error
    for field, size in (
        ("executor_memory_mb", choices.executor_memory_mb),
        ("executor_cores", choices.executor_cores),
    ):
        if size is not None and not 0 < size <= MOST_CAPACITY:
            raise FieldError(field, f"expected a number above 0, found {size:g}")


def check_level(priority: int) -> None:
    if not 1 <= priority <= LOWEST_LEVEL:
        raise FieldError("priority", f"expected a level from 1 to {LOWEST_LEVEL}, found {priority}")


def check_sizing(turn: Turn, submission: Submission, target: ServiceTarget) -> None:
    """All that is asked of the models later is asked once now."""
    sizing, rate = turn.sizing, target.rate or 1.0
    try:
        sizing.units_for(submission, rate)
        sizing.rate_on(submission, 1)
        sizing.usage(submission, rate)
        cost, gains = sizing.batch_cost(submission), sizing.gains_of(submission)
    except Exception as error:
        raise FieldError("pipeline", reason_of(error)) from error
    for operator, gain in gains.items():
        if not 0 <= gain <= MOST_GAIN:
            raise FieldError(
                "pipeline",
                f"operator '{operator}' gets {gain:g} tuples for one of a source's; at most {MOST_GAIN:g} can be "
                "counted: lower selectivities or constants before it",
            )
    if not isfinite(cost):
        raise FieldError("pipeline", f"its models say that a batch takes {cost:g} s")


def node_fault(node: NodeRecord, unit_slots: int) -> str | None:
    """Why a node cannot be used; None: it can."""
    if not 1 <= node.slots <= MOST_SLOTS:
        return f"expected 1 to {MOST_SLOTS} slots, found {node.slots}"
    if node.slots % unit_slots:
        return f"{node.slots} is no whole number of units of {unit_slots} slots"
    for resource, amount in node.capacity.items():
        if not 0 <= amount <= MOST_CAPACITY:
            return f"{resource}: expected 0 to {MOST_CAPACITY:g}, found {amount:g}"
    return None


def check_trigger(trigger: Trigger) -> None:
    check_level(trigger.priority)
    for field, value in (("above", trigger.above), ("below", trigger.below), ("share", trigger.share)):
        if value is not None and not isfinite(value):
            raise FieldError(field, f"expected a number, found {value:g}")
    if not 0 <= trigger.for_seconds <= LONGEST_DWELL:
        raise FieldError("for_seconds", f"expected 0 to {LONGEST_DWELL:g} seconds, found {trigger.for_seconds:g}")


DONE = frozenset({PipelineState.KILLED})
MOST_TRIGGERS = 20
"""Of one pipeline."""


def submit(turn: Turn, request: Submit) -> None:
    """Idempotent by name and content; a name is free again once its pipeline was killed. What is ending cannot be
    asked for again: it would be promised, and then end."""
    asked = request.submission
    known = turn.pipelines.get(asked.name)
    if known is not None and known.state is PipelineState.ENDING:
        raise ConflictError(f"pipeline '{asked.name}' is still ending; submit it again when it is killed")
    if known is not None and known.state not in DONE:
        if known.submission == asked:
            return
        raise ConflictError(
            f"pipeline '{asked.name}' exists already and is {known.state}; kill it, or take another name"
        )
    check_submission(turn, asked)
    number = turn.state.submitted + 1
    turn.set_state(submitted=number)
    priority = turn.state.policy.default_priority if asked.priority is None else asked.priority
    turn.put(
        PipelineRecord(
            submission=asked,
            number=number,
            state=PipelineState.SUBMITTED,
            since=turn.now,
            target=asked.target,
            minimum=asked.minimum,
            maximum=asked.maximum,
            load=asked.load,
            elastic=asked.elastic,
            priority=priority,
            initial_priority=priority,
            serial=known.serial + 1 if known else 0,
            incarnation=known.incarnation if known else 0,
        )
    )
    turn.say(asked.name, "state", None, PipelineState.SUBMITTED, "submitted")
    turn.want_pass(f"'{asked.name}' was submitted")


def living(turn: Turn, name: str) -> PipelineRecord:
    record = turn.pipeline(name)
    if record.state in {PipelineState.ENDING, PipelineState.KILLED}:
        raise ConflictError(f"pipeline '{name}' is {record.state}")
    return record


def kill(turn: Turn, request: Kill) -> None:
    let_end(turn, turn.pipeline(request.pipeline), "by request")


def let_end(turn: Turn, record: PipelineRecord, why: str) -> None:
    if record.state in {PipelineState.ENDING, PipelineState.KILLED}:
        return
    turn.move(record.name, Happening.KILLED, why, assigned=(), change=None, waiting=None, waiting_since=None)
    turn.want_pass(f"'{record.name}' was killed" if why == "by request" else f"'{record.name}' is gone: {why}")


def amend(turn: Turn, request: Amend) -> None:
    record = living(turn, request.pipeline)
    name = record.name
    minimum = record.minimum if request.minimum is None else request.minimum
    maximum = record.maximum if request.maximum is None else request.maximum
    if (request.minimum, request.maximum) != (None, None):
        check_sizes(turn, minimum, maximum, record.submission.desired)
    _check_amendment(turn, record, request)
    if request.priority is not None and request.priority != record.initial_priority:
        _check_priority_may_change(turn, record)
    fields = {
        "target": request.target or record.target,
        "minimum": minimum,
        "maximum": maximum,
        "load": record.load if request.load is None else request.load,
        "elastic": record.elastic if request.elastic is None else changed_options(record.elastic, request.elastic),
    }
    changed = [what for what, value in fields.items() if getattr(record, what) != value]
    if changed:
        # another target is another plan: its size is found anew from there
        anew = {"elastic_units": None, "following": Following()} if "target" in changed else {}
        turn.change(name, **fields, **anew)
        turn.say(name, "amended", why=", ".join(changed))
        if changed != ["load"]:
            turn.want_pass(f"{', '.join(changed)} of '{name}' changed")
    if request.priority is not None and request.priority != record.initial_priority:
        turn.change(name, initial_priority=request.priority)
        follow_priority(turn, name, f"priority of '{name}' set to {request.priority}")
    if request.paused is not None:
        _pause_or_activate(turn, name, paused=request.paused)


def _check_amendment(turn: Turn, record: PipelineRecord, request: Amend) -> None:
    if request.target is not None:
        check_target(request.target)
        check_sizing(turn, record.submission, request.target)
    check_load(request.load)
    if request.elastic is not None:
        check_elastic(changed_options(record.elastic, request.elastic))
    if request.priority is not None:
        check_level(request.priority)


def _check_priority_may_change(turn: Turn, record: PipelineRecord) -> None:
    if turn.state.policy.fixes_priorities and record.state is not PipelineState.SUBMITTED:
        raise ConflictError(
            f"pipeline '{record.name}' is {record.state}: {turn.state.policy.sharing} takes priorities only before "
            "submission; take dynamic-priority or fair-priority"
        )


def _pause_or_activate(turn: Turn, name: str, *, paused: bool) -> None:
    record = turn.pipelines[name]
    if not paused and record.state is PipelineState.FAILED:
        turn.move(name, Happening.ACTIVATED, "by request", deaths=0, paused=False)
        turn.want_pass(f"'{name}' is to run again")
        return
    if paused and record.state is PipelineState.FAILED:
        raise ConflictError(f"pipeline '{name}' is failed: there is nothing to pause")
    if paused and record.submission.engine is EngineName.ATTACHED:
        raise ConflictError(f"pipeline '{name}' is attached: its queries are its own, and nobody else pauses them")
    if paused == record.paused:
        return
    if paused:
        turn.change(name, paused=True, assigned=(), change=None)
    else:
        turn.change(name, paused=False)
    turn.say(name, "asked", why="pause" if paused else "activate")
    if not paused and record.state is PipelineState.PAUSED:
        turn.move(name, Happening.ACTIVATED, "by request")
    turn.want_pass(f"'{name}' was {'paused' if paused else 'activated'}")


def add_trigger(turn: Turn, request: AddTrigger) -> None:
    record = living(turn, request.pipeline)
    if len(record.triggers) >= MOST_TRIGGERS:
        raise ConflictError(f"pipeline '{record.name}' has {MOST_TRIGGERS} triggers, which is the most one may have")
    number = turn.state.triggers_made + 1
    turn.set_state(triggers_made=number)
    trigger = replace(request.trigger, id=number)
    check_trigger(trigger)
    turn.change(record.name, triggers=(*record.triggers, trigger))
    turn.say(record.name, "trigger", None, "added", described(trigger))


def edit_trigger(turn: Turn, request: EditTrigger) -> None:
    record = living(turn, request.pipeline)
    old = trigger_of(record, request.trigger.id)
    check_trigger(request.trigger)
    new = replace(request.trigger, on=old.on, on_since=old.on_since, by_hand=old.by_hand)
    if not new.enabled:
        new = switched(new, on=False, now=turn.now)
    _put_trigger(turn, record, new)
    turn.say(record.name, "trigger", "enabled" if old.enabled else "disabled", "edited", described(new))
    follow_priority(turn, record.name, described(new))


def remove_trigger(turn: Turn, request: RemoveTrigger) -> None:
    record = living(turn, request.pipeline)
    old = trigger_of(record, request.id)
    turn.change(record.name, triggers=tuple(trigger for trigger in record.triggers if trigger.id != request.id))
    turn.say(record.name, "trigger", "on" if old.on else "off", "removed", described(old))
    follow_priority(turn, record.name, f"{described(old)} was removed")


def switch_trigger(turn: Turn, request: SwitchTrigger) -> None:
    record = living(turn, request.pipeline)
    trigger = trigger_of(record, request.id)
    if not trigger.enabled:
        raise ConflictError(f"trigger {trigger.id} of '{record.name}' is disabled; enable it first")
    set_trigger(turn, record, switched(trigger, on=request.on, now=turn.now, by_hand=True), "by hand")


def set_trigger(turn: Turn, record: PipelineRecord, trigger: Trigger, how: str) -> None:
    """A trigger was evaluated or switched: where it went on or off, that is said, and the priority follows."""
    old = trigger_of(record, trigger.id)
    if old == trigger:
        return
    _put_trigger(turn, record, trigger)
    if old.on != trigger.on:
        word = "on" if trigger.on else "off"
        turn.say(record.name, "message", "pipeline", "manager", f"trigger {word}: {described(trigger)}")
        follow_priority(turn, record.name, f"{described(trigger)} went {word}, {how}")


def trigger_of(record: PipelineRecord, number: int) -> Trigger:
    for trigger in record.triggers:
        if trigger.id == number:
            return trigger
    raise NotFoundError(f"pipeline '{record.name}' has no trigger {number}")


def _put_trigger(turn: Turn, record: PipelineRecord, trigger: Trigger) -> None:
    turn.change(record.name, triggers=tuple(trigger if old.id == trigger.id else old for old in record.triggers))


def set_policy(turn: Turn, request: SetPolicy) -> None:
    policy, before = request.policy, turn.state.policy
    SHARERS.create(policy.sharing)
    check_choices(PlanChoices(policy.allocator, policy.placer, policy.segmenter))
    check_level(policy.default_priority)
    if policy != before:
        turn.set_state(policy=policy)
        turn.say("controller", "policy", before.sharing, policy.sharing)
        changed = [
            f"the {name} became {getattr(policy, name) or 'the default'}"
            for name in ("placer", "allocator", "segmenter")
            if getattr(policy, name) != getattr(before, name)
        ]
        if policy.sharing != before.sharing or not changed:
            changed.insert(0, f"the policy became {policy.sharing}")
        turn.want_pass(", ".join(changed))


def expect_node(turn: Turn, request: ExpectNode) -> None:
    node = request.node
    known = turn.nodes.get(node.name)
    if known is not None and known.state is NodePhase.ALIVE:
        # it was quicker than the word that it would come
        return
    if known is not None and known.state is not NodePhase.GONE:
        raise ConflictError(f"node '{node.name}' exists already and is {known.state}")
    if (fault := node_fault(node, turn.state.unit_slots)) is not None:
        raise FieldError("slots", f"node '{node.name}': {fault}")
    turn.nodes[node.name] = replace(node, state=NodePhase.JOINING, since=turn.now)
    turn.say(node.name, "node", None, NodePhase.JOINING, request.why)


def release_node(turn: Turn, request: ReleaseNode) -> None:
    node = turn.node(request.name)
    if node.state in {NodePhase.LEAVING, NodePhase.GONE}:
        return
    turn.move_node(node.name, NodeHappening.RELEASED, request.why)
    turn.want_pass(f"node '{node.name}' is released")


def nodes_refused(turn: Turn, request: NodesRefused) -> None:
    turn.say("controller", "node", None, None, request.why)


def overdue(turn: Turn, record: PipelineRecord) -> bool:
    limit = DEADLINES.get(record.state)
    return limit is not None and turn.age(record.since) >= limit


# Set aside a pipeline or trigger that makes steps raise, so that decisions about all others continue.


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
