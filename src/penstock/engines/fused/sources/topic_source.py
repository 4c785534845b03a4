"""Topics as a Spark source of our own, if Spark's connector to Kafka is missing, and for the embedded log.

Offsets are those of the partitions, as Spark's own connector writes them: `{"topic": {"0": 17, "1": 4}}`. The input of
a batch is bounded and cut evenly over the slots, whichever partitions it comes from. Only Spark 4.2 and newer can ask
for a bounded part: older ones have no `pyspark.sql.streaming.datasource`, and this module is not loaded there.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from penstock.base.clock import Stopwatch, pause
from penstock.connectors.log_contract import DamagedLogError, GoneError, LogError, WentBackError
from penstock.connectors.number_files import KeptNumbers
from penstock.connectors.offsets import Piece, admitted, begun_anew, cut_evenly, pieces_between, resolved, went_back
from penstock.connectors.topic_address import LogAddress, subscribed
from penstock.dataflow.formats import most_per_batch
from penstock.engines.fused.sources.topic_notices import AwaySign, LostPiece, note_lost, note_lost_in_task
from penstock.spark.session.interrupts import ignore_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from penstock.connectors.log_contract import Span, TopicLog
    from penstock.connectors.offsets import Offsets

_LOG = logging.getLogger(__name__)

NAME = "penstock-topics"
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
"""As Spark's own connector has it."""
RETRY_SECONDS = 1.0
PATIENCE_SECONDS = 300.0
"""Seconds a broker may be away before the query fails."""
MOST_ROWS = "most_rows"
LOOKED_AT = 1000
"""Messages taken in if no run bounds batches."""


def topic_frame(session: SparkSession, who: str, given: dict[str, str], slots: int, folder: Path | None) -> DataFrame:
    """Return the frame of a topic. `given`: the options of the source; `folder`: the folder in which the run bounds
    batches and losses are noted."""
    session.dataSource.register(TopicSource)
    options = {"given": json.dumps(given), "who": who, "slots": str(slots), "folder": str(folder or "")}
    return session.readStream.format(NAME).options(**options).load()


class _Pieces(InputPartition):
    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__(len(pieces))
        self.pieces = pieces


class TopicReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._given: dict[str, str] = json.loads(options["given"])
        self._who = options["who"]
        self._slots = int(options["slots"])
        self._folder = Path(options["folder"]) if options["folder"] else None
        self._numbers = KeptNumbers(self._folder)
        self._address = LogAddress(self._given["penstock.format"], self._given)
        self._topics = subscribed(self._given)
        self._goes_on = self._given.get("failOnDataLoss", "true").lower() == "false"
        self._most_per_batch = most_per_batch(self._given, self._who)
        self._opened: TopicLog | None = None
        self._reached: Offsets = {}
        self._away: Stopwatch | None = None
        self._sign = AwaySign(self._folder, self._who)
        self._until: dict[str, dict[int, Span]] | None = None
        """Contents at the start of a run that ends with them."""

    @property
    def _log(self) -> TopicLog:
        if self._opened is None:
            self._opened = self._address.open()
        return self._opened

    def _spans(self) -> dict[str, dict[int, Span]]:
        return {topic: dict(self._log.spans(topic)) for topic in self._topics}

    def _awaited_spans(self) -> dict[str, dict[int, Span]]:
        """Return the spans; wait for a broker that is away, because an answer is needed."""
        watch = Stopwatch()
        while True:
            try:
                return self._spans()
            except DamagedLogError:
                raise
            except LogError:
                if watch.seconds() > PATIENCE_SECONDS:
                    raise
                pause(RETRY_SECONDS)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return resolved(self._given.get("startingOffsets", "earliest"), self._awaited_spans(), self._who)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """A broker that does not answer has nothing new, for a while."""
        reached: Offsets = self._reached if start is None else start
        if self._folder is not None and (self._folder / "hold").exists():
            return reached
        try:
            spans = self._until or self._spans()
        except DamagedLogError:
            raise
        except LogError:
            self._away = self._away or Stopwatch()
            if self._away.seconds() > PATIENCE_SECONDS:
                raise
            self._sign.show()
            return reached
        self._away = None
        self._sign.take_away()
        return admitted(self._without_gone(reached, spans), spans, self._most_rows())

    def _without_gone(self, reached: Offsets, spans: dict[str, dict[int, Span]]) -> Offsets:
        """Stop the run if logs went back; or begin these partitions anew, if continuing was chosen."""
        gone = list(went_back(reached, spans))
        if gone and not self._goes_on:
            raise gone[0]
        if gone and self._folder is not None:
            note_lost(self._folder, went_back=[f"{error.topic}/{error.partition}" for error in gone])
        return begun_anew(reached, gone)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until = self._awaited_spans()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        try:
            return {t: {str(p): span.end for p, span in spans.items()} for t, spans in self._spans().items()}
        except LogError:
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._reached = end
        lost: list[LostPiece] = []
        pieces = []
        spans = self._awaited_spans()
        # a batch that was planned before a log went back is gone: messages there now belong to the next
        for piece in pieces_between(start, self._without_gone(end, spans), spans):
            first = spans[piece.topic][piece.partition].first
            there = min(max(piece.first, first), piece.end)
            if there > piece.first:
                if not self._goes_on:
                    raise GoneError(piece.topic, piece.partition, piece.first, first)
                lost.append(LostPiece(self._who, piece.topic, piece.partition, piece.first, there - piece.first))
            pieces.append(replace(piece, first=there))
        if lost and self._folder is not None:
            note_lost(self._folder, lost)
        return [_Pieces(share) for share in cut_evenly(pieces, self._tasks())]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        log = _shared_log(self._address)
        for piece in partition.pieces:
            for batch in read_through(log, piece, self._note_missed if self._goes_on else None):
                yield _as_spark(batch, piece)

    def _note_missed(self, piece: Piece, first: int, messages: int) -> None:
        """Note messages that retention removed before a task read them. Tasks run in parallel, so each writes a file of
        its own, if the run's folder is on its machine."""
        _LOG.warning(
            "%s: topic '%s', partition %d: %s messages from offset %d on were gone unread",
            self._who, piece.topic, piece.partition, f"{messages:,}", first,
        )  # fmt: skip
        if self._folder is not None and self._folder.is_dir():
            note_lost_in_task(self._folder, LostPiece(self._who, piece.topic, piece.partition, first, messages))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _most_rows(self) -> int:
        most_rows = self._numbers.whole(MOST_ROWS, LOOKED_AT)
        return most_rows if self._most_per_batch is None else min(most_rows, self._most_per_batch)

    def _tasks(self) -> int:
        return self._numbers.whole("partitions", self._slots)


_LOGS: dict[str, TopicLog] = {}


def _shared_log(address: LogAddress) -> TopicLog:
    """One client for all tasks of a worker process: connecting takes longer than most batches."""
    key = json.dumps([address.format, dict(address.options)], sort_keys=True)
    if key not in _LOGS:
        _LOGS[key] = address.open()
    return _LOGS[key]


def read_through(
    log: TopicLog, piece: Piece, missed: Callable[[Piece, int, int], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all of a piece. If the log is away in the middle, reading continues after the last message once it is back.
    A task that failed instead would end the query after a few attempts, in a fraction of the time a broker is given.

    Retention may run past it since it was planned. `missed` gets the first offset and number of messages that were
    gone, and the rest is read; without it, that ends the run. If the log went back, the piece is gone: the next batch
    finds that."""
    at, away = piece.first, None
    while at < piece.end:
        try:
            for batch in log.read(piece.topic, piece.partition, at, piece.end):
                yield batch
                at, away = batch["offset"][-1].as_py() + 1, None
            return
        except DamagedLogError:
            raise
        except GoneError as error:
            if missed is None:
                raise
            if isinstance(error, WentBackError):
                return
            there = min(error.first, piece.end)
            missed(piece, at, there - at)
            at = there
        except LogError:
            away = away or Stopwatch()
            if away.seconds() > PATIENCE_SECONDS:
                raise
            pause(RETRY_SECONDS)


def _as_spark(batch: pa.RecordBatch, piece: Piece) -> pa.RecordBatch:
    rows = batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            batch["key"],
            batch["value"],
            pa.array([piece.topic] * rows, pa.string()),
            pa.array([piece.partition] * rows, pa.int32()),
            batch["offset"],
            pc.multiply(batch["time_ms"], 1000).cast(pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )


class TopicSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> TopicReader:  # noqa: N802 - Spark's name
        return TopicReader(dict(self.options))
