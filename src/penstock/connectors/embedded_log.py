"""A log in a folder: the functions of a broker, for one machine and without a broker.

    topics/NAME/topic.json            partitions, retention
    topics/NAME/00000/*.segment       a partition
    groups/NAME.json                  offsets of consumer groups
    producers/NAME.json               the epoch that may commit under a name, and the number of the last transaction
    journal                           a transaction that is decided and may not be written whole yet
    lock                              held while anything changes

A transaction is decided when its journal is there. The next process that takes the lock finishes it, so readers see all
of it or nothing, whichever process died.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from penstock.base.clock import now
from penstock.base.errors import BadInputError, nearest
from penstock.base.files import (
    Amount,
    Count,
    Spec,
    parse_json,
    private_folder,
    read_text,
    read_value,
    to_disk,
    write_bytes,
    write_text,
)
from penstock.connectors.log_contract import (
    MESSAGES,
    NONE_YET,
    DamagedLogError,
    FencedError,
    GoneError,
    LogError,
    Span,
    UnknownTopicError,
    check_partitions,
    check_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# The file of a partition: frames one behind the other, each some messages as an Arrow record batch.
#
# magic, bytes of the body, checksum of the body, first offset, messages, time of the last in ms | body
#
# A frame that was not written whole (its process died) does not check out: it was never appended. It can only be the
# last: the next append begins at the end of the last whole one.


_HEAD = struct.Struct("<4sIIQIq")
_MAGIC = b"PSL1"

STORED = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("time_ms", pa.int64())])
"""Offsets follow from the first."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Position of a frame in its file, and its contents."""

    position: int
    size: int
    checksum: int
    first: int
    messages: int
    last_ms: int

    @property
    def end(self) -> int:
        return self.first + self.messages

    @property
    def behind(self) -> int:
        """Offset at which the next one begins."""
        return self.position + _HEAD.size + self.size


def encode(batch: pa.RecordBatch, first: int, last_ms: int) -> bytes:
    body: bytes = batch.serialize().to_pybytes()
    return _HEAD.pack(_MAGIC, len(body), crc32(body), first, batch.num_rows, last_ms) + body


def read_frame(handle: int, frame: Frame) -> pa.RecordBatch | None:
    """Return the batch of a frame; None if the frame has changed since it was found."""
    body = os.pread(handle, frame.size, frame.position + _HEAD.size)
    return pa.ipc.read_record_batch(pa.py_buffer(body), STORED) if crc32(body) == frame.checksum else None


def scan(handle: int, position: int, expected: int) -> Iterator[Frame]:
    """The frames from `position` on that are whole; `expected` is the first offset of the first."""
    while (frame := _frame_at(handle, position)) is not None and frame.first == expected:
        yield frame
        position, expected = frame.behind, frame.end


def whole_frame_behind(handle: int, position: int) -> Frame | None:
    """Return the first whole frame after `position`: then the bytes at `position` were a whole frame once, too. If they
    are whole now, another process was just writing them."""
    left = os.pread(handle, max(0, os.fstat(handle).st_size - position), position)
    at = left.find(_MAGIC, 1)
    while at != -1:
        frame = _frame_at(handle, position + at)
        if frame is not None:
            return frame if _frame_at(handle, position) is None else None
        at = left.find(_MAGIC, at + 1)
    return None


def _frame_at(handle: int, position: int) -> Frame | None:
    head = os.pread(handle, _HEAD.size, position)
    if len(head) < _HEAD.size:
        return None
    magic, size, checksum, first, messages, last_ms = _HEAD.unpack(head)
    if magic != _MAGIC:
        return None
    body = os.pread(handle, size, position + _HEAD.size)
    if len(body) < size or crc32(body) != checksum:
        return None
    return Frame(position, size, checksum, first, messages, last_ms)


# One partition of the embedded log: files of frames, called after the first offset they hold.
#
# Appending and dropping need the lock of the log; reading does not, and returns all earlier appends.


SEGMENT_BYTES = 32 * 2**20
"""A file that has grown so large is followed by another: retention drops whole files."""
ENDING = ".segment"


