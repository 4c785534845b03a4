"""From reports of Spark and of tasks about a batch to the figures of a report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.clock import seconds_of
from penstock.base.files import write_bytes
from penstock.base.text import is_whole
from penstock.cluster.topology import Slot
from penstock.dataflow.logic import Per, sparks_own_code
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.regions import is_sparks_own
from penstock.engines.fused.sources.topics import lag_of, parsed_offset
from penstock.report.report import EMBEDDED_NODE, Audit, BatchObservation, OperatorObservation, SlotObservation
from penstock.runtime.account import Account
from penstock.spark.internals.listeners import ROWS
from penstock.spark.internals.plans import stream_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

    from penstock.dataflow.load import Load
    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.runtime.account import IdBitmaps
    from penstock.spark.internals.listeners import PassCounter
    from penstock.spark.region_function import BatchRecords, TaskRecord


LATENCY_POINTS = 65
"""Number of evenly spaced quantiles in which latencies of a batch are reported."""


class BatchObserver:
    """Observer of batches. `load`: only if the run's own generator is the source; otherwise the due time of a tuple is
    not known. `local_slots`: slots are this number of threads of one executor; None: executors are slots. `reads`:
    times the query reads each of its sources."""

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
        """Executors by host, in the order in which they were first seen."""
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
        """Return the rows that came into code, if all rows of every source do; else Spark's count, which counts a
        source as often as the query reads it."""
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
        """Return the slot of a task: the slot its executor holds; else the executor, by its number on its host. Spark's
        choice among its own threads is not known: partitions are assigned to them in turn."""
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
            # Spark counts after its own partial aggregation, which may merge several rows into one
            notes.append(f"at least {self._late:,} rows came behind the watermark, too late, and were left out")
        if self._load is None:
            notes.append("latency is counted from when Spark took a tuple in, until its batch was committed")
        return tuple(notes)


def load_progress(progress: StreamingQueryProgress) -> SourceProgress | None:
    """Return the progress of the load generator, at any position among the sources: its offset is a number of tuples.
    None: it has not begun."""
    for source in progress.sources:
        offset = parsed_offset(source.endOffset)
        if isinstance(offset, dict) and isinstance(offset.get("tuples"), int):
            return source
    return None


def reads_of_sources(frame: DataFrame, sources: int) -> float:
    """Return how often a query reads each of its `sources`, on average: a frame with several readers is in its plan
    once for each."""
    return max(1.0, len(stream_formats(frame)) / max(1, sources))


def _tuples(offset: str | None) -> int:
    reached = parsed_offset(offset)
    return 0 if reached is None else int(reached["tuples"])


# The audit of ids over a run, and over all processes that ever ran it: one small file per batch, in its folder.
#
# The file of a batch is written before Spark commits the batch, under its number: one that is run again replaces it,
# and one that was never committed does not count.


FOLDED_EVERY = 512
"""Number of batches folded into one file."""
_FOLDED = "until-"


class AuditFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, batch: int, account: Account) -> None:
        only_ids = Account(ids=account.ids, operators=account.operators)
        write_bytes(self._folder / f"{batch:012d}", only_ids.to_bytes())
        if batch and batch % FOLDED_EVERY == 0:
            self._fold(batch - 1)

    def account_for(
        self, batch: int, records: BatchRecords, work_out: Callable[[], BatchRecords] | None
    ) -> BatchRecords:
        """Return the records of a batch. `work_out` runs a batch that was begun before: its sinks may have it already
        and skip it, and then no task reports on it, so the records written then stay. If that attempt did not get
        there, the batch is computed again, only to be counted."""
        if not records.tasks and work_out is not None:
            if (self._folder / f"{batch:012d}").exists():
                return records
            records = work_out()
        self.write(batch, records.account())
        return records

    def _fold(self, last: int) -> None:
        """Fold the files of committed batches, up to `last`, into one whose name has that number. They are removed
        afterwards: a death in between leaves only files that are not read any more."""
        target = self._folder / f"{_FOLDED}{last:012d}"
        files = self._files(last)
        if files == [target]:
            return  # the batch behind them is written a second time
        write_bytes(target, self._merged(files).to_bytes())
        for file in files:
            file.unlink()

    def _files(self, last: int) -> list[Path]:
        """Those that together hold every batch up to `last`, each once."""
        names = {file.name for file in self._folder.iterdir()}
        folded = max((name for name in names if name.startswith(_FOLDED)), default=None)
        until = -1 if folded is None else int(folded.removeprefix(_FOLDED))
        single = sorted(name for name in names if is_whole(name) and until < int(name) <= last)
        return [self._folder / name for name in ([] if folded is None else [folded]) + single]

    @staticmethod
    def _merged(files: list[Path]) -> Account:
        whole = Account()
        for file in files:
            whole.merge(Account.from_bytes(file.read_bytes()))
        return whole

    def audit(self, last_committed: int, reached: int) -> Audit:
        """Return the audit: every id up to the highest seen, and up to the source's position (`reached`), must have
        come out somewhere; no sink may have one twice on one path."""
        whole = self._merged(self._files(last_committed))
        filtered = sum(count.filtered for count in whole.operators.values())
        if whole.ids is None:
            return Audit(reached, reached, 0, whole.dead, filtered)
        return audit_of(whole.ids, reached, whole.dead, filtered)


def audit_of(ids: IdBitmaps, reached: int, dead: int, filtered: int) -> Audit:
    accounted = ids.accounted()
    emitted = max(reached, accounted.max() + 1 if accounted else 0)
    return Audit(emitted, emitted - len(accounted), ids.duplicated, dead, filtered)


# Which part of a batch has a field above a threshold, counted by Spark as the batch is written: no pass more.


class BatchShares:
    """Shares of a batch above thresholds. The watched fields may change while the query runs, from any thread."""

    def __init__(self, passes: PassCounter) -> None:
        self._passes = passes
        self._watched: dict[int, tuple[str, float]] = {}
        self._observed: list[tuple[str, list[int]]] = []
        self.last: Mapping[int, float] = {}
        """Shares of the last batch that held tuples, by the watched field."""

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """A field and a threshold, by a number of the caller's."""
        self._watched = dict(fields)
        self.last = {number: share for number, share in self.last.items() if number in fields}

    def observed(self, sink: str, frame: DataFrame) -> DataFrame:
        """Return the same frame; if it has watched fields, they are counted as it is written."""
        counted = {number for _, numbers in self._observed for number in numbers}
        here = {
            number: watched
            for number, watched in self._watched.items()
            if watched[0] in frame.columns and number not in counted
        }
        if not here:
            return frame
        from pyspark.sql import functions  # noqa: PLC0415 - Spark loads only when it is used

        above = [
            functions.count(functions.when(functions.col(f"`{field}`").cast("double") > threshold, 1)).alias(
                str(number)
            )
            for number, (field, threshold) in here.items()
        ]
        name, counting = self._passes.observed(frame, *above)
        self._observed.append((name, list(here)))
        return counting

    def collect(self) -> None:
        """The batch was written."""
        shares = dict(self.last)
        for name, numbers in self._observed:
            counts = self._passes.counts(name)
            if counts is not None and counts[ROWS]:
                shares |= {number: counts[str(number)] / counts[ROWS] for number in numbers}
        self._observed.clear()
        self.last = {number: share for number, share in shares.items() if number in self._watched}


