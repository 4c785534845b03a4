"""What an operator of Spark's own takes: its samples are replayed through a stream of Parquet files, in one slot.

    T(n) = b + n s

is how long a batch of n rows takes, of all its inputs together: b whatever is in it (shuffles, state), s for every row.
Batches of a few rows tell b, large ones s; both less what the same streams take where nothing is done with them.

With every repetition of the sample timestamps move on, when tuples were due with the clock (as many windows as the time
a batch takes, not one for every few tuples), numbers of source tuples are counted on, and where the operator keeps
state keys are new ones (`motion`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import reduce
from statistics import mean, median
from typing import TYPE_CHECKING

from pyspark.sql.functions import col, greatest, lit, rand

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import RunFailedError
from penstock.base.files import temporary_folder
from penstock.engines.fused.restartable_query import reason
from penstock.modelling.model import LEAST_LEFT
from penstock.profiling.replay import ReplayFiles, motion_of
from penstock.runtime.cpu_speed import EVERY_SECONDS, SpeedProbe
from penstock.spark.internals.error_messages import in_one_line
from penstock.spark.internals.plans import struct_of_arrow
from penstock.spark.session.process_tree import MachineUsage, share_given, share_of_others

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.profiling.samples import OperatorSample

FEW_ROWS = 10
WARM_UP_BATCHES = 3
COUNTED_BATCHES = 3
GROWTH = 8
MOST_ROWS = 1_000_000
LEAST_SECONDS = 0.3
"""A large batch takes at least so much longer than a small one, or holds `MOST_ROWS`."""
LEAST_ROW_SECONDS = 1e-9
"""Seconds for a row if no time was seen, with the operator or without."""
BATCH_TIMEOUT_SECONDS = 60.0
LOOK_SECONDS = EVERY_SECONDS + 0.02
"""At how fast a core is, before every batch."""


@dataclass(frozen=True, slots=True)
class BatchCost:
    """b and s of `T(n) = b + n s`."""

    batch_seconds: float
    row_seconds: float
    selectivity: float | None = None
    """Rows it sends for each it gets; None: it keeps state, and sends what else there is."""
    others: float = 0.0
    """The part of the machine that other processes, and its host, used meanwhile."""
    pace: float | None = None
    """How fast the cores were: pieces of a fixed work that one did in a second it was wanted."""

    def beyond(self, other: BatchCost) -> BatchCost:
        """What is left without that of another."""
        return BatchCost(
            max(0.0, self.batch_seconds - other.batch_seconds),
            max(LEAST_ROW_SECONDS, LEAST_LEFT * self.row_seconds, self.row_seconds - other.row_seconds),
            self.selectivity,
            max(self.others, other.others),
            mean(paces) if (paces := [cost.pace for cost in (self, other) if cost.pace is not None]) else None,
        )


def cost_of(few: tuple[int, Sequence[float]], many: tuple[int, Sequence[float]]) -> BatchCost:
    """The line through the medians of two sizes (rows, seconds of batches with so many)."""
    (few_rows, few_seconds), (many_rows, many_seconds) = few, many
    row = max(0.0, median(many_seconds) - median(few_seconds)) / (many_rows - few_rows)
    return BatchCost(max(0.0, median(few_seconds) - few_rows * row), row)


def cost_by(batch: Callable[[int], float], inputs: int = 1) -> BatchCost:
    """Of batches that `batch` runs: it gets the rows of each of its inputs, and says how many seconds it took."""
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
    return cost_of((inputs * FEW_ROWS, few), (inputs * rows, many))


def measure_sparks_own(
    session: SparkSession,
    operator: str,
    function: Callable[..., DataFrame],
    inputs: Sequence[OperatorSample],
    mode: str,
    tick: Callable[[], None] = lambda: None,
) -> BatchCost:
    """`function` gets a streaming frame for each of `inputs`; `mode` is the output mode of its query. Rows are those of
    all inputs, as the rate of an operator is that of all its streams."""
    with temporary_folder("replay") as folder:
        replayed = _Replayed(session, folder, operator, function, inputs, mode, tick)
        began = MachineUsage.now()
        try:
            cost = replayed.measure()
        finally:
            replayed.stop()
    ended = MachineUsage.now()
    given = share_given(began, ended)
    pace = None if cost.pace is None else cost.pace * given
    return replace(cost, others=share_of_others(began, ended), pace=pace)


def together(*frames: DataFrame) -> DataFrame:
    """All rows of all inputs, and nothing done with them."""
    if len(frames) == 1:
        return frames[0]
    apart = []
    for number, frame in enumerate(frames):
        apart.append(frame.toDF(*(f"c{number}_{place}" for place in range(len(frame.columns)))))
    return reduce(lambda first, other: first.unionByName(other, allowMissingColumns=True), apart)


def read_whole(frame: DataFrame) -> DataFrame:
    """Every column of every row is read from its file, whatever is made of it: in a pipeline rows come from somewhere
    else, where nothing is left out for an operator behind. Spark moves no filter to before one that is left to chance,
    and this one looks at all columns; it lets all rows through."""
    nulls = [col(f"`{name}`").isNull().cast("int") for name in frame.columns]
    return frame.where(greatest(lit(0), *nulls) + rand() >= 0)


def files_taken(offset: str | None) -> int:
    """By a source that takes one file a batch: `{"logOffset": 0}` is where it is after the first."""
    known = json.loads(offset or "null")
    return 0 if known is None else int(known["logOffset"]) + 1


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
    ) -> None:
        self._operator = operator
        self._inputs = []
        self._tick = tick
        self._probe = SpeedProbe()
        self._sample_rows = max(sample.rows.num_rows for sample in inputs)
        frames = []
        motion = motion_of(inputs)
        for number, sample in enumerate(inputs):
            # keys stay until it is seen that there is state: a table they are looked up in has no others
            self._inputs.append(ReplayFiles(session, sample, folder / f"in{number}", motion=motion, new_keys=False))
            stream = session.readStream.format("parquet").schema(struct_of_arrow(sample.rows.schema))
            frames.append(read_whole(stream.option("maxFilesPerTrigger", 1).load(self._inputs[-1].pattern)))
        with in_one_line(f"operator '{operator}'"):
            stream_out = function(*frames).writeStream.format("noop").outputMode(mode)
            self._query: StreamingQuery = stream_out.option("checkpointLocation", str(folder / "checkpoint")).start()

    def measure(self) -> BatchCost:
        cost = cost_by(self._batch, len(self._inputs))
        pieces, seconds = self._probe.take()
        selectivity = self._sent / self._given if self._given and not self._keeps_state else None
        return replace(cost, selectivity=selectivity, pace=pieces / seconds if seconds else None)

    def _look_at_pace(self) -> None:
        """Between batches: no thread of ours works through rows. One that waits runs on a core that has just woken up,
        so this one is at work until its piece is done."""
        watch = Stopwatch()
        while watch.seconds() < LOOK_SECONDS:
            self._probe.look()

    def _batch(self, rows: int) -> float:
        """Seconds of a batch with so many rows of every input."""
        self._look_at_pace()
        for files in self._inputs:
            files.write(rows)
        self._written += 1
        seconds, sent = self._seen_of_batch(rows)
        if rows >= self._sample_rows:  # fewer rows do not show the selectivity
            self._given += rows * len(self._inputs)
            self._sent += sent
        return seconds

    def _seen_of_batch(self, rows: int) -> tuple[float, int]:
        """Its seconds, and what it sent, until every source has taken the last file; of inputs of which Spark saw one a
        batch earlier both are summed up."""
        waited, reached, seconds, sent, last = Stopwatch(), False, 0.0, 0, self._last_seen
        while not reached:
            if not self._query.isActive:
                why = reason(str(self._query.exception()))
                raise RunFailedError(f"operator '{self._operator}': Spark stopped its trial: {why}")
            if waited.seconds() > BATCH_TIMEOUT_SECONDS:
                raise RunFailedError(
                    f"operator '{self._operator}': a batch of {rows} rows took more than {BATCH_TIMEOUT_SECONDS:g} s"
                )
            for progress in self._query.recentProgress:
                if progress.batchId > last and any(
                    source.startOffset != source.endOffset for source in progress.sources
                ):
                    last = progress.batchId
                    seconds += progress.batchDuration / 1000
                    sent += progress.sink.numOutputRows
                    reached = all(files_taken(source.endOffset) >= self._written for source in progress.sources)
                    if progress.stateOperators and not self._keeps_state:
                        self._renew_keys()
            self._tick()
            pause(0.02)
        self._last_seen = last
        return seconds, sent

    def _renew_keys(self) -> None:
        self._keeps_state = True
        for files in self._inputs:
            files.renew_keys()

    _last_seen = -1
    _written = 0
    _given, _sent = 0, 0
    _keeps_state = False

    def stop(self) -> None:
        self._query.stop()
