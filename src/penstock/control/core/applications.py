"""What attached applications say: how much they would have, and that they are no longer there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.control.core.outcome import DecisionKind, Rejected
from penstock.control.core.people import let_end
from penstock.control.core.records import MOST_UNITS, Engine

if TYPE_CHECKING:
    from penstock.control.core.incoming import Asks, Gone
    from penstock.control.core.records import PipelineRecord
    from penstock.control.core.turn import Turn


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
    return record if record is not None and record.submission.engine is Engine.ATTACHED else None