# Rows that Spark's own operators send to sinks. Code counts its own rows; Spark counts these as it writes a batch,
# without another pass.


class WrittenRows:
    """Rows of the sinks that get all their rows from an operator of Spark's own, batch by batch."""

    def __init__(self, pipeline: Pipeline, code: Mapping[str, Logic], passes: PassCounter) -> None:
        own = sparks_own_code(code)
        sinks = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.SINK]
        self._sinks = [
            sink
            for sink in sinks
            if len(pipeline.inputs(sink)) == 1 and is_sparks_own(pipeline, pipeline.inputs(sink)[0].sender, own)
        ]
        self._only = self._sinks[0] if sinks == self._sinks[:1] else None
        """The only sink, if there is one: Spark itself reports the rows written to some sinks."""
        self._passes = passes
        self._observed: dict[int, dict[str, str]] = {}
        self._unknown: Counter[str] = Counter()
        """Batches whose rows in a sink are not known."""

    def observed(self, batch: int, sink: str, frame: DataFrame) -> DataFrame:
        """The same frame, whose rows are counted as it is written."""
        if sink not in self._sinks:
            return frame
        name, counting = self._passes.observed(frame)
        self._observed.setdefault(batch, {})[sink] = name
        return counting

    def of_batch(self, progress: StreamingQueryProgress) -> dict[str, int]:
        """Return rows by sink; a sink is left out if a function of the user's did not read all rows."""
        by_spark = progress.sink.numOutputRows
        if self._only is not None and by_spark >= 0:
            return {self._only: by_spark}
        rows: dict[str, int] = {}
        for sink, name in self._observed.pop(progress.batchId, {}).items():
            counts = self._passes.counts(name)
            if counts is None:
                self._unknown[sink] += 1
            else:
                rows[sink] = counts[ROWS]
        return rows

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"sink '{sink}': of {batches:,} of its batches no action on the DataFrame read all rows, so they are not "
            "counted as sent"
            for sink, batches in self._unknown.items()
        )
