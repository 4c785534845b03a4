"""Sinks that commit by epoch: rows are staged under hidden names, and get their visible names when the epoch commits.

Staged files carry the conductor, generation and epoch they belong to: files of an epoch that never committed stay
hidden, and an abandoned process writes under names of its own.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from penstock.base.files import Spec
from penstock.base.text import is_whole
from penstock.connectors.commit import Output
from penstock.connectors.log_contract import NONE_YET, FencedError, LogError
from penstock.connectors.spark_text import cast_to_binary, json_lines
from penstock.connectors.storage import storage
from penstock.connectors.topic_address import LogAddress
from penstock.dataflow.formats import find_format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from penstock.connectors.log_contract import TopicLog, TransactionalProducer
    from penstock.runtime.batch import Batch


# Sinks that are topics, by epoch: rows are staged as files, and sent in one transaction when their epoch is committed.
#
# The transaction carries the number of the epoch: a commit that is published again after a crash is recognised by it.
# A log may forget the number (Kafka does, after a week), so it is also written down beside the staged rows.
# Taking over the producer's name fences off earlier publishers.


_LOG = logging.getLogger(__name__)

PREFIX = "topic:"
"""Prefix of an output's sink that is not a folder of files."""
SEND_ROWS = 10_000

STAGED_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class TopicSink(Spec):
    """Target of the rows of a sink, as a commit names it. Secrets are looked up by the sender."""

    format: str
    options: dict[str, str]
    topic: str
    producer: str
    """The name it sends under: that of the run and the sink."""
    staging: str

    @property
    def place(self) -> str:
        return PREFIX + self.model_dump_json()

    @classmethod
    def of(cls, place: str) -> TopicSink:
        return cls.model_validate_json(place.removeprefix(PREFIX))


