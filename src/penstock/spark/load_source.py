"""A Spark source that emits exactly what a `Load` says: numbered tuples with the time they were due.

Offsets count tuples. What one batch takes in is bounded, so that an overload shows as backlog and not as ever larger
batches.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.clock import now
from penstock.dataflow.load import Load
from penstock.files import write_text
from penstock.spark.interrupts import ignore_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

NAME = "penstock-load"
SCHEMA = "id bigint, due double, value bigint"


def options(load: Load, slots: int, folder: Path) -> dict[str, str]:
    """`folder` is where the run and its source meet: `begin`, `bound_batches`, `bound_tuples` and `hold` leave
    word there."""
    return {"load": json.dumps(load.document()), "slots": str(slots), "folder": str(folder)}


def begin(folder: Path) -> float:
    """From now on the load runs (returns when). It is not to blame for the seconds that starting a query takes."""
    start = now()
    write_text(folder / "start", repr(start))
    return start


def bound_batches(folder: Path, most_rows: int) -> None:
    """From the next batch on, take in at most so many tuples."""
    write_text(folder / "most_rows", str(most_rows))


def bound_tuples(folder: Path, tuples: int) -> None:
    """So many tuples there are in all until more is said: sources with files have no more rows."""
    write_text(folder / "tuples", str(tuples))


def hold(folder: Path) -> None:
    """Nothing more is emitted."""
    (folder / "hold").touch()


class _Range(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last


class LoadReader(DataSourceStreamReader):
    def __init__(self, given: dict[str, str]) -> None:
        document = json.loads(given["load"])
        self._load = Load(tuple((seconds, rate) for seconds, rate in document["spells"]), document["repeats"])
        self._folder = Path(given["folder"])
        self._start: float | None = None
        self._slots = int(given["slots"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"tuples": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._most_rows())

    def _most_rows(self) -> int:
        return int((self._folder / "most_rows").read_text("utf-8"))

    def _started(self) -> float | None:
        if self._start is None and (self._folder / "start").exists():
            self._start = float((self._folder / "start").read_text("utf-8"))
        return self._start

    def _due(self) -> int:
        started = self._started()
        due = 0 if started is None else self._load.due(now() - started)
        bound = self._folder / "tuples"
        return min(due, int(bound.read_text("utf-8"))) if bound.exists() else due

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        if (self._folder / "hold").exists():
            return start
        return {"tuples": max(start["tuples"], min(self._due(), start["tuples"] + self._most_rows()))}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"tuples": self._due()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """As many ranges as slots, equal up to one tuple: a task count that does not change keeps workers warm."""
        edges = np.linspace(start["tuples"], end["tuples"], self._slots + 1).round().astype(int).tolist()
        return [_Range(first, last) for first, last in pairwise(edges)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        first, last = partition.first, partition.last
        if last > first:
            ids = pa.array(np.arange(first, last))
            due = pa.array((self._started() or 0.0) + self._load.due_seconds(first, last))
            yield pa.record_batch([ids, due, ids], names=["id", "due", "value"])


class LoadSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> LoadReader:  # noqa: N802 - Spark's name
        return LoadReader(dict(self.options))
