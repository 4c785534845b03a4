"""What a simulation saw as the report of a run: the same figures under the same names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from penstock.report.report import Audit, Moment, OperatorObservation, Report

if TYPE_CHECKING:
    from penstock.simulation.outcome import LoadTimeline, PipelineOutcome, SimulationOutcome


def report_of(outcome: SimulationOutcome, pipeline: str) -> Report:
    """Of one of the pipelines, past the warm-up. Slots are those it has threads on, with all that runs there.

    Points of its timeline stand for batches. The backlog is what is due and not done.
    """
    seen = outcome.pipelines[pipeline]
    own = {station.slot for station in seen.stations}
    slots = [slot for slot in outcome.slots if slot in own]
    return Report(
        offered_rate=seen.offered_rate,
        sustained_rate=seen.sustained_rate,
        latency_slope=seen.latency_slope,
        seconds=outcome.seconds - outcome.warm_up,
        latency_ms=seen.latency.milliseconds,
        backlog=round(float(seen.timeline.backlog[-1])) if len(seen.timeline.backlog) else 0,
        operators={
            name: OperatorObservation(operator.processed, operator.sent, 0, 0, operator.busy_seconds)
            for name, operator in seen.operators.items()
        },
        slots={slot: (outcome.slots[slot].cpu, outcome.slots[slot].memory_mb) for slot in slots},
        audit=Audit(seen.emitted, seen.lost, seen.duplicated, 0, 0),
        batches=int((seen.timeline.seconds > outcome.warm_up).sum()),
        notes=_notes(seen),
        history=moments(seen.timeline),
    )


def moments(timeline: LoadTimeline) -> tuple[Moment, ...]:
    lengths = np.diff(timeline.seconds, prepend=0.0)
    rows = zip(
        timeline.seconds.tolist(),
        np.divide(timeline.completed, lengths, out=np.zeros_like(lengths), where=lengths > 0).tolist(),
        timeline.backlog.tolist(),
        timeline.latency_p50.tolist(),
        timeline.latency_p95.tolist(),
        strict=True,
    )
    return tuple(
        Moment(seconds, rate, round(backlog), None if math.isnan(p50) else p50, None if math.isnan(p95) else p95)
        for seconds, rate, backlog, p50, p95 in rows
    )


def _notes(seen: PipelineOutcome) -> tuple[str, ...]:
    notes = [
        f"sources stood still from {stopped:.2f} to {went_on:.2f} s: a switch" for stopped, went_on in seen.drained
    ]
    if seen.replayed:
        notes.append(f"{seen.replayed:,} tuples were emitted again after an outage")
    return tuple(notes)
