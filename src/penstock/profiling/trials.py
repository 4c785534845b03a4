"""Trials: one operator alone in one slot, at one number of threads and one rate.

One query is kept alive over all trials of all operators; what it does next stands in a file it reads (trial_source). So
a trial costs its own seconds and little more.

What counts. CPU of the slot is that of Spark's whole process tree on this machine: Java, the worker with the operator's
threads, whatever the operator started, and the engine's own Python workers. CPU of the operator is that of its worker
and below; the engine's share is the difference. Memory is the highest resident memory of the operator's worker and
below during the trial, above the base: what a worker holds (interpreter, Arrow) with an operator that does nothing,
and without the rows the trial repeats. A worker that is busy does not idle, so nothing is taken off its CPU. Java's
memory is the engine's and in no model. This process, which collects results, is no part of a slot.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import psutil

from penstock.base.clock import now
from penstock.base.errors import BadInputError, RunFailedError
from penstock.base.files import temporary_folder
from penstock.connectors.number_files import read_number
from penstock.dataflow.logic import Logic, Per
from penstock.engines.fused.restartable_query import reason
from penstock.profiling.replay import replayed_bytes
from penstock.profiling.samples import OperatorSample, numbers
from penstock.profiling.trial_function import OUTPUT_SCHEMA, TrialFunction, packed
from penstock.profiling.trial_search import TrialSchedule, batch_spread, busy_seconds
from penstock.profiling.trial_source import NAME, NOTHING_ON_TRIAL, TrialSetting, TrialSource
from penstock.report.report import Audit, BatchObservation, OperatorObservation, SlotObservation, summarise
from penstock.runtime.account import Account
from penstock.spark.session.process_tree import (
    MachineUsage,
    TreeUsage,
    cpu_between,
    cpu_by_process,
    java_started_here,
    share_given,
    share_of_others,
    tree_usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


# Costs of Spark and a worker with any operator: per batch, and per tuple.


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


MORE_THAN_ANY = 1e9
"""Tuples/s no operator keeps up with: offered to see what a slot does when there is always more to do."""
INTERVAL_MS = 100
POLL_SECONDS = 0.2
REST_SECONDS = 0.15
"""How long the operator that does nothing waits per batch: longer than the interval, which then plays no part."""
_RESTING = "an operator that waits"
_IDLE = {Per.ROW: "code per row that does nothing", Per.ARROW: "code over columns that does nothing"}
LATENCY_POINTS = 65
"""Latencies of a batch are told by so many of its tuples."""
_HEAD_START = 1.0
"""Seconds of tuples that wait when a saturated trial begins, so that its first batch is full already."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What one slot did: the rate it took in, whether it kept up, and what it used meanwhile (CPU 1.0 = one core)."""

    threads: int
    rate: float
    stable: bool
    cpu: float
    """Of the slot's whole process tree."""
    memory_mb: float
    """The peak of the operator's worker, above its base."""
    operator_cpu: float = 0.0
    """Of the operator's worker alone."""
    busy: float = 1.0
    """The share of the time in which the operator's code was at work; the rest is the engine, or waiting for tuples."""
    others: float = 0.0
    """The part of the machine that other processes, and its host, used meanwhile."""
    pace: float | None = None
    """How fast the operator's core was: pieces of a fixed work that it did in a second it was wanted; None: too few to
    say."""
    given: float = 1.0
    """The part of the time in which a core was wanted that the host gave one."""
    batch_spread: float | None = None
    """How much of its mean the time for a batch varied by; None: too few to say."""


class TrialRunner(Protocol):
    """Somewhere trials can be run. Profiling decides; a bench does."""

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        """Offer `rate` for `seconds`: was it stable?"""

    def saturate(self, threads: int, seconds: float) -> Trial:
        """Offer more than can be done for `seconds`: how much was done?"""


@dataclass(frozen=True, slots=True)
class _Usage:
    """CPU seconds so far, of the engine's processes one by one and of the operator's worker and below."""

    engine: dict[int, float]
    worker: float


