"""What is said of a fused run beside what was measured: what it was predicted to do, and what that leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dataflow.aggregate import Emit
from penstock.dataflow.endpoints import COUNT, file_end, reading_of, writing_of
from penstock.dataflow.pipeline import Kind
from penstock.modelling.model import Model
from penstock.prediction.closing import closing_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.pipeline import Pipeline
    from penstock.prediction.fused import FusedSetup
    from penstock.prediction.rate import Demands


def unmeasured_ends(pipeline: Pipeline, demands: Demands, *, rehearsed: bool) -> list[str]:
    """What the prediction leaves out: the load generator and sinks that only count take next to nothing, and what files
    take is in what was rehearsed."""
    notes = []
    for name, operator in pipeline.operators.items():
        reads = operator.kind is Kind.SOURCE and not reading_of(operator).is_load
        writes = operator.kind is Kind.SINK and writing_of(operator).format != COUNT
        known = isinstance(demands[name], Model) or (rehearsed and file_end(operator) is not None)
        if (reads or writes) and not known:
            notes.append(
                f"what {operator.kind} '{name}' needs to {'read' if reads else 'write'} is in no model: the prediction "
                "leaves it out"
            )
    return notes


def closing_notes(pipeline: Pipeline, setup: FusedSetup, rate: float, interval_seconds: float) -> list[str]:
    """What latency, predicted and measured, leaves out: it ends when a tuple's batch is committed."""
    steady = setup.steady_batch(rate, interval_seconds)
    return [
        f"operator '{name}' sends windows on when they are closed: half of its tuples are in what has left it "
        f"{closing_seconds(aggregate, *steady):.1f} s after they were due, as predicted; latency is counted until a "
        "tuple's batch is committed"
        for name, operator in pipeline.operators.items()
        if (aggregate := operator.aggregate) is not None and aggregate.emit is Emit.CLOSED and steady is not None
    ]


def predictions(setup: FusedSetup, interval_seconds: float, sources: int, *, own_source: bool) -> dict[str, Any]:
    """What a result is told of it: rates are of all `sources` together. The latency of a source of the user's own is
    counted from when Spark took a tuple in: it is that of the batch."""

    def use(rate: float) -> tuple[float, float]:
        slot = setup.use(rate / sources)
        return slot.cpu, slot.memory_mb

    def latency(rate: float, pace: float | None) -> Mapping[str, float] | None:
        run = setup if pace is None else setup.at_pace(pace)
        if own_source:
            return {"p50": 1000 * run.batch_seconds(run.most_rows)}
        return run.latency_ms(rate / sources, interval_seconds)

    return {
        "predicted_use": use,
        "models_pace": setup.pace,
        "rate_at_pace": lambda pace: sources * setup.at_pace(pace).rate(interval_seconds),
        "latency_at": latency,
    }
