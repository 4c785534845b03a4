"""A Spark source that emits exactly what a `Load` says: numbered tuples with the time they were due.

Offsets count tuples. What one batch takes in is bounded, so that an overload shows as backlog and not as ever larger
batches. The load's clock goes on while nobody runs it: what was due meanwhile has waited.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.base.clock import now
from penstock.base.files import write_text
from penstock.connectors.number_files import KeptNumbers, read_number
from penstock.dataflow.load import Load
from penstock.spark.region_function import DUE_COLUMN, ID_COLUMN, VALUE_COLUMN
from penstock.spark.session.interrupts import ignore_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from penstock.report.report import BatchObservation


NAME = "penstock-load"
SCHEMA = f"{ID_COLUMN} bigint, {DUE_COLUMN} double, {VALUE_COLUMN} bigint"
ROWS_UNBOUND = 1000
"""Tuples of a batch where no bound can be read."""
PIECE_ROWS = 10_000
"""As many as Spark hands to a worker at a time."""


def load_frame(session: SparkSession, load: Load, partitions: int, folder: Path) -> DataFrame:
    """`folder` is where the run and its source meet, on the driver's machine: `begin`, `bound_batches` and `hold` leave
    word there. A batch has as many tasks as there are `partitions`."""
    session.dataSource.register(LoadSource)
    options = {"load": json.dumps(load.document()), "partitions": str(partitions), "folder": str(folder)}
    return session.readStream.format(NAME).options(**options).load()


def begin(folder: Path) -> float:
    """From now on the load runs (returns when); one that ran before goes on. It is not to blame for the seconds that
    starting a query takes."""
    (folder / "hold").unlink(missing_ok=True)
    if (folder / "start").exists():
        return read_number(folder / "start")
    start = now()
    write_text(folder / "start", repr(start))
    return start


def bound_batches(folder: Path, most_rows: int) -> None:
    """From the next batch on, take in at most so many tuples."""
    write_text(folder / "most_rows", str(most_rows))


def hold(folder: Path) -> None:
    """Nothing more is emitted."""
    (folder / "hold").touch()


def spread_over(folder: Path, partitions: int) -> None:
    """From the next batch on, so many tasks."""
    write_text(folder / "partitions", str(partitions))


def pieces(first: int, last: int) -> Iterator[tuple[int, int]]:
    """A range of tuples, cut: Spark hands on what it has while the rest is still being made."""
    for start in range(first, last, PIECE_ROWS):
        yield start, min(start + PIECE_ROWS, last)


class _Range(InputPartition):
    def __init__(self, first: int, last: int, start: float) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last
        self.start = start


class LoadReader(DataSourceStreamReader):
    def __init__(self, given: dict[str, str]) -> None:
        self._load = Load.of_document(json.loads(given["load"]))
        self._folder = Path(given["folder"])
        self._numbers = KeptNumbers(self._folder)
        self._partitions = int(given["partitions"])
        self._is_told_where = True
        """Spark 4.2 and newer says where the last batch ended; before, the batches themselves leave word of it."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"tuples": 0}

    def _most_rows(self) -> int:
        return self._numbers.whole("most_rows", ROWS_UNBOUND)

    def _tasks(self) -> int:
        return self._numbers.whole("partitions", self._partitions)

    def _started(self) -> float | None:
        return self._numbers.get("start")

    def _reached(self) -> int:
        """As the last batch said, which may be one of another process."""
        return int(self._numbers.get("reached") or 0)

    def _due(self) -> int:
        started = self._started()
        return 0 if started is None else self._load.due(now() - started)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        self._is_told_where = start is not None
        reached = self._reached() if start is None else start["tuples"]
        if (self._folder / "hold").exists():
            return {"tuples": reached}
        return {"tuples": max(reached, min(self._due(), reached + self._most_rows()))}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"tuples": self._due()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Ranges equal up to one tuple: a task count that does not change keeps workers warm."""
        if not self._is_told_where:
            write_text(self._folder / "reached", str(end["tuples"]))
        edges = np.linspace(start["tuples"], end["tuples"], self._tasks() + 1).round().astype(int).tolist()
        began = self._started() or 0.0
        return [_Range(first, last, began) for first, last in pairwise(edges)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        for first, last in pieces(partition.first, partition.last):
            ids = pa.array(np.arange(first, last))
            due = pa.array(partition.start + self._load.due_seconds(first, last))
            yield pa.record_batch([ids, due, ids], names=[ID_COLUMN, DUE_COLUMN, VALUE_COLUMN])


class LoadSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> LoadReader:  # noqa: N802 - Spark's name
        return LoadReader(dict(self.options))


# Max offsets of the next batch, computed from the last one.
#
# A bound is one of offsets. Where offsets have holes (a topic that is compacted, what ends a transaction, or was
# aborted with it) a batch goes over more of them than it has tuples.


LARGEST_STEP = 20.0
"""The first batches tell little: no batch is more than so many times the one before."""
MOST_OVER_HOLES = 1_000_000
"""Offsets of a batch, where most of those before were holes: what comes behind them may have none."""


def next_bound(bound: int, covered: int, tuples: int, wall_seconds: float, wanted_seconds: float) -> int:
    """The last batch went over `covered` offsets, had so many tuples and took code `wall_seconds`; a batch should take
    it `wanted_seconds`. With step = min(wanted / wall, LARGEST_STEP):

        next = covered x step, but no more than max(tuples x step, MOST_OVER_HOLES)

    A batch without tuples says nothing of how long they take: the bound grows, as far as that goes, and never falls.
    """
    if not tuples:
        return max(bound, min(int(covered * LARGEST_STEP), MOST_OVER_HOLES))
    if wall_seconds <= 0:
        return bound
    step = min(wanted_seconds / wall_seconds, LARGEST_STEP)
    return int(min(max(covered, tuples) * step, max(tuples * step, MOST_OVER_HOLES)))


class BatchBound:
    """The bound of a run's batches, in the run's `folder`, where sources read it. Without `wanted_seconds` it stays as
    it was at `first`; no slot is left without an offset."""

    def __init__(self, folder: Path, first: int, slots: int, wanted_seconds: float | None) -> None:
        self._folder, self._slots, self._wanted = folder, slots, wanted_seconds
        self._set(first)

    def _set(self, bound: int) -> None:
        self._bound = bound
        bound_batches(self._folder, bound)

    def resize(self, batch: BatchObservation | None, covered: int) -> None:
        """By the last batch, which went over `covered` offsets; None: it had no tuples."""
        if self._wanted is None:
            return
        tuples, slots = (0, ()) if batch is None else (batch.tuples, batch.slots)
        wall = max((slot.wall_seconds for slot in slots), default=0.0)
        bound = max(self._slots, next_bound(self._bound, covered, tuples, wall, self._wanted))
        if bound != self._bound:
            self._set(bound)
