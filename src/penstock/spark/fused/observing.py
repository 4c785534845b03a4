"""From what Spark and the tasks tell of a batch to what a report is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.clock import seconds_of
from penstock.cluster.topology import Slot
from penstock.dataflow.logic import Per
from penstock.digits import is_whole
from penstock.report.report import EMBEDDED_NODE, BatchObservation, OperatorObservation, SlotObservation
from penstock.runtime.account import Account
from penstock.spark.fused.progress_offsets import parsed_offset
from penstock.spark.fused.topics import lag_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.spark.fused.accounts import BatchRecords, TaskRecord

LATENCY_POINTS = 65
"""Latencies of a batch are told by so many evenly spaced quantiles."""


class BatchObserver:
    """`load` where the run's own generator is the source: only then is known when a tuple was due. `local_slots`: so
    many threads of one executor are the slots; None: executors are. `reads`: how often the query reads each of its
    sources."""

    def __init__(
        self,
        pipeline: Pipeline,
        code: Mapping[str, Logic],
        load: Load | None,
        *,
        local_slots: int | None,
        reads: float = 1.0,
    ) -> None:
        self._pipeline = pipeline
        self._sparks_own = [
            name
            for name, operator in pipeline.operators.items()
            if operator.aggregate is not None or (name in code and code[name].per is Per.DATAFRAME)
        ]
        self._load = load
        self._untraced: set[str] = set()
        self._late = 0
        """Rows that came behind the watermark, which Spark leaves out."""
        self._local_slots = local_slots
        self._reads = reads
        self._executors: dict[str, list[str]] = {}
        """By host, in the order they were first heard of."""
        self.reached = 0
        """Tuples of the load up to here were committed, as Spark knows them."""
        self.began = 0.0
        """When the load did, in seconds since the epoch."""
        self.first_errors: list[tuple[str, int | None, str]] = []

    def observe(
        self, progress: StreamingQueryProgress, records: BatchRecords | None, written: Mapping[str, int] | None = None
    ) -> BatchObservation | None:
        """None: the batch held nothing; Spark may begin, and close windows, with such. `written`: rows of sinks behind
        Spark's own operators."""
        finished = seconds_of(progress.timestamp) + progress.batchDuration / 1000
        self._late += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
        account = None if records is None else records.account()
        tuples, backlog, latencies = self._taken_in(progress, finished, records)
        written = written or {}
        if not tuples and (account is None or not account.rows_in) and not any(written.values()):
            return None
        if account is not None:
            self.first_errors = [*self.first_errors, *account.errors][:20]
            self._untraced |= {name for name, count in account.operators.items() if count.untraced}
        tasks = () if records is None else records.tasks
        return BatchObservation(
            finished=finished,
            tuples=tuples,
            backlog=backlog,
            latencies=latencies,
            operators=self._operators(account, tuples, progress, tasks, written),
            slots=self._slot_observations(tasks),
            latency_weight=tuples / max(1, len(latencies)),
            seconds=progress.batchDuration / 1000,
            lag=lag_of(progress),
        )

    def _taken_in(
        self, progress: StreamingQueryProgress, finished: float, records: BatchRecords | None
    ) -> tuple[int, int, np.ndarray]:
        """Source tuples, those still waiting, and latencies: until the batch was committed, when all of it is there."""
        if self._load is None:
            taken = self._rows_of_sources(progress, records)
            seconds = progress.batchDuration / 1000
            return taken, sum(lag_of(progress).values()), np.array([seconds] if taken else [])
        source = load_progress(progress)
        if source is None:
            return 0, 0, np.array([])
        first = _tuples(source.startOffset)
        last = _tuples(source.endOffset)
        self.reached = max(self.reached, last)
        due = max(_tuples(source.latestOffset), self._load.due(max(0.0, seconds_of(progress.timestamp) - self.began)))
        if last <= first:
            return 0, max(0, due - last), np.array([])
        chosen = np.unique(np.linspace(first, last - 1, LATENCY_POINTS).round().astype(int))
        at = np.concatenate([self._load.due_seconds(number, number + 1) for number in chosen.tolist()])
        return last - first, max(0, due - last), finished - self.began - at

    def _rows_of_sources(self, progress: StreamingQueryProgress, records: BatchRecords | None) -> int:
        """As many as came into code, where all rows of every source do; else what Spark counts, which counts a source
        as often as the query reads it."""
        entered = {} if records is None else records.entered()
        if all(source in entered for source in self._pipeline.sources):
            return sum(entered[source] for source in self._pipeline.sources)
        return round(progress.numInputRows / self._reads)

    def _operators(
        self,
        account: Account | None,
        tuples: int,
        progress: StreamingQueryProgress,
        tasks: tuple[TaskRecord, ...],
        written: Mapping[str, int],
    ) -> dict[str, OperatorObservation]:
        counts = {} if account is None else account.operators
        observed = {} if account is None else self._counted(account)
        in_code = max((task.wall_seconds for task in tasks), default=0.0)
        rest = max(0.0, progress.durationMs.get("addBatch", 0) / 1000 - in_code)
        for name in self._sparks_own:
            senders = [stream.sender for stream in self._pipeline.inputs(name)]
            receivers = [stream.receiver for stream in self._pipeline.outputs(name)]
            received = sum(observed[sender].sent if sender in observed else tuples for sender in senders)
            got = {**written, **{receiver: counts[receiver].rows_in for receiver in receivers if receiver in counts}}
            sent = max((got[receiver] for receiver in receivers if receiver in got), default=0)
            observed[name] = OperatorObservation(received, sent, 0, 0, rest / len(self._sparks_own))
        for sink, rows in written.items():
            observed.setdefault(sink, OperatorObservation(rows, rows, 0, 0, 0.0))
        return observed

    def _counted(self, account: Account) -> dict[str, OperatorObservation]:
        return {
            name: OperatorObservation(count.rows_in, count.rows_out, count.filtered, count.dead, count.busy_seconds)
            for name, count in account.operators.items()
            if name in self._pipeline.operators
        }

    def _slot_observations(self, tasks: tuple[TaskRecord, ...]) -> tuple[SlotObservation, ...]:
        slots = []
        for task in tasks:
            account, where = Account.from_bytes(task.account), self._slot(task)
            slots.append(
                SlotObservation(
                    slot=where.number,
                    node=where.node,
                    cpu_seconds=task.cpu_seconds,
                    wall_seconds=task.wall_seconds,
                    memory_mb=account.memory_bytes / 2**20,
                    pieces=account.pieces_of_work,
                    piece_seconds=account.pieces_seconds,
                    operators=self._counted(account),
                )
            )
        return tuple(slots)

    def _slot(self, task: TaskRecord) -> Slot:
        """Where the task ran: the slot its executor holds; else the executor, by its number on its host. Which of its
        own threads Spark chose nobody knows: partitions are counted to them in turn."""
        if self._local_slots is not None:
            return Slot(EMBEDDED_NODE, task.partition % self._local_slots)
        node, slash, number = task.slot.rpartition("/")
        if slash and is_whole(number):
            return Slot(node, int(number))
        known = self._executors.setdefault(task.host, [])
        if task.executor not in known:
            known.append(task.executor)
        return Slot(task.host, known.index(task.executor))

    @property
    def notes(self) -> tuple[str, ...]:
        notes = [
            f"operator '{name}' changes the number of rows and does not keep their index: behind it tuples are "
            "counted, not told apart"
            for name in sorted(self._untraced)
        ]
        if self._late:
            # Spark counts behind its own partial aggregation, where several rows may be one
            notes.append(f"at least {self._late:,} rows came behind the watermark, too late, and were left out")
        if self._load is None:
            notes.append("latency is counted from when Spark took a tuple in, until its batch was committed")
        return tuple(notes)


def load_progress(progress: StreamingQueryProgress) -> SourceProgress | None:
    """Of the load generator, which may stand anywhere among the sources: its offset is a number of tuples. None: it has
    not begun."""
    for source in progress.sources:
        offset = parsed_offset(source.endOffset)
        if isinstance(offset, dict) and isinstance(offset.get("tuples"), int):
            return source
    return None


def reads_of_sources(frame: DataFrame, sources: int) -> float:
    """How often a query reads each of its `sources`, on average: a frame that several read is in its plan as often."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    streams = sum(bool(leaves.apply(number).isStreaming()) for number in range(leaves.size()))
    return max(1.0, streams / max(1, sources))


def _tuples(offset: str | None) -> int:
    reached = parsed_offset(offset)
    return 0 if reached is None else int(reached["tuples"])
