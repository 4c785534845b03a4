"""Sizes that follow the load: what pipelines report is added up, and every few seconds each that may change its size is
asked whether it should. Who was submitted with a number of units keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.tolerance import whole_up
from penstock.control.code_hooks import StillAskedError, veto_of
from penstock.control.core.messages import DecisionKind, Rejected
from penstock.control.core.records import EngineName, PipelineState
from penstock.control.core.turn import working_on
from penstock.control.elasticity import readings as gathering
from penstock.control.elasticity.learned_factor import UNKNOWN, drifted, drifted_from
from penstock.control.elasticity.memory import Memory, Observed, VerdictKind
from penstock.control.elasticity.options import Bounds, ElasticOptions, checked_options
from penstock.control.elasticity.readings import BATCH_COST, NOTHING, SLOT_MEMORY, still_risen
from penstock.control.elasticity.size_decision import decide
from penstock.control.registry import FORECASTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.contracts import Sizing
    from penstock.control.core.records import PipelineRecord, Submission
    from penstock.control.core.turn import Turn
    from penstock.control.elasticity.memory import Following, SizeVerdict
    from penstock.control.elasticity.readings import Gathered

NEW_EXECUTORS_SECONDS = 14.0
"""So long two new executors took to come and to do their first batch, on two cores."""
MOST_MEMORY = 0.9
"""Of what a slot has: more is not planned for."""


def noted(following: Following, values: Mapping[str, float], now: float) -> Following:
    """One report more since the last decision."""
    smoothed = None if following.memory is None else following.memory.smoothed
    return replace(following, gathered=gathering.after(following.gathered, values, smoothed, now))


def follow_loads(turn: Turn) -> None:
    for record in list(turn.pipelines.values()):
        # an attached application follows by itself, and asks
        alone = record.submission.desired is not None or record.submission.engine is EngineName.ATTACHED
        if record.state is PipelineState.ACTIVE and not alone and record.assigned:
            with working_on(record.name):
                _follow(turn, record)


def _follow(turn: Turn, record: PipelineRecord) -> None:
    options = options_of(record)
    following = record.following
    if following.decided_at is None:
        # readings of the start say nothing yet
        turn.change(
            record.name,
            following=replace(following, gathered=NOTHING, decided_at=turn.now),
        )
        return
    if not turn.due(following.decided_at, options.decide_seconds) and not following.gathered.has_risen(turn.now):
        return
    memory = following.memory or _first_memory(following, options)
    veto = veto_of(options.veto, record.name)
    try:
        memory, verdict = decide(
            memory,
            _observed(turn, record),
            _Sizes(turn.sizing, record.submission),
            Bounds(max(record.minimum, least_by_memory(turn, record)), record.maximum),
            options,
            turn.now,
            veto,
        )
    except StillAskedError:
        return
    if veto is not None and veto.failed is not None:
        turn.say(record.name, "veto", None, None, f"{veto.code}: {veto.failed}; it forbids nothing")
    said_last = _say(turn, record, verdict, following.said_last)
    drifts = _drifts(turn, record, memory)
    gathered = _next_gathered(following.gathered, verdict, turn.now)
    following = replace(following, memory=memory, decided_at=turn.now, gathered=gathered, said_last=said_last)
    following = replace(following, drifts=drifts)
    turn.change(record.name, following=replace(following, took=None) if verdict.changes else following)
    if verdict.changes:
        _scale(turn, record, verdict)


def _first_memory(following: Following, options: ElasticOptions) -> Memory:
    """A change takes no longer than the start did, which is one too."""
    memory = Memory(forecast=FORECASTS.create(options.forecast))
    if following.took is None:
        return memory
    return memory._replace(first_change=min(NEW_EXECUTORS_SECONDS, following.took))


def _next_gathered(before: Gathered, verdict: SizeVerdict, now: float) -> Gathered:
    """A rise is looked at again soon while what waits grows and is not enough for a change yet."""
    piles_up = before.backlog is not None and before.rate is not None and before.backlog > before.rate
    return still_risen(now) if before.has_risen(now) and piles_up and verdict.kind is VerdictKind.HOLD else NOTHING


def _observed(turn: Turn, record: PipelineRecord) -> Observed:
    gathered = record.following.gathered
    target_ms = record.target.latency_ms
    return Observed(
        rate=gathered.rate,
        processed_rate=gathered.processed_rate,
        backlog=gathered.backlog or 0.0,
        busy=gathered.busy,
        latency_s=None if gathered.latency_ms is None else gathered.latency_ms / 1000,
        held=turn.state.units(record.held),
        asked=record.desired,
        latency_target_s=None if target_ms is None else target_ms / 1000,
        latest=gathered.latest,
        changing=record.change is not None,
        took=record.following.took,
    )


def least_by_memory(turn: Turn, record: PipelineRecord) -> int:
    """Units below which what its slots hold would not fit, were it spread over fewer: memory learned * slots / (what a
    slot has * MOST_MEMORY). Never more than it has: memory is no reason to grow here."""
    held, learned = turn.state.units(record.held), record.following.learned.get(SLOT_MEMORY, UNKNOWN)
    room = [
        node.capacity["memory_mb"] / node.slots
        for slot in record.held
        if (node := turn.nodes.get(slot.node)) is not None and node.capacity.get("memory_mb", 0) > 0
    ]
    if not learned.counts or not room:
        return 1
    units = learned.value * len(record.held) / (MOST_MEMORY * min(room) * turn.state.unit_slots)
    return max(1, whole_up(min(held, units)))


def _memory_used(record: PipelineRecord) -> dict[str, str]:
    """Which figure of memory bounded the size; nothing where none was learned."""
    learned = record.following.learned.get(SLOT_MEMORY, UNKNOWN)
    if not learned.counts:
        return {}
    spread = f"spread {learned.spread:.3g}, {learned.readings} readings"
    return {"memory": f"learned: {learned.value:.4g} MB a slot ({spread})"}


def _drifts(turn: Turn, record: PipelineRecord, memory: Memory) -> Mapping[str, str]:
    """What runs otherwise than it was profiled; an event says when that begins and when it is over."""
    sizing, submission, known = turn.sizing, record.submission, record.following.learned
    slots = turn.state.unit_slots * max(1, turn.state.units(record.held))
    used = None if memory.smoothed is None else sizing.usage(submission, memory.smoothed.level)
    profiled_mb = None if used is None else used[1] / slots
    left = {
        "speed": drifted(memory.speed),
        "memory": drifted_from(known.get(SLOT_MEMORY), profiled_mb, "the memory of a slot"),
        "batch": drifted_from(known.get(BATCH_COST), sizing.batch_cost(submission), "the fixed cost of a batch"),
    }
    drifts = {what: text for what, text in left.items() if text is not None}
    before = record.following.drifts
    for what in drifts.keys() - before.keys():
        turn.say(record.name, "drift", "profiled", "learned", drifts[what])
    for what in before.keys() - drifts.keys():
        turn.say(record.name, "drift", "learned", "profiled", f"{what}: as profiled again")
    return MappingProxyType(drifts) if drifts != dict(before) else before


def _scale(turn: Turn, record: PipelineRecord, verdict: SizeVerdict) -> None:
    turn.decide(
        record.name,
        DecisionKind.SCALE,
        record.desired,
        verdict.units,
        verdict.why,
        tuple(Rejected(alternative, why) for alternative, why in verdict.rejected),
        {"units": verdict.units, **dict(verdict.expected), **_memory_used(record)},
    )
    turn.change(record.name, elastic_units=verdict.units)
    turn.want_pass(f"'{record.name}' follows its load")


def _say(turn: Turn, record: PipelineRecord, verdict: SizeVerdict, said_last: str) -> str:
    """What keeps a size although something is wrong is said once, not at every decision."""
    if verdict.kind not in {VerdictKind.UNMEASURED, VerdictKind.HELD_BACK}:
        return ""
    if str(verdict.kind) != said_last:
        turn.say(record.name, "size", None, str(verdict.kind), verdict.why)
    return str(verdict.kind)


def options_of(record: PipelineRecord) -> ElasticOptions:
    """Checked when it was asked for them; a store of an earlier version may hold others, and that is raised."""
    return _options(json.dumps(record.elastic, sort_keys=True)) if record.elastic else DEFAULT_OPTIONS


DEFAULT_OPTIONS = ElasticOptions()


@lru_cache(maxsize=256)
def _options(given: str) -> ElasticOptions:
    return checked_options(json.loads(given))


class _Sizes:
    """The models' answers for one pipeline."""

    def __init__(self, sizing: Sizing, submission: Submission) -> None:
        self._sizing = sizing
        self._submission = submission

    def units_for(self, rate: float) -> int | None:
        return self._sizing.units_for(self._submission, rate)

    def rate_on(self, units: int) -> float | None:
        return self._sizing.rate_on(self._submission, units) if units else 0.0
