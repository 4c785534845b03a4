"""Trials: one operator alone in one slot, at one number of threads and one rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.dataflow.load import Load
from penstock.dataflow.logic import Logic
from penstock.dataflow.pipeline import Kind, Operator, Pipeline, Stream
from penstock.spark.fused import FusedRun, run_fused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from penstock.report.report import Report

MORE_THAN_ANY = 5e6
"""Tuples/s no operator keeps up with: offered to see what a slot does when there is always more to do."""
BATCH_SECONDS = 1.0
"""How much work a batch of a trial holds: enough that the engine's own tenth of a second per batch is small."""
FEWEST_ROWS = 4
OVERHEAD_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What one slot did: the rate it took in, whether it kept up, and its CPU (1.0 = one core) and memory meanwhile."""

    threads: int
    rate: float
    stable: bool
    cpu: float
    memory_mb: float


class Bench(Protocol):
    """Somewhere trials can be run. Profiling decides; a bench does."""

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        """Offer `rate` for `seconds`: was it stable?"""

    def saturate(self, threads: int, seconds: float) -> Trial:
        """Offer more than can be done for `seconds`: how much was done?"""


class SparkBench:
    """Trials of one operator on embedded Spark."""

    def __init__(self, session: SparkSession, operator: str, logic: Logic, environment: Mapping[str, str]) -> None:
        self._session = session
        self._logic = {operator: logic}
        self._environment = environment
        self._operator = operator
        self._rows: dict[int, int] = {}
        """How large batches must be to hold enough work, by threads; found by saturating."""

    def saturate(self, threads: int, seconds: float) -> Trial:
        trial = self._run(threads, MORE_THAN_ANY, seconds, resize=True)
        self._rows[threads] = max(FEWEST_ROWS * threads, int(trial.rate * BATCH_SECONDS))
        return trial

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        return self._run(threads, rate, seconds, resize=False)

    def _run(self, threads: int, rate: float, seconds: float, *, resize: bool) -> Trial:
        report = self.report(threads, rate, seconds, resize=resize)
        cpu, memory = next(iter(report.slots.values()), (0.0, 0.0))
        return Trial(threads, report.sustained_rate, report.stable, cpu + report.engine_cpu, memory)

    def report(self, threads: int, rate: float, seconds: float, *, resize: bool) -> Report:
        pipeline = Pipeline.of(
            f"trial of {self._operator}",
            (
                Operator(name="source of trial", kind=Kind.SOURCE),
                Operator(name=self._operator),
                Operator(name="sink of trial", kind=Kind.SINK),
            ),
            (
                Stream(sender="source of trial", receiver=self._operator),
                Stream(sender=self._operator, receiver="sink of trial"),
            ),
        )
        run = FusedRun(
            pipeline,
            self._logic,
            {self._operator: threads},
            Load.constant(rate),
            slots=1,
            most_rows=self._rows.get(threads, FEWEST_ROWS * threads),
            batch_seconds=BATCH_SECONDS if resize else None,
            environment=self._environment,
        )
        return run_fused(self._session, run, seconds, warm_up=seconds / 2)


def batch_overhead(session: SparkSession) -> float:
    """Seconds the engine needs for a batch, from trials of an operator that does nothing with next to no tuples."""
    bench = SparkBench(session, "nothing", Logic(_same), {})
    bench.report(1, MORE_THAN_ANY, OVERHEAD_SECONDS, resize=False)  # the first query of a session is slow
    report = bench.report(1, MORE_THAN_ANY, OVERHEAD_SECONDS, resize=False)
    return report.seconds / report.batches if report.batches else 0.0


def _same(row: dict[str, Any]) -> dict[str, Any]:
    return row
