"""What Spark's Python workers run: a region of a pipeline over the Arrow batches of a task."""

from __future__ import annotations

import gc
import logging
import os
import queue
import socket
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.accumulators import AccumulatorParam

from penstock.base.clock import Stopwatch, cpu_seconds, now
from penstock.cluster.slot_resources import SLOT
from penstock.connectors.storage import user_folder
from penstock.runtime.account import Account
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.call_journal import CallJournal, CallRecord, read_last_call, read_records, write_records
from penstock.runtime.dead_letters import INTERRUPTIONS, error_line
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.spark.internals.worker_process import REUSE, close_at_end, die_of_signals
from penstock.spark.session.interrupts import ignore_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import SparkContext

    from penstock.runtime.steps import Step


# Segments that a Python worker keeps from task to task: workers are reused, and so are threads and connections.


MOST_RUNS = 3
"""As many runs may take turns in one worker before one has to open again what it had opened."""

_LOG = logging.getLogger(__name__)


class KeptSegments:
    """By run and region. Not every worker hears that a run has ended: of more than `most_runs` those that were used
    last stay."""

    def __init__(self, most_runs: int = MOST_RUNS) -> None:
        self._most_runs = most_runs
        self._runs: dict[str, dict[int, Segment]] = {}
        """The last is the one that was used last."""

    def get(self, run: str, region: int, build: Callable[[], Segment]) -> Segment:
        regions = self._runs[run] = self._runs.pop(run, {})
        while len(self._runs) > self._most_runs:
            self.close_run(next(iter(self._runs)))
        if region not in regions:
            regions[region] = build()
        return regions[region]

    def drop(self, run: str, region: int) -> None:
        """Closes one; raises what that raises."""
        segment = self._runs.get(run, {}).pop(region, None)
        if segment is not None:
            segment.close()

    def close(self) -> None:
        for run in list(self._runs):
            self.close_run(run)

    def close_run(self, run: str) -> list[str]:
        """What one run cannot close is no reason for another to fail: it is logged, and returned in one line each."""
        failures = []
        for segment in self._runs.pop(run, {}).values():
            try:
                segment.close()
            except INTERRUPTIONS:
                raise
            except BaseException as error:
                failures.append(error_line(error))
                _LOG.warning("run %s: what its code opened cannot be closed: %s", run, failures[-1])
        return failures


# Records of tasks on their way to the driver: one small record per task and batch.
#
# Records travel as a Python accumulator: Spark brings them with the task's own result, so that none that counts is
# there twice or missing. A task that is run again sends records again, under the same name, and the last attempt
# counts. One that reads several partitions of code's output (`coalesce`) sends a record of each under the same name,
# and all of them count.


WorkerName = tuple[str, int]
"""A Python worker: its host, and the number of its process there."""


IDLE_SECONDS = 90.0
"""Spark ends a worker that had nothing to do for a minute; clocks of hosts differ."""


class TaskRecord(NamedTuple):
    """`region` and `partition` name the task within its batch, `attempt` is a number that no other try of it has;
    `began` is seconds since the epoch, `executor` the process whose child the `worker` is."""

    batch: int
    region: int
    partition: int
    attempt: int
    began: float
    wall_seconds: float
    cpu_seconds: float
    host: str
    executor: str
    worker: int
    slot: str
    """NODE/NUMBER of the slot its executor holds, where the cluster counts slots; else empty."""
    account: bytes
    entered: tuple[tuple[str, int], ...] = ()
    """Rows that came in, by the sender whose rows all come in there."""


class _OnWorker(AccumulatorParam[list[TaskRecord]]):
    """In a task: gathers what the task adds."""

    def zero(self, value: list[TaskRecord]) -> list[TaskRecord]:
        return []

    def addInPlace(self, value1: list[TaskRecord], value2: list[TaskRecord]) -> list[TaskRecord]:  # noqa: N802
        return value1 + value2


class _OnDriver(_OnWorker):
    """In the driver: what arrives is queued instead of kept for ever."""

    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[TaskRecord] = queue.SimpleQueue()

    def __reduce__(self) -> tuple[type[_OnWorker], tuple[()]]:
        return _OnWorker, ()

    def addInPlace(self, value1: list[TaskRecord], value2: list[TaskRecord]) -> list[TaskRecord]:  # noqa: N802
        for record in value2:
            self.arrived.put(record)
        return value1


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """All tasks of one batch."""

    tasks: tuple[TaskRecord, ...]

    def account(self) -> Account:
        merged = Account()
        for task in self.tasks:
            merged.merge(Account.from_bytes(task.account))
        return merged

    def entered(self) -> dict[str, int]:
        """Rows by sender. One that several regions read comes into each of them whole, and counts once."""
        by_region: Counter[tuple[str, int]] = Counter()
        for task in self.tasks:
            for sender, rows in task.entered:
                by_region[sender, task.region] += rows
        senders: dict[str, int] = {}
        for (sender, _), rows in by_region.items():
            senders[sender] = max(rows, senders.get(sender, 0))
        return senders