@dataclass
class _Known:
    """State of one file as this process last saw it."""

    path: Path
    first: int
    frames: list[Frame] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.frames[-1].end if self.frames else self.first

    @property
    def behind(self) -> int:
        return self.frames[-1].behind if self.frames else 0

    def is_full(self, segment_bytes: int, oldest_ms: int | None) -> bool:
        is_old = oldest_ms is not None and bool(self.frames) and self.frames[0].last_ms < oldest_ms
        return is_old or self.behind >= segment_bytes


class Partition:
    def __init__(self, folder: Path, topic: str, number: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder, self._topic, self._number = folder, topic, number
        self._segment_bytes = segment_bytes
        self._known: dict[int, _Known] = {}

    def look(self) -> Span:
        """Return the present span. Raise `DamagedLogError` if messages before it are missing."""
        firsts = self._firsts()
        for gone in self._known.keys() - set(firsts):
            del self._known[gone]
        for first, following in zip_longest(firsts, firsts[1:]):
            segment = self._known.setdefault(first, _Known(self._path(first), first))
            if segment.end != following:  # the last one may have grown, and others since they were the last
                with _opened(segment.path) as handle:
                    segment.frames += scan(handle, segment.behind, segment.end)
                    self._check_nothing_behind(handle, segment, following)
        return Span(firsts[0], self._known[firsts[-1]].end) if firsts else Span(0, 0)

    def _check_nothing_behind(self, handle: int, segment: _Known, following: int | None) -> None:
        """Check that offsets have no holes. Only after the last whole frame of the last file there may be other bytes:
        a frame that was not finished."""
        frame = whole_frame_behind(handle, segment.behind)
        next_offset = frame.first if frame is not None else following
        if next_offset is not None and next_offset != segment.end:
            raise self._damaged(
                segment.path, segment.behind, segment.end, f", and messages from {next_offset:,} on follow"
            )

    def _damaged(self, path: Path, position: int, offset: int, more: str = "") -> DamagedLogError:
        where = f"topic '{self._topic}', partition {self._number}"
        return DamagedLogError(f"{path}: damaged at byte {position:,}: {where} has no message {offset:,} there{more}")

    @property
    def size(self) -> tuple[int, int]:
        """First offset of the file that is appended to, and its bytes that count: what a journal goes back to."""
        self.look()
        last = max(self._known, default=0)
        return last, self._known[last].behind if self._known else 0

    def append(self, batch: pa.RecordBatch, oldest_ms: int | None = None) -> None:
        """Append after the last whole frame; a frame left unfinished there is overwritten. A file that begins with
        messages from before `oldest_ms` is followed by another, however small it is."""
        span = self.look()
        last = max(self._known, default=None)
        if last is None or self._known[last].is_full(self._segment_bytes, oldest_ms):
            last = span.end
            self._known[last] = _Known(self._path(last), last)
        segment = self._known[last]
        times = batch.column("time_ms")
        last_ms = int(times[-1].as_py()) if len(times) else 0
        data = encode(batch, span.end, last_ms)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(segment.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(handle, segment.behind)
            position = segment.behind
            written = 0
            while written < len(data):
                written += os.pwrite(handle, data[written:], position + written)
            os.fdatasync(handle)
        finally:
            os.close(handle)
        if not segment.frames:  # a new file must be found again, too
            to_disk(self._folder)
            to_disk(self._folder.parent)

    def cut(self, first: int, position: int) -> None:
        """Cut back to an earlier `size`: messages appended since are forgotten."""
        for segment in reversed(self._firsts()):  # whatever dies in between leaves no hole
            if segment > first:
                self._path(segment).unlink()
        if self._path(first).exists():
            os.truncate(self._path(first), position)
        self._known.clear()

    def expire(self, before_ms: int) -> None:
        """Drop files whose messages are all older, but never the one that is appended to."""
        self.look()
        for first in sorted(self._known)[:-1]:
            frames = self._known[first].frames
            if frames and frames[-1].last_ms >= before_ms:
                return
            self._path(first).unlink(missing_ok=True)
            del self._known[first]

    def read(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Read messages. Called with the lock held, as all methods that look: two that look at once would count every
        frame twice. The selection is made when it returns; the messages themselves may be fetched without the lock."""
        span = self.look()
        if first < span.first:
            raise GoneError(self._topic, self._number, first, span.first)
        if first >= end:
            return iter(())
        starts = sorted(self._known)
        segments = [self._known[start] for start in starts[max(0, bisect_right(starts, first) - 1) :]]
        frames = {segment.path: _frames_between(segment.frames, first, end) for segment in segments}
        return self._read_frames(frames, first, end)

    def _read_frames(self, frames: Mapping[Path, Sequence[Frame]], first: int, end: int) -> Iterator[pa.RecordBatch]:
        for path, inside in frames.items():
            if not inside:
                continue
            with _opened(path) as handle:
                for frame in inside:
                    stored = read_frame(handle, frame)
                    if stored is None:
                        raise self._damaged(path, frame.position, frame.first)
                    low, high = max(first, frame.first), min(end, frame.end)
                    rows = stored.slice(low - frame.first, high - low)
                    yield pa.RecordBatch.from_arrays(
                        [rows["key"], rows["value"], pa.array(np.arange(low, high)), rows["time_ms"]], schema=MESSAGES
                    )

    def _firsts(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(path.stem) for path in self._folder.glob(f"*{ENDING}"))

    def _path(self, first: int) -> Path:
        return self._folder / f"{first:020d}{ENDING}"


def _frames_between(frames: Sequence[Frame], first: int, end: int) -> Sequence[Frame]:
    """Those that hold messages from `first` up to `end`."""
    start = bisect_right(frames, first, key=lambda frame: frame.end)
    return frames[start : bisect_left(frames, end, key=lambda frame: frame.first)]


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        yield handle
    finally:
        os.close(handle)


FILES_OF_RETENTION = 8
"""Files per retention time. With a retention of R seconds a file takes messages of R / 8, so no message is kept for
longer than 9 R / 8 while others arrive."""
FLUSH_MESSAGES = 20_000
"""Messages of one partition that a producer holds before it writes them down."""


class _Topic(Spec):
    partitions: Count
    retention_seconds: Amount | None = None


class _ProducerState(Spec):
    epoch: Count
    """Epoch of the producer that may commit."""
    last: int = NONE_YET


def open_log(options: Mapping[str, str]) -> EmbeddedLog:
    """Open the log in the folder that the options of a source or sink name."""
    path = options.get("path")
    if not path:
        raise BadInputError("format log: expected the option path: FOLDER")
    return EmbeddedLog(Path(path))


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
        """Keep all others from changing anything. A transaction that a dead process decided and did not finish is
        finished first."""
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
        """Finish a journal that was left. If its transaction was finished already, a power cut has brought the journal
        back: messages written after it must not be cut off. The note that it was finished is on disk before the journal
        is deleted."""
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
        """Write the transaction of the journal from its start; a repetition changes nothing."""
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


class _EmbeddedSender:
    """Messages by partition until they are written down."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._counts: dict[str, int] = {}
        self._next = 0
        self._held: dict[tuple[str, int], list[tuple[bytes | None, bytes, int]]] = {}

    def send(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        times_ms: Sequence[int] | None = None,
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
        self._after_send()

    def _after_send(self) -> None:
        """Called after messages were taken."""

    def _choose(self, count: int, key: bytes | None) -> int:
        if key is not None:
            return crc32(key) % count
        self._next += 1
        return self._next % count

    @property
    def _max_waiting(self) -> int:
        return max(map(len, self._held.values()), default=0)

    def _pop_batches(self) -> dict[tuple[str, int], pa.RecordBatch]:
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


class EmbeddedProducer(_EmbeddedSender):
    def _after_send(self) -> None:
        if self._max_waiting >= FLUSH_MESSAGES:
            self.flush()

    def flush(self) -> None:
        self._log.append(self._pop_batches())

    def close(self) -> None:
        self.flush()


class EmbeddedTransactions(_EmbeddedSender):
    def __init__(self, log: EmbeddedLog, name: str, epoch: int, last: int) -> None:
        super().__init__(log)
        self._name, self._epoch = name, epoch
        self.last = last

    def commit(self, number: int) -> None:
        self._log.commit(self._name, self._epoch, number, self._pop_batches())
        self.last = number

    def abort(self) -> None:
        self._pop_batches()

    def close(self) -> None:
        self.abort()