def as_messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return columns `value` and `key` if there is a value; else each row as JSON, as a fused run writes it."""
    names = rows.schema.names
    if "value" in names:
        keys = cast_to_binary(rows["key"]) if "key" in names else pa.nulls(rows.num_rows, pa.binary())
        return pa.RecordBatch.from_arrays([keys, cast_to_binary(rows["value"])], schema=STAGED_SCHEMA)
    values = [line.encode() for line in json_lines(rows)]
    return pa.RecordBatch.from_arrays(
        [pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())], schema=STAGED_SCHEMA
    )


def fill(table: pa.Table, file: Any) -> None:
    with pa.ipc.new_file(file, STAGED_SCHEMA) as writer:
        writer.write_table(table)


def _sent_file(sink: TopicSink) -> str:
    return f"{sink.producer}.sent"


def _marked(sink: TopicSink) -> int:
    """Return the last epoch that was sent, as recorded beside the staged files."""
    try:
        return int(storage(sink.staging).read(_sent_file(sink)))
    except FileNotFoundError:
        return NONE_YET


def _mark(sink: TopicSink, epoch: int) -> None:
    storage(sink.staging).write(_sent_file(sink), lambda file: file.write(str(epoch).encode()))


def _read_staged(sink: TopicSink, epoch: int, path: str, last: int) -> bytes:
    """Read a staged file. It is deleted once it was sent, and that is recorded. If it is gone without a record, it was
    deleted by hand, or an earlier version sent it, which left no record. Only a person can decide, by looking into the
    topic; sending the rest would double or lose it."""
    try:
        return storage(sink.staging).read(path)
    except FileNotFoundError as error:
        known = "no epoch" if last == NONE_YET else f"epoch {last}"
        by_hand = not find_format(sink.format).is_path
        way_out = f"; if it was, set offset {epoch + 1} of partition 0 for the consumer group '{sink.producer}'"
        raise LogError(
            f"topic '{sink.topic}': {known} is known to be sent under '{sink.producer}', and what epoch {epoch} staged "
            f"is gone ({path}): look into the topic whether it was sent{way_out if by_hand else ''}"
        ) from error


class TopicPublisher:
    """Sends what commits name, epoch by epoch. One that could not be sent is sent before anything else is. `present`
    are the sinks as the run has them now: a commit has the options of when it was written, and those may be why it
    could not be sent."""

    def __init__(self, present: Iterable[TopicSink] = ()) -> None:
        self._present = {(sink.producer, sink.topic): sink for sink in present}
        self._producers: dict[str, tuple[TopicLog, TransactionalProducer]] = {}
        self._waiting: list[tuple[int, tuple[Output, ...]]] = []

    def add(self, outputs: Iterable[Output]) -> None:
        """Add the outputs of one epoch under its own number: a commit that only takes a run over names those of the one
        before."""
        mine = tuple(output for output in outputs if output.sink.startswith(PREFIX))
        if mine:
            self._waiting.append((int(mine[0].final), mine))

    def publish(self) -> None:
        """All that waits. Raises `LogError`: it waits on, and this may be called again; or `NotTakenError`: that is no
        use."""
        while self._waiting:
            epoch, outputs = self._waiting[0]
            for place in dict.fromkeys(output.sink for output in outputs):
                try:
                    sink = self._as_it_is_now(TopicSink.of(place))
                    self._send(sink, epoch, [output.staged for output in outputs if output.sink == place])
                except FencedError as error:
                    # by the run's new owner, which sends this too, or by the broker after the transaction timeout
                    raise LogError(str(error)) from error
            self._waiting.pop(0)

    def begin(self) -> None:
        try:
            self.publish()
        except LogError as error:
            _LOG.warning("an epoch is committed and waits to be sent: %s", error)

    @property
    def waits(self) -> bool:
        """Something is committed and was not sent yet."""
        return bool(self._waiting)

    def _as_it_is_now(self, sink: TopicSink) -> TopicSink:
        present = self._present.get((sink.producer, sink.topic), sink)
        return sink.model_copy(update={"format": present.format, "options": present.options})

    def _send(self, sink: TopicSink, epoch: int, staged: list[str]) -> None:
        store = storage(sink.staging)
        try:
            producer = self._producer(sink)
            if producer.last < epoch:
                for path in staged:
                    with pa.ipc.open_file(pa.py_buffer(_read_staged(sink, epoch, path, producer.last))) as file:
                        for number in range(file.num_record_batches):
                            rows = file.get_batch(number)
                            for first in range(0, rows.num_rows, SEND_ROWS):
                                part = rows.slice(first, SEND_ROWS)
                                producer.send(sink.topic, part["value"].to_pylist(), part["key"].to_pylist())
                producer.commit(epoch)
                _mark(sink, epoch)
        except BaseException:
            # the state of this producer is of no use any more; the next one reads its state from the log
            self._forget(sink.producer)
            raise
        for path in staged:
            store.delete(path)

    def _producer(self, sink: TopicSink) -> TransactionalProducer:
        if sink.producer not in self._producers:
            log = LogAddress(sink.format, sink.options).open()
            producer = log.transactional(sink.producer, sink.topic)
            producer.last = max(producer.last, _marked(sink))
            self._producers[sink.producer] = log, producer
        return self._producers[sink.producer][1]

    def _forget(self, name: str) -> None:
        known = self._producers.pop(name, None)
        if known is not None:
            with suppress(Exception):
                known[1].close()

    def close(self) -> None:
        for name in list(self._producers):
            self._forget(name)


ID_COLUMN = "penstock_id"
"""The number of the source tuple a row descends from."""
STAGED = "_staged"
"""Readers pass over names that begin with an underscore."""
PART_BYTES = 64 * 2**20
"""An epoch's rows of one sink are written down when they are as many bytes, not held until the epoch is over."""


FRAME_PREFIX = "frame:"
"""Prefix of an output's sink whose rows Spark writes once their epoch is committed."""


@dataclass(frozen=True, slots=True)
class SinkFiles:
    """Target of the rows of one sink: a folder of Parquet or JSON files."""

    place: str
    format: str
    topic: TopicSink | None = None
    """Instead of files: `place` is where rows are staged."""
    frame_of: str = ""
    """Instead of files: the sink whose writer gets the rows as a frame; `place` is the place where they are staged."""

    @property
    def ending(self) -> str:
        return {"parquet": ".parquet", "topic": ".arrow"}.get(self.format, ".jsonl")

    @property
    def is_sent_on(self) -> bool:
        """Whether files only stage the rows, which are sent on when their epoch is committed."""
        return self.topic is not None or bool(self.frame_of)

    @property
    def place_committed(self) -> str:
        """The name of the place in a commit."""
        if self.frame_of:
            return FRAME_PREFIX + self.frame_of
        return self.place if self.topic is None else self.topic.place


@dataclass(frozen=True, slots=True)
class EpochName:
    """The parts of the name of staged files."""

    run: str
    conductor: int
    generation: int
    bundle: str

    def staged(self, epoch: int, part: int, ending: str) -> str:
        return f"{STAGED}/{self.run}-{self.conductor}-{self.generation}-{epoch}-{self._token}-{part}{ending}"

    def final(self, epoch: int, part: int, ending: str) -> str:
        return f"{self.run}-{epoch:09d}-{self._token}-{part}{ending}"

    @property
    def _token(self) -> str:
        return f"{crc32(self.bundle.encode()):08x}"


