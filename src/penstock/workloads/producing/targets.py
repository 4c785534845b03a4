"""Where a producer's messages go: a topic, or files that appear whole."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from penstock.clock import Stopwatch
from penstock.connectors.log.address import LogAddress, parse_topic
from penstock.connectors.log.contract import UnknownTopicError
from penstock.errors import BadInputError
from penstock.files import output_path
from penstock.workloads.producing.spec import FILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.log.contract import Producer, TopicLog
    from penstock.workloads.producing.spec import ProducerSpec

SHOWN_SECONDS = 0.1
"""What was sent is there for readers after so long."""
FILE_SECONDS = 1.0
"""One file holds what was sent in so long."""


class ProducerTarget(Protocol):
    partitions: int

    def send(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None, time_ms: int
    ) -> None: ...

    def tick(self) -> None:
        """Time has passed: let readers see what was sent."""

    def close(self) -> None: ...


class _TopicTarget:
    def __init__(self, log: TopicLog, topic: str) -> None:
        self._topic = topic
        self.partitions = log.topics()[topic]
        self._producer: Producer = log.producer()
        self._shown = Stopwatch()

    def send(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None, time_ms: int
    ) -> None:
        self._producer.send(self._topic, values, keys, partition=partition, times_ms=[time_ms] * len(values))

    def tick(self) -> None:
        if self._shown.seconds() >= SHOWN_SECONDS:
            self._producer.flush()
            self._shown = Stopwatch()

    def close(self) -> None:
        self._producer.close()


class _FileTarget:
    partitions = 1

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{folder}: cannot be written: {error.strerror or error}") from error
        self._folder = folder
        # two producers may write into one folder: each has names of its own
        self._token = token_hex(4)
        self._written = len(list(folder.glob("*.jsonl")))
        self._held: list[bytes] = []
        self._since = Stopwatch()

    def send(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, partition: int | None, time_ms: int
    ) -> None:
        self._held += values

    def tick(self) -> None:
        if self._since.seconds() >= FILE_SECONDS:
            self._write()

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        if self._held:
            with output_path(self._folder / f"{self._written:09d}-{self._token}.jsonl") as temporary:
                temporary.write_bytes(b"".join(value + b"\n" for value in self._held))
            self._written += 1
        self._held, self._since = [], Stopwatch()


def target_of(spec: ProducerSpec) -> ProducerTarget:
    if spec.to.startswith(FILES):
        return _FileTarget(Path(spec.to.removeprefix(FILES)))
    address, topic = parse_topic(spec.to)
    log = LogAddress(address.format, {**address.options, **spec.options}).open()
    if spec.partitions is None:
        try:
            log.spans(topic)  # says which topics there are
        except UnknownTopicError as error:
            raise UnknownTopicError(f"{error}; partitions (--partitions N) makes it") from error
    if spec.partitions is not None or spec.retention_seconds is not None:
        log.create(topic, spec.partitions or log.topics()[topic], spec.retention_seconds)
    return _TopicTarget(log, topic)
