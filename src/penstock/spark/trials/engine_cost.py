"""What Spark and a worker need whatever the operator does: for any batch, and for any tuple."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow.logic import Per


@dataclass(frozen=True, slots=True)
class TupleCost:
    """Of one tuple: by the clock, in one slot, and of CPU."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class EngineCost:
    """What the engine needs for a batch with next to nothing in it, and what a worker holds without any operator."""

    batch_seconds: float
    batch_cpu_seconds: float
    worker_cpu_seconds: float
    """Of the worker, beside the engine."""
    base_memory_mb: float
    row_seconds: float = 0.0
    """Of the worker, for every tuple that comes as columns, is given to code as a dict, and leaves as columns."""
    column_seconds: float = 0.0
    """The same where code gets the columns as they are."""
    column_cpu_seconds: float = 0.0
    """The CPU of that: code over columns waits for Spark most of the time."""

    def handling_seconds(self, per: Per) -> float:
        return self.row_seconds if per is Per.ROW else self.column_seconds

    def least(self, other: EngineCost) -> EngineCost:
        """Of two looks at batches the quicker."""
        return min(self, other, key=lambda cost: cost.batch_seconds)