class Accounts:
    """The driver's end."""

    def __init__(self, context: SparkContext) -> None:
        self._param = _OnDriver()
        self.accumulator: Any = context.accumulator([], self._param)
        self._batches: dict[int, dict[tuple[int, int], list[TaskRecord]]] = {}
        self._workers: dict[WorkerName, float] = {}
        """When each was last at work, in seconds since the epoch."""

    @property
    def workers(self) -> set[WorkerName]:
        """Who ran tasks and may still live."""
        return set(self._workers)

    def take(self, batch: int) -> BatchRecords:
        """Of a batch that is committed; what came of earlier ones that never were is forgotten."""
        while not self._param.arrived.empty():
            record = self._param.arrived.get()
            self._workers[record.host, record.worker] = record.began + record.wall_seconds
            known = self._batches.setdefault(record.batch, {}).setdefault((record.region, record.partition), [])
            if known and known[0].attempt != record.attempt:
                known.clear()
            known.append(record)
        alive_since = max(self._workers.values(), default=0.0) - IDLE_SECONDS
        self._workers = {worker: ended for worker, ended in self._workers.items() if ended >= alive_since}
        records = self._batches.pop(batch, {})
        for older in [number for number in self._batches if number < batch]:
            del self._batches[older]
        return BatchRecords(tuple(record for name in sorted(records) for record in records[name]))


ID_COLUMN = "penstock_id"
DUE_COLUMN = "penstock_due"
"""Beside the columns of the load generator: which tuple it is, and when it was due (seconds since the epoch)."""
VALUE_COLUMN = "value"
"""The only column of its tuples: the tuple's number."""
ENTRY_COLUMN = "penstock_entry"
EXIT_COLUMN = "penstock_exit"
"""Where several streams share one frame: which one a row belongs to; its columns are in the struct of that number."""


CAREFUL_ATTEMPT = 2
CAREFUL_BATCH = "penstock.carefulBatch"
"""A local property of Spark's: up to the batch of this number every attempt is careful."""


class Task(NamedTuple):
    """Where this code runs. `id` is that of no other attempt. `is_careful`: go row by row."""

    batch: int
    partition: int
    id: int
    is_careful: bool
    executor: str
    slot: str
    """The address of the slot that its executor holds; empty: its executor holds none."""


