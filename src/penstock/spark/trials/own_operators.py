"""What an operator of Spark's own takes: its samples are replayed through a stream of Parquet files, in one slot.

    T(n) = b + n s

is how long a batch of n rows takes: b whatever is in it (shuffles, state), s for every row. Batches of a few rows tell
b, large ones s; both less what the same stream takes where nothing is done with it. State is kept as in a run:
timestamps move on with every repetition of the sample, when tuples were due with the clock (as many windows as the time
a batch takes, not one for every few tuples), and numbers of source tuples are counted on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.clock import Stopwatch, now, pause
from penstock.errors import RunFailedError
from penstock.files import temporary_folder
from penstock.spark.fused.complaints import in_one_line
from penstock.spark.fused.lasting_query import reason
from penstock.spark.fused.region_function import DUE_COLUMN
from penstock.spark.fused.schemas import struct_of_arrow
from penstock.spark.trials.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.trials.samples import OperatorSample

FEW_ROWS = 10
WARM_UP_BATCHES = 3
COUNTED_BATCHES = 3
GROWTH = 8
MOST_ROWS = 1_000_000
LEAST_SECONDS = 0.3
"""A large batch takes at least so much longer than a small one, or holds `MOST_ROWS`."""
LEAST_ROW_SECONDS = 1e-9
"""Of an operator that takes no time that could be seen."""
BATCH_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BatchCost:
    """b and s of `T(n) = b + n s`."""

    batch_seconds: float
    row_seconds: float

    def beyond(self, other: BatchCost) -> BatchCost:
        """What is left without that of another."""
        return BatchCost(
            max(0.0, self.batch_seconds - other.batch_seconds),
            max(LEAST_ROW_SECONDS, self.row_seconds - other.row_seconds),
        )


def cost_of(few: tuple[int, Sequence[float]], many: tuple[int, Sequence[float]]) -> BatchCost:
    """The line through the medians of two sizes (rows, seconds of batches with so many)."""
    (few_rows, few_seconds), (many_rows, many_seconds) = few, many
    row = max(0.0, median(many_seconds) - median(few_seconds)) / (many_rows - few_rows)
    return BatchCost(max(0.0, median(few_seconds) - few_rows * row), row)


def cost_by(batch: Callable[[int], float]) -> BatchCost:
    """Of batches that `batch` runs: it gets the rows of one, and says how many seconds it took."""
    for _ in range(WARM_UP_BATCHES):
        batch(FEW_ROWS)
    few = [batch(FEW_ROWS) for _ in range(COUNTED_BATCHES)]
    rows, enough = FEW_ROWS, median(few) + LEAST_SECONDS
    many: list[float] = []
    # all of them, not one that something else on the machine held up
    while rows < MOST_ROWS and min(many, default=0.0) < enough:
        rows = min(MOST_ROWS, rows * GROWTH)
        many = [batch(rows)]
        while many[-1] >= enough and len(many) < COUNTED_BATCHES:
            many.append(batch(rows))
    many += [batch(rows) for _ in range(COUNTED_BATCHES - len(many))]
    return cost_of((FEW_ROWS, few), (rows, many))


@dataclass(frozen=True)
class ReplayEnds:
    """How a replay is read and written: files of a format, and a function that takes every batch."""

    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    write: Callable[[DataFrame, int], None] | None = None
    """None: nobody wants what comes out."""


def measure_sparks_own(
    session: SparkSession,
    operator: str,
    function: Callable[..., DataFrame],
    inputs: Sequence[OperatorSample],
    mode: str,
    tick: Callable[[], None] = lambda: None,
    ends: ReplayEnds | None = None,
) -> BatchCost:
    """`function` gets a streaming frame for each of `inputs`; `mode` is the output mode of its query."""
    with temporary_folder("replay") as folder:
        replayed = _Replayed(session, folder, operator, function, inputs, mode, tick, ends or ReplayEnds())
        try:
            return replayed.measure()
        finally:
            replayed.stop()


class _Replayed:
    """One query, fed a file for each input and batch."""

    def __init__(
        self,
        session: SparkSession,
        folder: Path,
        operator: str,
        function: Callable[..., DataFrame],
        inputs: Sequence[OperatorSample],
        mode: str,
        tick: Callable[[], None],
        ends: ReplayEnds,
    ) -> None:
        self._session = session
        self._ends = ends
        self._folder = folder
        self._operator = operator
        self._inputs = [TimedReplay(sample) for sample in inputs]
        self._files = 0
        self._rows = 0
        self._tick = tick
        frames = []
        for number, sample in enumerate(inputs):
            place = folder / f"in{number}"
            place.mkdir()
            stream = session.readStream.format(ends.format).schema(struct_of_arrow(sample.rows.schema))
            frames.append(stream.options(**ends.options).option("maxFilesPerTrigger", 1).load(str(place)))
        with in_one_line(f"operator '{operator}'"):
            stream_out = function(*frames).writeStream
            stream_out = stream_out.format("noop") if ends.write is None else stream_out.foreachBatch(ends.write)
            self._query: StreamingQuery = (
                stream_out.outputMode(mode).option("checkpointLocation", str(folder / "checkpoint")).start()
            )

    def measure(self) -> BatchCost:
        return cost_by(self._batch)

    def _batch(self, rows: int) -> float:
        """Seconds of a batch with so many rows of every input."""
        for number, replay in enumerate(self._inputs):
            hidden = self._written(replay.table(self._rows, rows), self._folder / f"next{number}")
            hidden.rename(self._folder / f"in{number}" / f"{self._files:06d}{''.join(hidden.suffixes)}")
        self._files += 1
        self._rows += rows
        return self._seconds_of_batch(rows * len(self._inputs))

    def _written(self, table: pa.Table, place: Path) -> Path:
        """A file that holds these rows, not yet where the query looks."""
        if self._ends.format == "parquet":
            file = place.with_suffix(".parquet")
            pq.write_table(table, file)
            return file
        rows = self._session.createDataFrame(table).coalesce(1)
        rows.write.format(self._ends.format).options(**self._ends.options).mode("overwrite").save(str(place))
        return next(place.glob("part-*"))

    def _seconds_of_batch(self, rows: int) -> float:
        """Inputs of which Spark saw one a batch earlier are summed up."""
        waited, seen, seconds, last = Stopwatch(), 0, 0.0, self._last_seen
        while seen < rows:
            if not self._query.isActive:
                why = reason(str(self._query.exception()))
                raise RunFailedError(f"operator '{self._operator}': Spark stopped its trial: {why}")
            if waited.seconds() > BATCH_TIMEOUT_SECONDS:
                raise RunFailedError(
                    f"operator '{self._operator}': a batch of {rows} rows took more than {BATCH_TIMEOUT_SECONDS:g} s"
                )
            for progress in self._query.recentProgress:
                if progress.batchId > last and progress.numInputRows:
                    last = progress.batchId
                    seen += progress.numInputRows
                    seconds += progress.batchDuration / 1000
            self._tick()
            pause(0.02)
        self._last_seen = last
        return seconds

    _last_seen = -1

    def stop(self) -> None:
        self._query.stop()


class TimedReplay:
    """A sample over and over, its times moved on by as much as it spans with every repetition. When a tuple was due is
    the clock's: as in a run, those of a batch were due while the one before lasted."""

    def __init__(self, sample: OperatorSample, clock: Callable[[], float] = now) -> None:
        self._size = sample.rows.num_rows
        self._replay = Replay(sample)
        self._clock = clock
        self._reached = clock()
        self._spans = {
            name: span
            for name, column in zip(sample.rows.column_names, sample.rows.columns, strict=True)
            if pa.types.is_timestamp(column.type) and (span := _span_seconds(column, self._size)) is not None
        }

    def table(self, first: int, count: int) -> pa.Table:
        table = pa.Table.from_batches(list(self._replay.rows(first, count)))
        repetitions = np.arange(first, first + count) // self._size
        for name, span in self._spans.items():
            moved = pc.add(table[name], pa.array((repetitions * span * 1e6).astype("timedelta64[us]")))
            table = _with_column(table, name, moved.cast(table[name].type))
        until = self._clock()
        if DUE_COLUMN in table.column_names:
            due = np.linspace(self._reached, until, count + 1)[1:]
            table = _with_column(table, DUE_COLUMN, pa.array(due))
        self._reached = until
        return table


def _with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


def _span_seconds(column: pa.ChunkedArray, rows: int) -> float | None:
    """From the first to what would be the first of the next repetition; a second where all are alike."""
    ends = pc.min_max(column)
    if not ends["min"].is_valid:
        return None
    seconds = (ends["max"].as_py() - ends["min"].as_py()).total_seconds()
    return seconds * rows / (rows - 1) if seconds > 0 and rows > 1 else 1.0
