"""What Spark's Python workers run: a region of a pipeline over the Arrow batches of a task."""

from __future__ import annotations

import gc
import os
import socket
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.clock import Stopwatch, cpu_seconds, now
from penstock.runtime.batch import Batch, Marks
from penstock.runtime.breadcrumbs import Breadcrumbs, Crumb, read_crumb, read_crumbs, write_crumbs
from penstock.runtime.segment import Segment, SegmentOptions
from penstock.runtime.user_folder import user_folder
from penstock.spark.fused.accounts import TaskRecord
from penstock.spark.fused.kept_segments import KeptSegments
from penstock.spark.session.interrupts import ignore_interrupts
from penstock.spark.session.worker_end import REUSE, close_at_end, die_of_signals
from penstock.spark.standalone.daemons import SLOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.runtime.steps import Step

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
                segment.sweep_crumbs()  # what raised has not killed its worker
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
        crumbs = Breadcrumbs(folder / f"{name}.crumb", frozenset(poisoned))
        options = SegmentOptions(self.options.audit, self.options.emit_dead_letters, crumbs=crumbs)
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


def _poisoned(crumb_file: Path, poison_file: Path) -> list[Crumb]:
    """Rows that killed earlier attempts; the last of them is written down before the next attempt begins."""
    known = read_crumbs(poison_file)
    crumb = read_crumb(crumb_file)
    if crumb is not None:
        known.append(crumb)
        write_crumbs(poison_file, known)
    return known
