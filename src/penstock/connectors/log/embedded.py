"""A log in a folder: what a broker does, for one machine and without one.

    topics/NAME/topic.json            partitions, retention
    topics/NAME/00000/*.segment       a partition
    groups/NAME.json                  how far consumer groups have read
    producers/NAME.json               who may commit under a name, and the number of the last transaction
    journal                           a transaction that is decided and may not be written whole yet
    lock                              held while anything changes

A transaction is decided when its journal is there: whoever takes the lock next finishes it, so that it is seen whole or
not at all, whatever died.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from penstock.clock import now
from penstock.connectors.log.contract import (
    NONE_YET,
    FencedError,
    Span,
    UnknownTopicError,
    check_partitions,
    check_topic,
)
from penstock.connectors.log.frames import STORED
from penstock.connectors.log.partition import SEGMENT_BYTES, Partition
from penstock.errors import BadInputError, nearest
from penstock.files import (
    Amount,
    Count,
    Spec,
    parse_json,
    private_folder,
    read_text,
    read_value,
    write_bytes,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILES_OF_RETENTION = 8
"""Where messages are kept for R seconds, a file takes those of R / 8: no message is kept for longer than 9 R / 8, as
long as others come."""
FLUSH_MESSAGES = 20_000
"""Messages of one partition that a producer holds before it writes them down."""


class _Topic(Spec):
    partitions: Count
    retention_seconds: Amount | None = None


class _ProducerState(Spec):
    epoch: Count
    """Of the producer that may commit."""
    last: int = NONE_YET


class EmbeddedLog:
    def __init__(self, folder: str | Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = private_folder(Path(folder))
        self._segment_bytes = segment_bytes
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._within = threading.RLock()
        self._depth = 0

    # Topics.

    def topics(self) -> dict[str, int]:
        folder = self._folder / "topics"
        names = sorted(path.parent.name for path in folder.glob("*/topic.json")) if folder.is_dir() else []
        return {name: self._topic(name).partitions for name in names}

    def create(self, topic: str, partitions: int, retention_seconds: float | None = None) -> None:
        check_topic(topic)
        check_partitions(partitions)
        with self._locked():
            file = self._topic_file(topic)
            if file.exists():
                known = self._topic(topic)
                partitions = max(partitions, known.partitions)
                retention_seconds = known.retention_seconds if retention_seconds is None else retention_seconds
            private_folder(file.parent)
            asked = _Topic(partitions=partitions, retention_seconds=retention_seconds)
            write_text(file, asked.model_dump_json())

    def spans(self, topic: str) -> dict[int, Span]:
        with self._locked():
            count = self._topic(topic).partitions
            return {number: self._partition(topic, number).look() for number in range(count)}

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        with self._locked():
            if not 0 <= partition < self._topic(topic).partitions:
                raise UnknownTopicError(f"topic '{topic}': no partition {partition}")
            mine = self._partition(topic, partition)
            batches = mine.read(first, end)
        yield from batches

    # Producers.

    def producer(self) -> EmbeddedProducer:
        return EmbeddedProducer(self)

    def transactional(self, name: str, topic: str) -> EmbeddedTransactions:
        self._topic(topic)
        with self._locked():
            state = self._producer_state(check_topic(name))
            taken = _ProducerState(epoch=state.epoch + 1 if state else 1, last=state.last if state else NONE_YET)
            self._write(self._folder / "producers" / f"{name}.json", taken.model_dump_json())
        return EmbeddedTransactions(self, name, taken.epoch, taken.last)

    def append(self, batches: Mapping[tuple[str, int], pa.RecordBatch]) -> None:
        """Messages that are in no transaction."""
        with self._locked():
            for (topic, number), batch in batches.items():
                self._append(topic, number, batch)
                self._expire(topic, number)

    def commit(self, name: str, epoch: int, number: int, batches: Mapping[tuple[str, int], pa.RecordBatch]) -> None:
        """The transaction of the producer that took `name` as its `epoch`th."""
        with self._locked():
            state = self._producer_state(name)
            if state is None or state.epoch != epoch:
                raise FencedError(f"producer '{name}': another one took over")
            bodies = [batch.serialize().to_pybytes() for batch in batches.values()]
            parts = [
                {"topic": topic, "partition": partition, "before": self._partition(topic, partition).size, "size": size}
                for (topic, partition), size in zip(batches, map(len, bodies), strict=True)
            ]
            header = json.dumps({"producer": name, "epoch": epoch, "number": number, "parts": parts})
            write_bytes(self._journal, b"\n".join([header.encode(), b"".join(bodies)]))
            self._finish()

    # Groups.

    def commit_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        file = self._folder / "groups" / f"{check_topic(group)}.json"
        with self._locked():
            known: dict[str, Any] = parse_json(read_text(file), str(file)) if file.exists() else {}
            mine = {**known.get(topic, {}), **{str(number): offset for number, offset in offsets.items()}}
            self._write(file, json.dumps({**known, topic: mine}))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        file = self._folder / "groups" / f"{check_topic(group)}.json"
        if not file.exists():
            return {}
        known: dict[str, Any] = parse_json(read_text(file), str(file))
        return {int(number): int(offset) for number, offset in known.get(topic, {}).items()}

    def close(self) -> None:
        """It holds nothing open."""

    # Inside.

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else changes anything; what a dead process decided and did not finish is finished first."""
        with self._within:
            if self._depth:
                yield
                return
            handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                self._depth += 1
                if self._journal.exists():
                    self._finish_left()
                yield
            finally:
                self._depth = 0
                os.close(handle)

    def _finish_left(self) -> None:
        """A journal that somebody left. Where its transaction was finished, a power cut has brought it back: what came
        behind it since must not be cut off. That it was finished is on the disk before it is deleted."""
        journal, _ = self._journal_read()
        state = self._producer_state(journal["producer"])
        if state is not None and state.last >= journal["number"]:
            self._journal.unlink()
        else:
            self._finish()

    def _journal_read(self) -> tuple[dict[str, Any], bytes]:
        # of our own making and as large as a transaction is: no limit of foreign files holds for it
        header, _, bodies = self._journal.read_bytes().partition(b"\n")
        return parse_json(header.decode(), str(self._journal)), bodies

    def _finish(self) -> None:
        """Write what the journal says, from where it began: done twice it is there once."""
        journal, bodies = self._journal_read()
        at = 0
        for part in journal["parts"]:
            partition = self._partition(part["topic"], part["partition"])
            partition.cut(*part["before"])
            body = pa.py_buffer(bodies[at : at + part["size"]])
            self._append(part["topic"], part["partition"], pa.ipc.read_record_batch(body, STORED))
            at += part["size"]
        state = _ProducerState(epoch=journal["epoch"], last=journal["number"])
        self._write(self._folder / "producers" / f"{journal['producer']}.json", state.model_dump_json())
        self._journal.unlink()
        # not before: a journal names files that must still be there if it is read again
        for part in journal["parts"]:
            self._expire(part["topic"], part["partition"])

    def _append(self, topic: str, number: int, batch: pa.RecordBatch) -> None:
        """Retention drops whole files: each holds messages of no more than a part of it."""
        retention = self._topic(topic).retention_seconds
        oldest_ms = None if retention is None else int((now() - retention / FILES_OF_RETENTION) * 1000)
        self._partition(topic, number).append(batch, oldest_ms)

    def _expire(self, topic: str, number: int) -> None:
        retention = self._topic(topic).retention_seconds
        if retention is not None:
            self._partition(topic, number).expire(int((now() - retention) * 1000))

    def _partition(self, topic: str, number: int) -> Partition:
        partition = self._partitions.get((topic, number))
        if partition is None:
            folder = self._topic_file(topic).parent / f"{number:05d}"
            partition = self._partitions[topic, number] = Partition(folder, topic, number, self._segment_bytes)
        return partition

    def _topic(self, name: str) -> _Topic:
        file = self._topic_file(check_topic(name))
        if not file.is_file():
            raise UnknownTopicError(f"{self._folder}: no topic '{name}'; {nearest(name, self.topics())}")
        return read_value(_Topic, file)

    def _topic_file(self, topic: str) -> Path:
        return self._folder / "topics" / topic / "topic.json"

    def _producer_state(self, name: str) -> _ProducerState | None:
        file = self._folder / "producers" / f"{name}.json"
        return read_value(_ProducerState, file) if file.exists() else None

    @property
    def _journal(self) -> Path:
        return self._folder / "journal"

    @staticmethod
    def _write(file: Path, text: str) -> None:
        private_folder(file.parent)
        write_text(file, text)


