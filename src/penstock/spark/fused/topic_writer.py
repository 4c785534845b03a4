"""A sink that is a topic, exactly once: a batch is staged as files, then every part of it is sent in one transaction
that carries the batch's number.

A batch that is run again finds what was staged, and its parts find their number in the log: what was committed is left
out, what was not is sent. Rows are worked out once, so code that answers differently the second time does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.log.contract import FencedError, check_topic, producer_name
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.log.address import LogAddress
    from penstock.connectors.log.contract import TopicLog, TransactionalProducer

SEND_ROWS = 10_000


class TopicWriter:
    exactly_once = True

    def __init__(
        self, session: SparkSession, who: str, address: LogAddress, options: Mapping[str, str], name: str, staging: str
    ) -> None:
        """`name` is that of the run and sink for good; `staging` a folder every executor reaches."""
        if "topic" not in options:
            raise BadInputError(f"{who}: expected the option topic: NAME")
        self._session, self._who, self._address = session, who, address
        self._topic = check_topic(options["topic"])
        self._name = producer_name(name)
        self._staging = f"{staging.rstrip('/')}/{self._name}"

    def prepare(self) -> None:
        """A broker that does not answer, or has no such topic, is complained about before anything runs."""
        try:
            log = self._address.open()
            log.spans(self._topic)
            log.close()
        except OSError as error:
            raise BadInputError(f"{self._who}: {error}") from error

    def close(self) -> None:
        self._delete(self._staging)

    def write(self, frame: DataFrame, batch: int) -> None:
        place = f"{self._staging}/{batch}"
        if not self._exists(f"{place}/_SUCCESS"):
            as_messages(frame).write.mode("overwrite").parquet(place)
        parts = sorted(self._parts(place))
        if parts:
            address, topic, name = self._address, self._topic, self._name

            def publish(numbered: Iterable[tuple[int, str]]) -> Iterator[int]:
                for number, path in numbered:
                    yield publish_part(address, topic, f"{name}-{number}", path, batch)

            self._session.sparkContext.parallelize(list(enumerate(parts)), len(parts)).mapPartitions(publish).collect()
        self._delete(f"{self._staging}/{batch - 1}")

    # Hadoop's view of the staging folder: executors may be elsewhere.

    def _path(self, place: str) -> tuple[Any, Any]:
        java: Any = self._session.sparkContext._jvm
        path = java.org.apache.hadoop.fs.Path(place)
        return path, path.getFileSystem(self._session.sparkContext._jsc.hadoopConfiguration())

    def _exists(self, place: str) -> bool:
        path, files = self._path(place)
        return bool(files.exists(path))

    def _parts(self, place: str) -> list[str]:
        path, files = self._path(place)
        names = [status.getPath().toString() for status in files.listStatus(path)]
        return [name for name in names if name.endswith(".parquet")]

    def _delete(self, place: str) -> None:
        path, files = self._path(place)
        files.delete(path, True)


def as_messages(frame: DataFrame) -> DataFrame:
    """Columns `value` and `key` where there is a value; else each row is one as JSON."""
    if "value" in frame.columns:
        key = "CAST(key AS binary) AS key" if "key" in frame.columns else "CAST(NULL AS binary) AS key"
        return frame.selectExpr(key, "CAST(value AS binary) AS value")
    columns = ", ".join(f"`{name}`" for name in frame.columns)
    return frame.selectExpr("CAST(NULL AS binary) AS key", f"CAST(to_json(struct({columns})) AS binary) AS value")


_PRODUCERS: dict[str, tuple[TopicLog, TransactionalProducer]] = {}
"""Of this worker process: taking a name over takes longer than sending a batch. One that was taken over by another
worker says so when it commits."""


def publish_part(address: LogAddress, topic: str, name: str, path: str, batch: int) -> int:
    """In a task: messages sent, 0 where the transaction of this number was committed before."""
    for attempt in (0, 1):
        if attempt or name not in _PRODUCERS:
            log = address.open()
            _PRODUCERS[name] = log, log.transactional(name, topic)
        _, producer = _PRODUCERS[name]
        if producer.last >= batch:
            return 0
        try:
            return _send(producer, topic, path, batch)
        except FencedError:
            del _PRODUCERS[name]
            if attempt:
                raise
        except Exception:
            del _PRODUCERS[name]
            producer.close()
            raise
    raise AssertionError("the loop returns or raises")


def _send(producer: TransactionalProducer, topic: str, path: str, batch: int) -> int:
    from pyarrow import fs, parquet  # noqa: PLC0415 - in a worker

    files, name = fs.FileSystem.from_uri(path.replace("file:/", "file:///", 1) if path.startswith("file:/") else path)
    sent = 0
    with files.open_input_file(name) as file:
        for rows in parquet.ParquetFile(file).iter_batches(SEND_ROWS, columns=["key", "value"]):
            producer.send(topic, rows["value"].to_pylist(), rows["key"].to_pylist())
            sent += rows.num_rows
    producer.commit(batch)
    return sent
