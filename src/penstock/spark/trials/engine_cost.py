"""What Spark and a worker need whatever the operator does: for any batch, and for any tuple."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    passing: TupleCost | None = None
    """Of Spark, for every tuple, its CPU beside the worker's; None: not measured."""

    def handling_seconds(self, per: Per) -> float:
        return self.row_seconds if per is Per.ROW else self.column_seconds

    def least(self, other: EngineCost) -> EngineCost:
        """Of two looks: what a batch takes as the quicker of them says, and the least for a tuple."""
        quicker = min(self, other, key=lambda cost: cost.batch_seconds)
        return replace(
            quicker,
            row_seconds=min(self.row_seconds, other.row_seconds),
            column_seconds=min(self.column_seconds, other.column_seconds),
            column_cpu_seconds=min(self.column_cpu_seconds, other.column_cpu_seconds),
        )


def passing_cost(tuples: int, batches: int, seconds: float, cpu_seconds: float, engine: EngineCost) -> TupleCost:
    """Of n tuples in b batches that took T seconds by the clock, and C of CPU of Spark's whole process tree:
    `(T - b o) / n` and `(C - b c) / n - p`, with o and c for any batch and p for a tuple in the worker."""
    wall = (seconds - batches * engine.batch_seconds) / tuples
    cpu = (cpu_seconds - batches * engine.batch_cpu_seconds) / tuples - engine.column_cpu_seconds
    return TupleCost(max(0.0, wall), max(0.0, cpu))