class TrialQuery:
    """The one query that runs all trials: a context, inside which `bench(operator)` gives benches.

    `tick` is called several times a second while a trial is under way. `samples` are what operators get in their
    pipeline (`penstock.profiling.samples`); one without gets numbers. `audit`: ids are audited, as in runs.
    """

    def __init__(
        self,
        session: SparkSession,
        logic: Mapping[str, Logic],
        environment: Mapping[str, str],
        tick: Callable[[], None] = lambda: None,
        samples: Mapping[str, OperatorSample] | None = None,
        *,
        audit: bool = False,
    ) -> None:
        self._session = session
        self._samples = samples or {}
        idle = {name: Logic(_nothing, per) for per, name in _IDLE.items()}
        on_trial = {**logic, _RESTING: Logic(_rest), **idle}
        fed = {name: self._samples.get(name) or numbers(name, code) for name, code in on_trial.items()}
        self._code = packed({name: (code, fed[name]) for name, code in on_trial.items()})
        self._fed_mb = {name: replayed_bytes(sample) / 2**20 for name, sample in fed.items()}
        self._audit = audit
        self._environment = tuple(environment.items())
        self._tick = tick
        self._kept = contextlib.ExitStack()
        self._folder = self._kept.enter_context(temporary_folder("trials"))
        self._java = java_started_here(session)
        self._setting = NOTHING_ON_TRIAL
        self._over = threading.Event()
        self._worker: psutil.Process | None = None
        self._base_mb = 0.0
        self._others, self._given = 0.0, 1.0
        self._query: StreamingQuery | None = None

    def __enter__(self) -> TrialQuery:
        self._setting.write(self._folder)
        context: Any = self._session.sparkContext
        self._session.dataSource.register(TrialSource)
        frame = self._session.readStream.format(NAME).option("folder", str(self._folder)).load()
        # Spark keeps workers apart by their environment: so the operator's never doubles as the one that reads.
        context.environment["PENSTOCK_TRIALS"] = self._folder.name
        try:
            function = TrialFunction(str(self._folder), self._code, self._environment, self._audit)
            mapped = frame.mapInArrow(function, OUTPUT_SCHEMA)
        finally:
            del context.environment["PENSTOCK_TRIALS"]
        self._query = (
            mapped.writeStream.foreachBatch(self._write)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .queryName(self._folder.name)
            .trigger(processingTime=f"{INTERVAL_MS} milliseconds")
            .start()
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        replace(self._setting, held=True).write(self._folder)
        if self._query is not None:
            self._query.stop()
        self._kept.close()

    def bench(self, operator: str, batch_seconds: float, fewest_batches: int = 2) -> SparkBench:
        """For trials of one operator, in a worker process that has seen no other, with batches of so much work."""
        self._retire_worker()
        return SparkBench(self, operator, batch_seconds, fewest_batches)

    def engine_cost(self, seconds: float) -> EngineCost:
        """From a trial of an operator that only waits, with one tuple a batch: what is not waiting is the engine. The
        memory of the first such trial, in a worker that has seen no operator yet, is the base of all others."""
        schedule = self.run(_RESTING, 1, MORE_THAN_ANY, TrialSchedule(now() - _HEAD_START, seconds + _HEAD_START, 1))
        counted = schedule.counted[1:]
        wall = counted[-1].finished - schedule.counted[0].finished - sum(map(busy_seconds, counted))
        engine, worker = self._used(schedule)
        self._base_mb = self._base_mb or self._peak_mb
        return EngineCost(wall / len(counted), engine / len(counted), worker / len(counted), self._base_mb)

    def handling_cost(self, per: Per, seconds: float, batch_seconds: float) -> TupleCost:
        """What a worker needs for every tuple, from a saturated trial of an operator that does nothing: all of the time
        it is at work, and of its CPU."""
        trial = self.bench(_IDLE[per], batch_seconds).saturate(1, seconds)
        return TupleCost(trial.busy / trial.rate, min(trial.busy, trial.operator_cpu) / trial.rate)

    def run(self, operator: str, threads: int, rate: float, schedule: TrialSchedule) -> TrialSchedule:
        """One trial, from setting it up to the end of its last batch. Nothing is emitted after that."""
        trial = TrialSetting(self._setting.number + 1, operator, threads, rate, schedule.start, schedule.most_rows)
        self._schedule = schedule
        self._first_error: str | None = None
        self._usage: list[_Usage] = []
        self._peak_mb = 0.0
        self._over.clear()
        began = MachineUsage.now()
        self._set(trial)
        while not self._over.wait(POLL_SECONDS):
            self._check()
            self._note_memory()
            self._tick()
        ended = MachineUsage.now()
        self._others, self._given = share_of_others(began, ended), share_given(began, ended)
        return schedule

    def judge(self, threads: int, rate: float, schedule: TrialSchedule) -> Trial:
        """What the batches that count say."""
        report = summarise(schedule.counted, rate, 0.0, Audit(0, 0, 0, 0, 0))
        operator = report.operators[self._setting.operator]
        if 2 * operator.dead > operator.received:
            name = self._setting.operator
            fed = "tuples it gets in its pipeline" if name in self._samples else "tuples {'value': number}"
            raise BadInputError(
                f"operator '{name}': its code raised for {operator.dead} of {operator.received} tuples of a trial, so "
                f"there is nothing to measure; trials feed it {fed}; the first error was {self._first_error}"
            )
        engine, worker = self._used(schedule)
        return Trial(
            threads=threads,
            rate=report.sustained_rate,
            stable=report.stable,
            cpu=(engine + worker) / report.seconds,
            memory_mb=self._operators_mb(),
            operator_cpu=worker / report.seconds,
            busy=sum(map(busy_seconds, schedule.counted[1:])) / report.seconds,
            others=self._others,
            pace=None if report.pace is None else report.pace * self._given,
            given=self._given,
            batch_spread=batch_spread(schedule.counted[1:]),
        )

    def _operators_mb(self) -> float:
        """Without the rows that trials repeat, which no run holds; those of the base are in it."""
        fed = self._fed_mb[self._setting.operator] - self._fed_mb[_RESTING]
        return max(0.0, self._peak_mb - self._base_mb - fed)

    def _used(self, schedule: TrialSchedule) -> tuple[float, float]:
        """CPU seconds of the engine, and of the operator's worker, over the batches that count."""
        begin, end = self._usage[schedule.counts_from or 0], self._usage[len(schedule.batches) - 1]
        return cpu_between(begin.engine, end.engine), max(0.0, end.worker - begin.worker)

    def _set(self, setting: TrialSetting) -> None:
        self._setting = setting
        setting.write(self._folder)

    def _write(self, frame: DataFrame, number: int) -> None:
        """For `foreachBatch`: the trial is steered here, between two batches, so that none is wasted."""
        accounts = frame.where("account IS NOT NULL").drop("rows").toArrow().to_pylist()
        batch = self._observed(accounts[0]) if accounts else None
        if batch is None:  # Spark may begin with one that holds nothing
            return
        self._find_worker()
        self._usage.append(_Usage(cpu_by_process(self._java, self._worker), self._note_memory().cpu_seconds))
        self._schedule.see(batch)
        over = self._schedule.over
        if over or self._schedule.most_rows != self._setting.most_rows:
            self._set(replace(self._setting, most_rows=self._schedule.most_rows, held=over))
        if over:
            self._over.set()

    def _observed(self, row: Mapping[str, Any]) -> BatchObservation | None:
        account, setting = Account.from_bytes(row["account"]), self._setting
        if not account.rows_in:
            return None
        if self._first_error is None and account.errors:
            self._first_error = account.errors[0][2]
        finished, first, taken = now(), row["first"], account.rows_in
        chosen = np.unique(np.linspace(first, first + taken - 1, LATENCY_POINTS).round())
        return BatchObservation(
            finished=finished,
            tuples=taken,
            backlog=0,
            latencies=finished - (setting.start + (chosen + 1) / setting.rate),
            operators={
                name: OperatorObservation(
                    counted.rows_in, counted.rows_out, counted.filtered, counted.dead, counted.busy_seconds
                )
                for name, counted in account.operators.items()
            },
            slots=(
                SlotObservation(
                    slot=0,
                    cpu_seconds=row["cpu_seconds"],
                    wall_seconds=row["wall_seconds"],
                    memory_mb=account.memory_bytes / 2**20,
                    pieces=account.pieces_of_work,
                    piece_seconds=account.pieces_seconds,
                ),
            ),
            latency_weight=taken / len(chosen),
        )

    def _find_worker(self) -> None:
        pid = int(read_number(self._folder / "worker"))
        if self._worker is None or self._worker.pid != pid:
            self._worker = psutil.Process(pid)

    def _note_memory(self) -> TreeUsage:
        if self._worker is None:
            return TreeUsage(0.0, 0.0)
        usage = tree_usage(self._worker)
        self._peak_mb = max(self._peak_mb, usage.memory_mb)
        return usage

    def _retire_worker(self) -> None:
        """Ends the idle worker, so that the next operator's memory is not on top of the last one's."""
        if self._worker is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._worker.terminate()
                self._worker.wait()
            self._worker = None

    def _check(self) -> None:
        if self._query is None or not self._query.isActive:
            text = "" if self._query is None else str(self._query.exception())
            raise RunFailedError(f"Spark stopped the trials of operator '{self._setting.operator}': {reason(text)}")


class SparkBench:
    """Trials of one operator on embedded Spark."""

    def __init__(self, query: TrialQuery, operator: str, batch_seconds: float, fewest_batches: int) -> None:
        self._query = query
        self._operator = operator
        self._batch_seconds = batch_seconds
        self._fewest = fewest_batches
        self._rows: dict[int, int] = {}
        """How large batches must be to hold enough work, by threads; found by saturating."""

    def saturate(self, threads: int, seconds: float) -> Trial:
        rows = self._likely_rows(threads)
        start, length = now() - _HEAD_START, seconds + _HEAD_START
        schedule = TrialSchedule(start, length, rows, self._batch_seconds, threads, self._fewest)
        trial = self._run(threads, MORE_THAN_ANY, schedule)
        self._rows[threads] = schedule.most_rows
        return trial

    def try_rate(self, threads: int, rate: float, seconds: float) -> Trial:
        """Starts with a batch waiting. A slot that keeps up catches up, so latency falls or stays; otherwise it rises
        from the first batch on. Started empty, even a slot that keeps up sees latency rise for seconds, until its
        batches have grown to what the rate needs.

        Catching up is more work than keeping up: CPU is that of the whole trial, scaled to `rate`.
        """
        waiting = max(self._batch_seconds, threads / rate)
        rows = self._likely_rows(threads)
        schedule = TrialSchedule(now() - waiting, seconds + waiting, rows, fewest_batches=self._fewest)
        trial = self._run(threads, rate, schedule)
        ahead = trial.rate / rate if trial.stable else 1.0
        if ahead <= 1:
            return trial
        return replace(
            trial,
            rate=rate,
            cpu=trial.cpu / ahead,
            operator_cpu=trial.operator_cpu / ahead,
            busy=trial.busy / ahead,
        )

    def _run(self, threads: int, rate: float, schedule: TrialSchedule) -> Trial:
        self._query.run(self._operator, threads, rate, schedule)
        return self._query.judge(threads, rate, schedule)

    def _likely_rows(self, threads: int) -> int:
        """Those found for as many threads, or for fewer: more threads are seldom slower."""
        known = [count for count in self._rows if count <= threads]
        return threads * -(-self._rows[max(known)] // threads) if known else threads


def _nothing(given: Any) -> Any:
    return given


def _rest(row: dict[str, Any]) -> dict[str, Any]:
    threading.Event().wait(REST_SECONDS)
    return row