@dataclass
class _Rows:
    batches: list[Batch] = field(default_factory=list)
    bytes: int = 0


class StagedSinks:
    """The sinks of one bundle in one generation. `take` may be called by any one thread at a time."""

    def __init__(self, sinks: Mapping[str, SinkFiles], name: EpochName) -> None:
        self._sinks = sinks
        self._name = name
        self._rows: dict[str, _Rows] = {}
        self._written: list[Output] = []
        self._parts = 0
        self._epoch = 0

    def begin(self, epoch: int) -> None:
        """Count rows taken from now on to `epoch`."""
        self._epoch = epoch

    def take(self, sink: str, batch: Batch) -> None:
        if sink not in self._sinks:
            return
        rows = self._rows.setdefault(sink, _Rows())
        rows.batches.append(batch)
        rows.bytes += batch.nbytes
        if rows.bytes >= PART_BYTES:
            del self._rows[sink]
            self._written += self._write(sink, rows.batches, self._epoch)

    def cut(self, epoch: int) -> tuple[dict[str, _Rows], list[Output]]:
        """End the epoch: return its remaining rows, and the outputs that are written already."""
        rows, self._rows = self._rows, {}
        written, self._written = self._written, []
        self._epoch = epoch + 1
        return rows, written

    def write(self, epoch: int, rows: Mapping[str, _Rows], written: Iterable[Output]) -> tuple[Output, ...]:
        return (*written, *(out for sink, part in rows.items() for out in self._write(sink, part.batches, epoch)))

    def _write(self, sink: str, batches: list[Batch], epoch: int) -> list[Output]:
        files = self._sinks[sink]
        outputs = []
        for table in _tables(batches) if files.topic is None else _messages(batches):
            self._parts += 1
            staged = self._name.staged(epoch, self._parts, files.ending)
            final = str(epoch) if files.is_sent_on else self._name.final(epoch, self._parts, files.ending)
            store = storage(files.place)
            store.write(staged, partial(_FILL[files.format], table))
            outputs.append(Output(sink=files.place_committed, staged=staged, final=final, rows=table.num_rows))
        return outputs


def publish(outputs: Iterable[Output]) -> None:
    """Give the files that a commit names their visible names; a repetition changes nothing."""
    for output in outputs:
        if not output.sink.startswith((PREFIX, FRAME_PREFIX)):
            storage(output.sink).move(output.staged, output.final)


def sweep(place: str, run: str, conductor: int, keep: Collection[str]) -> None:
    """Delete files that were staged under earlier conductors and never committed. `keep`: files that the last commit
    names, which may still have to be sent. Files that an earlier conductor stages from now on are left to the next
    one."""
    store = storage(place)
    for path in store.list(STAGED):
        number = Path(path).name.removeprefix(f"{run}-").partition("-")[0]
        if Path(path).name.startswith(f"{run}-") and is_whole(number) and int(number) < conductor and path not in keep:
            store.delete(path)


def _tables(batches: list[Batch]) -> Iterable[pa.Table]:
    """Yield one table for every schema, with the ids beside the rows if they are known."""
    by_schema: dict[Any, list[pa.RecordBatch]] = {}
    for batch in batches:
        rows = batch.rows
        if batch.ids is not None and ID_COLUMN not in rows.schema.names:
            ids = pa.array(batch.ids, mask=np.asarray(batch.ids) < 0)
            rows = pa.RecordBatch.from_arrays(
                [*rows.columns, ids], schema=rows.schema.append(pa.field(ID_COLUMN, pa.int64()))
            )
        by_schema.setdefault(rows.schema.serialize().to_pybytes(), []).append(rows)
    for parts in by_schema.values():
        yield pa.Table.from_batches(parts)


def _messages(batches: list[Batch]) -> Iterable[pa.Table]:
    yield pa.Table.from_batches([as_messages(batch.rows) for batch in batches], schema=STAGED_SCHEMA)


def _fill_parquet(table: pa.Table, file: Any) -> None:
    pq.write_table(table, file)


def _fill_json(table: pa.Table, file: Any) -> None:
    for row in table.to_pylist():
        file.write((json.dumps(row, default=str, ensure_ascii=False) + "\n").encode())


_FILL = {"parquet": _fill_parquet, "json": _fill_json, "topic": fill}