@dataclass(frozen=True)
class RegionFunction:
    """For `DataFrame.mapInArrow`. `environment` is set in the worker before any code runs there."""

    run: str
    region: int
    steps: tuple[Step, ...]
    entrances: tuple[str | None, ...]
    """Whose rows come in there; None: only some of them."""
    exits: tuple[str, ...]
    exit_schemas: tuple[pa.Schema, ...]
    options: SegmentOptions
    environment: tuple[tuple[str, str], ...]
    crumbs: str
    """The folder of breadcrumbs, where the worker can reach it."""
    accumulator: Any
    """Where what the task did is told; None: nobody asks."""

    @property
    def tagged(self) -> bool:
        return len(self.exits) > 1

    @property
    def output_schema(self) -> pa.Schema:
        """Of what leaves: the columns of the only exit, or the number of an exit and a struct for each."""
        if not self.tagged:
            return self.exit_schemas[0]
        structs = [pa.field(f"x{n}", pa.struct(list(schema))) for n, schema in enumerate(self.exit_schemas)]
        return pa.schema([pa.field(EXIT_COLUMN, pa.int32()), *structs])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        die_of_signals()
        os.environ.update(self.environment)
        task = this_task()
        began, watch, cpu = now(), Stopwatch(), cpu_seconds()
        segment, is_kept = self._segment(task)
        entered: Counter[int] = Counter()
        try:
            for operator, batch in segment.process_entrances(self._entering(batches, entered)):
                yield self._leaving(operator, batch)
            account = segment.take_account()
        except BaseException:
            if is_kept:
                segments.drop(self.run, self.region)
            else:
                segment.clear_journal()  # what raised has not killed its worker
            raise
        finally:
            if not is_kept:
                segment.close()
        if self.accumulator is None:
            return
        record = TaskRecord(
            batch=task.batch,
            region=self.region,
            partition=task.partition,
            attempt=task.id,
            began=began,
            wall_seconds=watch.seconds(),
            cpu_seconds=cpu_seconds() - cpu - account.pieces_seconds,
            host=socket.gethostname(),
            executor=task.executor,
            worker=os.getpid(),
            slot=task.slot,
            account=account.to_bytes(),
            entered=tuple((name, entered[at]) for at, name in enumerate(self.entrances) if name is not None),
        )
        self.accumulator.add([record])

    def _entering(self, batches: Iterable[pa.RecordBatch], entered: Counter[int]) -> Iterator[tuple[int, Batch]]:
        """Counts what came in, in `entered`, by the number of the entrance."""
        for rows in batches:
            if not rows.num_rows:
                continue
            for entry, columns in [(0, rows)] if len(self.entrances) == 1 else _untagged(rows):
                entered[entry] += columns.num_rows
                yield -1 - entry, with_marks(columns)

    def _leaving(self, operator: str, batch: Batch) -> pa.RecordBatch:
        number, size = self.exits.index(operator), len(batch)
        rows, names = batch.rows, self.exit_schemas[number].names
        kept = [name for name in names if name != DUE_COLUMN]
        if rows.schema.names != kept:
            rows = rows.select(kept)  # a sink that only counts gets tuples of several kinds
        if DUE_COLUMN in names:
            due = np.full(size, now()) if batch.marks.due is None else batch.marks.due
            rows = rows.append_column(DUE_COLUMN, pa.array(due))
        if not self.tagged:
            return rows
        columns: list[pa.Array] = [pa.array(np.full(size, number, np.int32))]
        for other, schema in enumerate(self.exit_schemas):
            if other == number:
                columns.append(pa.StructArray.from_arrays(rows.columns, fields=list(schema)))
            else:
                columns.append(pa.nulls(size, pa.struct(list(schema))))
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _segment(self, task: Task) -> tuple[Segment, bool]:
        """The one this worker keeps, if it gets other tasks. When a second attempt, or all that Spark makes, have died,
        the next goes row by row, to see who kills the worker; one death may be anybody's, and to go row by row through
        columns takes long."""
        is_worker = task.executor != DRIVER
        if not task.is_careful and is_worker and REUSE not in os.environ:
            return Segment(self.steps, self.options), False
        if not task.is_careful:
            return segments.get(self.run, self.region, partial(self._built, is_worker=is_worker)), True
        folder = Path(self.crumbs) if Path(self.crumbs).is_dir() else user_folder("crumbs")
        name = f"penstock-{self.run}-{task.batch}-{self.region}-{task.partition}"
        poisoned = _poisoned(folder / f"{name}.crumb", folder / f"{name}.poison")
        crumbs = CallJournal(folder / f"{name}.crumb", frozenset(poisoned))
        options = SegmentOptions(self.options.audit, self.options.emit_dead_letters, journal=crumbs)
        return Segment(self.steps, options), False

    def _built(self, *, is_worker: bool) -> Segment:
        segment = Segment(self.steps, self.options)
        if is_worker:
            close_at_end(segments.close)
            # modules of the user's own are loaded by now: they stay too, and need not be looked at after every task
            gc.freeze()
        return segment


def this_task() -> Task:
    from pyspark import TaskContext  # noqa: PLC0415 - only known inside a task

    context = TaskContext.get()
    if context is None:
        return Task(0, 0, 0, False, DRIVER, "")
    batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    is_careful = context.attemptNumber() >= CAREFUL_ATTEMPT or batch <= int(
        context.getLocalProperty(CAREFUL_BATCH) or -1
    )
    held = context.resources().get(SLOT)
    slot = held.addresses[0] if held is not None and held.addresses else ""
    return Task(batch, context.partitionId(), context.taskAttemptId(), is_careful, str(os.getppid()), slot)


def with_marks(rows: pa.RecordBatch) -> Batch:
    """Columns of the user's, and beside them what the load generator says of every row. Its tuples are their own
    numbers: where they come straight from it, that column is on its way once."""
    if ID_COLUMN not in rows.schema.names:
        return Batch(rows)
    numbers = rows.column(ID_COLUMN)
    marks = Marks(np.asarray(numbers), np.asarray(rows.column(DUE_COLUMN)))
    if rows.num_columns == 2:
        return Batch(pa.RecordBatch.from_arrays([numbers], names=[VALUE_COLUMN]), marks)
    return Batch(rows.drop_columns([ID_COLUMN, DUE_COLUMN]), marks)


def _untagged(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    numbers = np.asarray(rows.column(ENTRY_COLUMN))
    for entry in np.unique(numbers).tolist():
        structs = rows.column(f"e{entry}").filter(pa.array(numbers == entry))
        yield entry, pa.RecordBatch.from_struct_array(structs)


DRIVER = "driver"
"""In place of an executor, where no task runs."""

segments = KeptSegments()
"""Of this worker process."""


def _poisoned(crumb_file: Path, poison_file: Path) -> list[CallRecord]:
    """Rows that killed earlier attempts; the last of them is written down before the next attempt begins."""
    known = read_records(poison_file)
    crumb = read_last_call(crumb_file)
    if crumb is not None:
        known.append(crumb)
        write_records(poison_file, known)
    return known
