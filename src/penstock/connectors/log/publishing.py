"""Sinks that are topics, by epoch: rows are staged as files, and sent in one transaction when their epoch is committed.

The transaction carries the number of the epoch: whoever publishes a commit again, after whatever died, finds by it that
this was done. A log may forget the number (Kafka does, after a week), so it is written down beside what is staged, too.
Taking over the producer's name fences off whoever published before.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from penstock.connectors.log.address import KAFKA, LogAddress
from penstock.connectors.log.contract import NONE_YET, FencedError, LogError
from penstock.connectors.log.spark_text import cast_to_binary, json_lines
from penstock.connectors.storage import storage
from penstock.files import Spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.connectors.log.contract import TopicLog, TransactionalProducer
    from penstock.flow.commit import Output

_LOG = logging.getLogger(__name__)

PREFIX = "topic:"
"""What an output's sink begins with where it is no folder of files."""
SEND_ROWS = 10_000

STAGED_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class TopicSink(Spec):
    """Where the rows of a sink go, as a commit names it. Secrets are looked up by whoever sends."""

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
    """Columns `value` and `key` where there is a value; else every row is one as JSON. As a fused run writes it."""
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
    """The last epoch that was sent, as it was written down beside what is staged."""
    try:
        return int(storage(sink.staging).read(_sent_file(sink)))
    except FileNotFoundError:
        return NONE_YET


def _mark(sink: TopicSink, epoch: int) -> None:
    storage(sink.staging).write(_sent_file(sink), lambda file: file.write(str(epoch).encode()))


def _read_staged(sink: TopicSink, epoch: int, path: str, last: int) -> bytes:
    """What is staged is deleted once it was sent, and that is marked. Where it is gone and no number says so, somebody
    deleted what was to be sent, or an earlier version sent it, which left no mark. Only people can tell, by looking
    into the topic; sending on what is left would double or lose it."""
    try:
        return storage(sink.staging).read(path)
    except FileNotFoundError as error:
        known = "no epoch" if last == NONE_YET else f"epoch {last}"
        way_out = f"; if it was, set offset {epoch + 1} of partition 0 for the consumer group '{sink.producer}'"
        raise LogError(
            f"topic '{sink.topic}': {known} is known to be sent under '{sink.producer}', and what epoch {epoch} staged "
            f"is gone ({path}): look into the topic whether it was sent{way_out if sink.format == KAFKA else ''}"
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
        """Of one epoch, by its own number: a commit that only takes a run over names what the one before it did."""
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
                    # by whoever took the run over, who sends this too; or by a broker that waited too long for the end
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
            # what it holds is of no use any more; the next one begins from what the log knows
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
