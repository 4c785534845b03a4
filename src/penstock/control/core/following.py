"""Sizes that follow the load: what pipelines report is added up, and every few seconds each that may change its size is
asked whether it should. Who was submitted with a number of units keeps it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from penstock.control.core.outcome import DecisionKind, Rejected
from penstock.control.core.records import Engine
from penstock.control.core.states import PipelineState
from penstock.control.elasticity.follow import decide
from penstock.control.elasticity.forecasts.registry import FORECASTS
from penstock.control.elasticity.limits import Bounds
from penstock.control.elasticity.memory import Following, Memory
from penstock.control.elasticity.options import ElasticOptions
from penstock.control.elasticity.verdict import Observed, VerdictKind
from penstock.control.elasticity.veto import veto_of
from penstock.control.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.core.records import PipelineRecord, Submission
    from penstock.control.core.sizing import Sizing
    from penstock.control.core.turn import Turn
    from penstock.control.elasticity.verdict import SizeVerdict


def noted(following: Following, values: Mapping[str, float]) -> Following:
    """One report more since the last decision; what is no number is not taken for one."""
    rate, done = values.get(Metric.OFFERED_RATE), values.get(Metric.RATE)
    if not _number(rate):
        return following
    backlog, busy, latency = (values.get(metric) for metric in (Metric.BACKLOG, Metric.BUSY, Metric.LATENCY_MS))
    return replace(
        following,
        rates=following.rates + float(rate or 0.0),
        done=following.done + (float(done) if done is not None and _number(done) else 0.0),
        readings=following.readings + 1,
        latest=_latest(following.latest, float(rate or 0.0)),
        backlog=float(backlog) if backlog is not None and _number(backlog) else following.backlog,
        busy=_mean(following.busy, busy, following.readings),
        latency_ms=float(latency) if latency is not None and _number(latency) else None,
    )


def _latest(known: float | None, rate: float) -> float:
    """Mostly the last reading."""
    return rate if known is None else 0.2 * known + 0.8 * rate


def _mean(known: float | None, value: float | None, readings: int) -> float | None:
    """Of all readings since the last decision; None where one of them did not say it."""
    if value is None or not _number(value) or (readings and known is None):
        return None
    return ((known or 0.0) * readings + float(value)) / (readings + 1)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0


def follow_loads(turn: Turn) -> None:
    for record in list(turn.pipelines.values()):
        # an attached application follows by itself, and asks
        alone = record.submission.desired is not None or record.submission.engine is Engine.ATTACHED
        if record.state is PipelineState.ACTIVE and not alone and record.assigned:
            _follow(turn, record)


def _follow(turn: Turn, record: PipelineRecord) -> None:
    options = options_of(record)
    following = record.following
    if following.decided_at is None:
        # readings of the start say nothing yet
        turn.change(
            record.name,
            following=replace(Following(memory=following.memory, learned=following.learned), decided_at=turn.now),
        )
        return
    if turn.age(following.decided_at) < options.decide_seconds:
        return
    memory = following.memory or Memory(forecast=FORECASTS.create(options.forecast))
    memory, verdict = decide(
        memory,
        _observed(turn, record),
        _Sizes(turn.sizing, record.submission),
        Bounds(record.minimum, record.maximum),
        options,
        turn.now,
        veto_of(options.veto),
    )
    said_last = _say(turn, record, verdict, following.said_last)
    turn.change(record.name, following=Following(memory, turn.now, learned=following.learned, said_last=said_last))
    if verdict.changes:
        _scale(turn, record, verdict)


def _observed(turn: Turn, record: PipelineRecord) -> Observed:
    following = record.following
    count = following.readings
    target_ms = record.target.latency_ms
    return Observed(
        rate=following.rates / count if count else None,
        processed_rate=following.done / count if count else None,
        backlog=following.backlog or 0.0,
        busy=following.busy,
        latency_s=None if following.latency_ms is None else following.latency_ms / 1000,
        held=turn.state.units(record.held),
        asked=record.desired,
        latency_target_s=None if target_ms is None else target_ms / 1000,
        latest=following.latest,
    )


def _scale(turn: Turn, record: PipelineRecord, verdict: SizeVerdict) -> None:
    turn.decide(
        record.name,
        DecisionKind.SCALE,
        record.desired,
        verdict.units,
        verdict.why,
        tuple(Rejected(alternative, why) for alternative, why in verdict.rejected),
        {"units": verdict.units, **dict(verdict.expected)},
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
    return _options(tuple(sorted((record.elastic or {}).items())))


@lru_cache(maxsize=256)
def _options(given: tuple[tuple[str, Any], ...]) -> ElasticOptions:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list | tuple) else value for name, value in given}
    return ElasticOptions(**plain)


class _Sizes:
    """The models' answers for one pipeline."""

    def __init__(self, sizing: Sizing, submission: Submission) -> None:
        self._sizing = sizing
        self._submission = submission

    def units_for(self, rate: float) -> int | None:
        return self._sizing.units_for(self._submission, rate)

    def rate_on(self, units: int) -> float | None:
        return self._sizing.rate_on(self._submission, units) if units else 0.0