class _Outbox:
    """Messages by partition until they are written down."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._counts: dict[str, int] = {}
        self._next = 0
        self._held: dict[tuple[str, int], list[tuple[bytes | None, bytes, int]]] = {}

    def take(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        partition: int | None,
        times_ms: Sequence[int] | None,
    ) -> None:
        if topic not in self._counts:
            known = self._log.topics()
            if topic not in known:
                raise UnknownTopicError(f"no topic '{topic}'; {nearest(topic, known)}")
            self._counts[topic] = known[topic]
        count = self._counts[topic]
        if partition is not None and not 0 <= partition < count:
            raise BadInputError(f"topic '{topic}': no partition {partition}, it has {count}")
        stamp = int(now() * 1000)
        for position, value in enumerate(values):
            key = None if keys is None else keys[position]
            time_ms = stamp if times_ms is None else times_ms[position]
            to = self._choose(count, key) if partition is None else partition
            self._held.setdefault((topic, to), []).append((key, value, time_ms))

    def _choose(self, count: int, key: bytes | None) -> int:
        if key is not None:
            return crc32(key) % count
        self._next += 1
        return self._next % count

    @property
    def most(self) -> int:
        return max(map(len, self._held.values()), default=0)

    def empty(self) -> dict[tuple[str, int], pa.RecordBatch]:
        held, self._held = self._held, {}
        return {
            where: pa.RecordBatch.from_arrays(
                [
                    pa.array([row[0] for row in rows], pa.binary()),
                    pa.array([row[1] for row in rows], pa.binary()),
                    pa.array([row[2] for row in rows], pa.int64()),
                ],
                schema=STORED,
            )
            for where, rows in held.items()
        }


class EmbeddedProducer:
    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._outbox = _Outbox(log)

    def send(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> None:
        self._outbox.take(topic, values, keys, partition, times_ms)
        if self._outbox.most >= FLUSH_MESSAGES:
            self.flush()

    def flush(self) -> None:
        self._log.append(self._outbox.empty())

    def close(self) -> None:
        self.flush()


class EmbeddedTransactions:
    def __init__(self, log: EmbeddedLog, name: str, epoch: int, last: int) -> None:
        self._log, self._name, self._epoch = log, name, epoch
        self.last = last
        self._outbox = _Outbox(log)

    def send(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> None:
        self._outbox.take(topic, values, keys, partition, times_ms)

    def commit(self, number: int) -> None:
        self._log.commit(self._name, self._epoch, number, self._outbox.empty())
        self.last = number

    def abort(self) -> None:
        self._outbox.empty()

    def close(self) -> None:
        self.abort()
