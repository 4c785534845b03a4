"""The contract of a log of messages: topics of partitions, offsets that only rise, transactions by number.

Kafka (`connectors.kafka`) and the embedded log (`connectors.log.embedded`) both are one; a single suite of tests holds
them to it. Readers see only committed messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.base.errors import BadInputError, PenstockError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MESSAGES = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("time_ms", pa.int64()),
    ]
)
"""Messages of one partition: `time_ms` is the time of sending by the producer's clock, in milliseconds since the
epoch."""

NONE_YET = -1
"""The number of the last transaction if there was none."""

_TOPIC = re.compile(r"^[A-Za-z0-9._-]{1,249}$")


class LogError(OSError, PenstockError):
    """The log does not answer, or not as it should; it may do so later."""


class DamagedLogError(LogError, BadInputError):
    """The log's files are damaged; waiting does not help."""


class NotTakenError(RunFailedError):
    """A message the log will never take as it is sent (too large, not allowed); waiting does not help."""


class UnknownTopicError(BadInputError):
    """A topic that is not there; waiting does not help."""


class GoneError(PenstockError):
    """Messages that were to be read are no more: retention ran past them."""

    def __init__(self, topic: str, partition: int, wanted: int, first: int) -> None:
        self.topic, self.partition, self.wanted, self.first = topic, partition, wanted, first
        super().__init__(
            f"topic '{topic}', partition {partition}: {first - wanted:,} messages from offset {wanted} on are gone, "
            f"the first that is there is {first}; go on without them with failOnDataLoss: false"
        )


class WentBackError(GoneError):
    """A partition ends before the offset that was read, or is gone: its topic was created anew, or its log lost
    messages. `there` is None if the partition is gone."""

    def __init__(self, topic: str, partition: int, reached: int, there: Span | None) -> None:
        self.topic, self.partition, self.wanted = topic, partition, reached
        self.first = 0 if there is None else there.first
        state = "is not there any more" if there is None else f"ends at offset {there.end:,}"
        PenstockError.__init__(
            self,
            f"topic '{topic}', partition {partition} {state}, and it was read up to {reached:,}: it was made anew or "
            "lost messages; go on with the first that is there with failOnDataLoss: false",
        )


class FencedError(PenstockError):
    """Another producer took over the name of this one: it must not write any more."""


@dataclass(frozen=True, slots=True)
class Span:
    """The messages of a partition that are there: from `first` up to, and without, `end`."""

    first: int
    end: int

    @property
    def messages(self) -> int:
        """Max number of messages: offsets may have holes."""
        return self.end - self.first


class MessageSender(Protocol):
    def send(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> None:
        """Take messages. Without a `partition`, equal keys go to the same one. Raise `LogError` or `NotTakenError`."""

    def close(self) -> None: ...


class Producer(MessageSender, Protocol):
    """Sends messages outside of any transaction."""

    def flush(self) -> None:
        """Everything that was sent is in the log when this returns; else it raises `LogError` or `NotTakenError`."""


class TransactionalProducer(MessageSender, Protocol):
    """Sends messages in transactions that have numbers. There is one of a name: making another fences it off."""

    last: int
    """The number of the last transaction that was committed under this name, by whomever; `NONE_YET`."""

    def commit(self, number: int) -> None:
        """All that was sent and `number` are in the log, or neither. Raises `FencedError`, `LogError` or
        `NotTakenError`."""

    def abort(self) -> None:
        """Discard all messages sent since the last commit; no reader sees them."""


class TopicLog(Protocol):
    def topics(self) -> Mapping[str, int]:
        """Partitions by topic."""

    def create(self, topic: str, partitions: int, retention_seconds: float | None = None) -> None:
        """Create a topic. An existing one keeps its messages, and gets more partitions if it has fewer. With
        `retention_seconds`, older messages may be dropped from now on."""

    def spans(self, topic: str) -> Mapping[int, Span]:
        """Return the readable span of each partition. Raise `UnknownTopicError`."""

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield messages from offset `first` up to `end`, as `MESSAGES`. Raise `GoneError` if the first are no longer
        there."""

    def producer(self) -> Producer: ...

    def transactional(self, name: str, topic: str) -> TransactionalProducer:
        """Return a producer with transactions. `topic` is its target, or one of them: the number of the last
        transaction is kept beside it."""

    def commit_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Publish the offsets of consumer group `group`, for tools that look at consumer groups: the next offset by
        partition."""

    def group_offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets that were published last."""

    def close(self) -> None: ...


def check_topic(name: str) -> str:
    """A name that Kafka would take, and that is no path."""
    if not _TOPIC.match(name) or name in {".", ".."}:
        raise BadInputError(f"topic '{name[:80]}': expected letters, digits, dots, dashes and underscores, at most 249")
    return name


def producer_name(name: str) -> str:
    """A name a log takes, whatever the run or sink is called."""
    return "".join(letter if _TOPIC.match(letter) else "_" for letter in name)[:200]


def check_partitions(count: int) -> int:
    if not 1 <= count <= 10_000:
        raise BadInputError(f"partitions: expected 1 to 10,000, found {count}")
    return count
