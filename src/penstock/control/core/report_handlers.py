"""What executors, nodes and the clock report. A report of something that is no longer current is not heard."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.control.core.elastic_sizes import follow_loads, noted
from penstock.control.core.messages import DecisionKind, Rejected
from penstock.control.core.orders import note_placed
from penstock.control.core.passes import PERIODIC
from penstock.control.core.priorities import effective_priority, evaluated, write_priority
from penstock.control.core.records import (
    JOIN_SECONDS,
    MOST_UNITS,
    PASS_SECONDS,
    EngineName,
    Happening,
    NodeHappening,
    NodePhase,
    PipelineState,
)
from penstock.control.core.request_handlers import let_end, node_fault, overdue, set_trigger
from penstock.control.core.turn import Blamable, Blaming, working_on
from penstock.control.elasticity.readings import after_parts

if TYPE_CHECKING:
    from penstock.cluster.topology import Slot
    from penstock.control.core.messages import (
        Asks,
        Died,
        Drained,
        DriverEnded,
        FirstTuple,
        Gone,
        Holds,
        NodeJoined,
        NodeLost,
        Readings,
        Started,
        TimePassed,
    )
    from penstock.control.core.records import PipelineRecord
    from penstock.control.core.turn import Turn


FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
MOST_DEATHS = 6
"""In a row; then it has failed."""
REMEMBERED_SECONDS = 86_400.0
CALM_SECONDS = 600.0
"""After so long without a death the earlier ones no longer count."""


def back_off(deaths: int) -> float:
    """Seconds before the next start: 1, 2, 4, ... 60."""
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2 ** (deaths - 1)))


def _current(turn: Turn, pipeline: str, incarnation: int) -> PipelineRecord | None:
    record = turn.pipelines.get(pipeline)
    return record if record is not None and record.incarnation == incarnation else None


def started(turn: Turn, report: Started) -> None:
    record = _current(turn, report.pipeline, report.incarnation)
    if record is not None and record.state is PipelineState.STARTING:
        share = turn.state.units(record.assigned)
        turn.say(record.name, "message", "manager", "pipeline", f"activate with {share}")
        turn.move(record.name, Happening.STARTED, "its driver is up")
        note_placed(turn, record.name)


def holds(turn: Turn, report: Holds) -> None:
    """Of the present order it says all; of an older one only that these are taken too. A slot that does not exist, or
    that somebody else was given, it cannot have."""
    record = turn.pipelines.get(report.pipeline)
    if record is None:
        return
    own, others = record.may_hold, [other for other in turn.pipelines.values() if other is not record]
    slots = tuple(
        slot
        for slot in dict.fromkeys(report.slots)
        if slot.node in turn.nodes
        and (slot in own or (_exists(turn, slot) and not any(slot in other.may_hold for other in others)))
    )
    if report.serial == record.serial:
        turn.change(record.name, held=slots, may_hold=frozenset(slots) | frozenset(record.requested))
        note_placed(turn, record.name)
    elif report.serial < record.serial:
        turn.change(record.name, held=slots, may_hold=record.may_hold | frozenset(slots))


def _exists(turn: Turn, slot: Slot) -> bool:
    return 0 <= slot.number < turn.nodes[slot.node].slots


def first_tuple(turn: Turn, report: FirstTuple) -> None:
    record = turn.pipelines.get(report.pipeline)
    if record is None or report.serial != record.serial or record.change is None or record.change.placed_at is None:
        return
    turn.say(record.name, "message", "pipeline", "manager", "first tuple")
    turn.measure(record.change)
    took = turn.age(record.change.asked_at)
    turn.change(record.name, change=None, following=replace(record.following, took=took))


def drained(turn: Turn, report: Drained) -> None:
    record = _current(turn, report.pipeline, report.incarnation)
    if record is not None and record.state is PipelineState.DRAINING:
        _is_drained(turn, record, Happening.DRAINED, "nothing is in flight")


def _is_drained(turn: Turn, record: PipelineRecord, happening: Happening, why: str) -> None:
    turn.say(record.name, "message", "pipeline", "manager", "drained")
    change = record.change and replace(record.change, drained_at=turn.now)
    turn.move(record.name, happening, why, change=change)
    if record.pending_priority is not None:
        # a trigger may have switched again meanwhile: its latest state counts
        write_priority(turn, record.name, effective_priority(record))
    turn.want_pass(f"'{record.name}' has drained")


def died(turn: Turn, report: Died) -> None:
    record = _current(turn, report.pipeline, report.incarnation)
    if record is None:
        return
    if record.state is PipelineState.DRAINING:
        _is_drained(turn, record, Happening.DIED, f"its driver died: {report.why}")
    elif record.state in {PipelineState.STARTING, PipelineState.ACTIVE}:
        _back_off(turn, record, report.why)


def _back_off(turn: Turn, record: PipelineRecord, why: str) -> None:
    calm = record.state is PipelineState.ACTIVE and turn.age(record.since) >= CALM_SECONDS
    deaths = 1 if calm else record.deaths + 1
    wait = back_off(deaths)
    turn.move(
        record.name,
        Happening.DIED,
        f"{why}; starts again in {wait:g} s",
        deaths=deaths,
        retry_at=turn.now + wait,
        change=None,
    )
    if deaths >= MOST_DEATHS:
        reason = f"its driver died {deaths} times in a row, the last time: {why}"
        turn.move(record.name, Happening.GAVE_UP, reason, assigned=(), retry_at=None)
        turn.decide(record.name, DecisionKind.FAIL, turn.state.units(record.assigned), 0, reason)
        turn.want_pass(f"'{record.name}' has failed")


def ended(turn: Turn, report: DriverEnded) -> None:
    record = turn.pipelines.get(report.pipeline)
    if record is not None and record.state in {PipelineState.ENDING, PipelineState.FAILED}:
        if record.state is PipelineState.ENDING:
            turn.move(record.name, Happening.ENDED, "its executors are gone")
        turn.change(record.name, held=(), may_hold=frozenset())


def readings(turn: Turn, report: Readings) -> None:
    record = turn.pipelines.get(report.pipeline)
    if record is None:
        return
    turn.change(
        record.name,
        readings=MappingProxyType({**record.readings, **report.values}),
        following=replace(
            noted(record.following, report.values, turn.now),
            learned=after_parts(record.following.learned, report.parts, turn.now, report.values),
        ),
    )
    if record.state is not PipelineState.ACTIVE:
        return
    for trigger in record.triggers:
        with Blaming(Blamable.TRIGGER, record.name, trigger.id):
            after = evaluated(trigger, report.values, report.signals, turn.now)
            set_trigger(turn, turn.pipelines[record.name], after, "by what it reports")


def node_joined(turn: Turn, report: NodeJoined) -> None:
    node = report.node
    known = turn.nodes.get(node.name)
    if known is not None and known.state in {NodePhase.ALIVE, NodePhase.LEAVING}:
        return
    if (fault := node_fault(node, turn.state.unit_slots)) is not None:
        turn.say(node.name, "node", None, None, f"not used: {fault}")
        return
    if known is None:
        known = turn.nodes[node.name] = replace(node, state=NodePhase.JOINING, since=turn.now)
    turn.nodes[node.name] = replace(node, state=known.state, since=known.since)
    turn.move_node(node.name, NodeHappening.JOINED)
    turn.want_pass(f"node '{node.name}' joined")


def node_lost(turn: Turn, report: NodeLost) -> None:
    node = turn.nodes.get(report.name)
    if node is None or node.state not in {NodePhase.ALIVE, NodePhase.LEAVING}:
        return
    turn.move_node(node.name, NodeHappening.LOST, report.why)
    for record in list(turn.pipelines.values()):
        if any(slot.node == node.name for slot in record.held):
            # `may_hold` stays until the executors report: the node may come back. The pass decides on the replacement,
            # with the reason
            turn.change(record.name, held=tuple(slot for slot in record.held if slot.node != node.name))
    turn.want_pass(f"node '{node.name}' was lost")


def tick(turn: Turn, _: TimePassed) -> None:
    for record in list(turn.pipelines.values()):
        with working_on(record.name):
            _let_time_pass(turn, record)
    for node in list(turn.nodes.values()):
        with Blaming(Blamable.NODE, node.name):
            if node.state is NodePhase.JOINING and turn.due(node.since, JOIN_SECONDS):
                turn.move_node(node.name, NodeHappening.GAVE_UP, f"did not come within {JOIN_SECONDS:g} s")
    follow_loads(turn)
    if turn.due(turn.state.last_pass, PASS_SECONDS):
        turn.want_pass(PERIODIC)
        _forget(turn)


def _let_time_pass(turn: Turn, record: PipelineRecord) -> None:
    if record.since > turn.now:
        # the clock was set back: a start in the future becomes now
        record = turn.change(record.name, since=turn.now)
    if overdue(turn, record):
        _past_deadline(turn, record)
    elif record.state is PipelineState.BACKING_OFF and _may_retry(turn, record):
        turn.move(record.name, Happening.RETRIED, "back-off is over", retry_at=None)
        turn.want_pass(f"'{record.name}' starts again")


def _forget(turn: Turn) -> None:
    """What is over is remembered for a day."""
    for record in list(turn.pipelines.values()):
        if record.state is PipelineState.KILLED and turn.age(record.since) >= REMEMBERED_SECONDS:
            del turn.pipelines[record.name]
    for node in list(turn.nodes.values()):
        if node.state is NodePhase.GONE and turn.age(node.since) >= REMEMBERED_SECONDS:
            del turn.nodes[node.name]


def _may_retry(turn: Turn, record: PipelineRecord) -> bool:
    """Also when the clock was set back: nobody waits longer than the longest wait."""
    return record.retry_at is None or turn.now >= record.retry_at or record.retry_at - turn.now > LONGEST_WAIT


def _past_deadline(turn: Turn, record: PipelineRecord) -> None:
    waited = f"nothing was heard for {turn.age(record.since):.0f} s"
    if record.state is PipelineState.STARTING:
        _back_off(turn, record, f"it did not start: {waited}")
    elif not record.forced:
        turn.say(record.name, "forced", record.state, None, waited)
        turn.change(record.name, forced=True, serial=record.serial + 1, since=turn.now)
    elif record.state is PipelineState.DRAINING:
        _is_drained(turn, record, Happening.DRAINED, f"it was ended by force: {waited}")


# Reports of attached applications: the size they want, and that they are gone.


def asks(turn: Turn, report: Asks) -> None:
    """It knows its own model; how much of what it asks for it gets is decided in the pass."""
    record = _attached(turn, report.pipeline)
    if record is None:
        return
    report = replace(report, units=min(MOST_UNITS, max(1, report.units)))
    if record.elastic_units == report.units:
        return
    before = record.desired
    after = turn.change(record.name, elastic_units=report.units, needed=report.units).desired
    if after == before == report.units:
        return
    rejected: tuple[Rejected, ...] = ()
    if after != report.units:
        bound = f"its minimum is {record.minimum}" if after > report.units else f"its maximum is {record.maximum}"
        rejected = (Rejected(f"{report.units}, as it asks", bound),)
    turn.decide(
        record.name, DecisionKind.SCALE, before, after, report.why, rejected, {"units": after, **report.expected}
    )
    turn.want_pass(f"'{record.name}' follows its load")


def gone(turn: Turn, report: Gone) -> None:
    record = _attached(turn, report.pipeline)
    if record is not None:
        let_end(turn, record, report.why)


def _attached(turn: Turn, name: str) -> PipelineRecord | None:
    record = turn.pipelines.get(name)
    return record if record is not None and record.submission.engine is EngineName.ATTACHED else None
