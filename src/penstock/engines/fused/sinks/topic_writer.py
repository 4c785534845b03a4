"""A sink that is a topic, exactly once: a batch is staged as files, then the driver sends it in one transaction that
carries the batch's number.

A batch that is run again finds its staged files, and its number in the log: committed messages are skipped, others are
sent. A log may forget the number (Kafka does, after a week), so a batch that was sent is marked beside its staged
files, too. Rows are computed once, so code with a different answer the second time does no harm. One process sends:
producers that tasks take over from each other cost more than sending does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyarrow import parquet

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import FencedError, LogError, check_topic, producer_name
from penstock.connectors.topic_address import LogAddress, parse_topic
from penstock.dataflow.formats import find_format, reading_of, writing_of
from penstock.dataflow.pipeline import Kind
from penstock.spark.internals.checkpoint import CheckpointLog
from penstock.spark.internals.hadoop_files import HadoopFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.log_contract import TopicLog, TransactionalProducer
    from penstock.dataflow.formats import Reading, Writing
    from penstock.dataflow.pipeline import Pipeline


SEND_ROWS = 10_000
PATIENCE_SECONDS = 300.0
"""Seconds a broker may be away before the run fails."""
RETRY_SECONDS = 1.0
SENT = "_SENT"
"""File in the folder of a batch that is in the topic."""


class TopicWriter:
    exactly_once = True

    def __init__(
        self,
        session: SparkSession,
        who: str,
        address: LogAddress,
        options: Mapping[str, str],
        name: str,
        checkpoint: str,
    ) -> None:
        """`name` is that of the checkpoint's owner and sink; batches are staged beside the run's `checkpoint`, which
        every executor reaches."""
        if "topic" not in options:
            raise BadInputError(f"{who}: expected the option topic: NAME")
        self._session, self._who, self._address = session, who, address
        self._files = HadoopFiles(session)
        self._topic = check_topic(options["topic"])
        self._name = producer_name(name)
        self._checkpoint = checkpoint
        self._staging = f"{checkpoint.rstrip('/')}-topics/{self._name}"
        self._publisher = BatchPublisher(address, self._topic, self._name)

    def prepare(self) -> None:
        """A broker that does not answer, or has no such topic, is complained about before anything runs."""
        try:
            log = self._address.open()
            log.spans(self._topic)
            log.close()
        except OSError as error:
            raise BadInputError(f"{self._who}: {error}") from error

    def close(self) -> None:
        """Keep staged files: a batch that Spark has not committed is run again by the next process. It may be in the
        topic already, so it must be the same one."""
        self._publisher.close()
        committed = CheckpointLog(self._session, self._checkpoint, "commits").last()
        under_way = f"{self._staging}/{committed + 1}"
        if not self._files.exists(under_way):
            self._files.delete(self._staging)
        elif committed >= 0:
            self._files.delete(f"{self._staging}/{committed}")

    def write(self, frame: DataFrame, batch: int) -> None:
        place = f"{self._staging}/{batch}"
        if not self._files.exists(f"{place}/_SUCCESS"):
            as_messages(frame).write.mode("overwrite").parquet(place)
        if not self._files.exists(f"{place}/{SENT}"):
            with self._files.on_this_machine(place, ".parquet") as parts:
                self._publisher.publish(parts, batch)
            self._files.touch(f"{place}/{SENT}")
        self._files.delete(f"{self._staging}/{batch - 1}")


def as_messages(frame: DataFrame) -> DataFrame:
    """Return columns `value` and `key` if there is a value; else each row as JSON."""
    if "value" in frame.columns:
        kinds = dict(frame.dtypes)
        key = f"{_binary('key', kinds['key'])} AS key" if "key" in kinds else "CAST(NULL AS binary) AS key"
        return frame.selectExpr(key, f"{_binary('value', kinds['value'])} AS value")
    columns = ", ".join(f"`{name}`" for name in frame.columns)
    return frame.selectExpr("CAST(NULL AS binary) AS key", f"CAST(to_json(struct({columns})) AS binary) AS value")


def _binary(column: str, kind: str) -> str:
    """A number as its digits."""
    return f"CAST({column} AS binary)" if kind in {"binary", "string"} else f"CAST(CAST({column} AS string) AS binary)"


class BatchPublisher:
    """Sends the parts of a batch under one name. A broker that is away is waited for."""

    def __init__(self, address: LogAddress, topic: str, name: str) -> None:
        self._address, self._topic, self._name = address, topic, name
        self._made: tuple[TopicLog, TransactionalProducer] | None = None

    def publish(self, parts: Sequence[Path], batch: int) -> None:
        watch = Stopwatch()
        while True:
            try:
                self._send(parts, batch)
                return
            except (LogError, FencedError):
                # fenced by the broker after the transaction timeout, or by a process that resumed this run; then the
                # number of the batch is in the log, or will be
                self.close()
                if watch.seconds() > PATIENCE_SECONDS:
                    raise
                pause(RETRY_SECONDS)

    def _send(self, parts: Sequence[Path], batch: int) -> None:
        if self._made is None:
            log = self._address.open()
            self._made = log, log.transactional(self._name, self._topic)
        producer = self._made[1]
        if producer.last >= batch:
            return
        for path in parts:
            for rows in _staged(path):
                producer.send(self._topic, rows["value"].to_pylist(), rows["key"].to_pylist())
        producer.commit(batch)

    def close(self) -> None:
        if self._made is not None:
            (log, producer), self._made = self._made, None
            producer.close()
            log.close()


def _staged(path: Path) -> Iterator[pa.RecordBatch]:
    with parquet.ParquetFile(path) as file:
        yield from file.iter_batches(SEND_ROWS, columns=["key", "value"])


# Topic for dead letters: its address has no place for the settings that a broker is reached with.


def letter_topic(pipeline: Pipeline, place: str) -> tuple[LogAddress, str]:
    """The log and the topic of an address; a broker is reached as the pipeline's sources and sinks at the same servers
    reach it (TLS, SASL)."""
    address, topic = parse_topic(place)
    form = find_format(address.format)
    servers = address.options.get(form.address_option)
    for options in _options_of(pipeline, form.name) if form.client_prefix else ():
        if options.get(form.address_option) == servers:
            same = {key: value for key, value in options.items() if key.startswith(form.client_prefix)}
            return LogAddress(form.name, {**same, **address.options}), topic
    return address, topic


def _options_of(pipeline: Pipeline, name: str) -> Iterator[Mapping[str, str]]:
    """Yield the options of all sources and sinks of a format."""
    for operator in pipeline.operators.values():
        if operator.kind is not Kind.OPERATOR:
            end: Reading | Writing = reading_of(operator) if operator.kind is Kind.SOURCE else writing_of(operator)
            if end.format == name:
                yield end.options
