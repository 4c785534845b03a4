"""Kafka as a log of messages, through confluent-kafka (librdkafka).

The number of the last transaction is kept where it commits with the messages: as the offset of a consumer group that
has the producer's name. So a batch that is sent again is known by its number, whoever sends it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.clock import Stopwatch, pause
from penstock.connectors.log.contract import (
    MESSAGES,
    GoneError,
    LogError,
    Span,
    UnknownTopicError,
    WentBackError,
    check_partitions,
    check_topic,
)
from penstock.errors import BadInputError, nearest

try:
    import confluent_kafka as ck
    from confluent_kafka import admin
except ImportError as error:
    raise BadInputError("Kafka needs confluent-kafka; install it with: pip install 'penstock[kafka]'") from error

from penstock.connectors.kafka.producers import KafkaProducer, KafkaTransactions, made

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ANSWER_SECONDS = 10.0
"""The longest a broker may take for an answer."""
READ_MESSAGES = 5_000
CONSUME_SECONDS = 0.05
STALL_SECONDS = 15.0
"""A read that gets nothing for so long is given up, and tried again by whoever asked."""
ANEW_SECONDS = 5.0
"""Clients that failed are replaced, no oftener than that."""
RETRY_SECONDS = 0.2
RECONNECT_MS = 1_000
"""The longest pause before a lost connection is tried again; librdkafka's own is ten times that."""

_NOT_READY = frozenset(
    {
        ck.KafkaError.NOT_COORDINATOR,
        ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
        ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        ck.KafkaError.LEADER_NOT_AVAILABLE,
        ck.KafkaError.NOT_LEADER_FOR_PARTITION,
        ck.KafkaError.UNKNOWN_LEADER_EPOCH,
        ck.KafkaError.FENCED_LEADER_EPOCH,
        ck.KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""What a broker says of groups and partitions just after it started: it, or who asks, knows better in a moment."""


class KafkaLog:
    """`settings` are librdkafka's own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings: dict[str, Any] = {
            "reconnect.backoff.max.ms": RECONNECT_MS,
            **settings,
            "log_level": 0,
            "error_cb": _ignore,
        }
        self._made_admin: Any = None
        self._readers: dict[str, Any] = {}
        self._anew = Stopwatch()

    # Topics.

    def topics(self) -> dict[str, int]:
        metadata = self._ask(lambda: self._admin.list_topics(timeout=ANSWER_SECONDS))
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if topic.error is None and not name.startswith("__")
        }

    def create(self, topic: str, partitions: int, retention_seconds: float | None = None) -> None:
        check_topic(topic)
        check_partitions(partitions)
        known = self._known_partitions(topic)
        config = {} if retention_seconds is None else {"retention.ms": str(int(retention_seconds * 1000))}
        if known is None and not self._make(topic, partitions, config):
            known = self._awaited_partitions(topic, 1)
        if known is not None:
            if config:
                self._keep(topic, config)
            if known >= partitions:
                return
            more = [admin.NewPartitions(topic, partitions)]
            self._ask(lambda: _results(self._admin.create_partitions(more)))
        self._awaited_partitions(topic, partitions)

    def _awaited_partitions(self, topic: str, least: int) -> int:
        """How many there are, of a topic that is being created: brokers hear of it one after the other."""
        watch = Stopwatch()
        while (known := self._known_partitions(topic) or 0) < least:
            if watch.seconds() > ANSWER_SECONDS:
                raise LogError(f"topic '{topic}' was created and is still not there after {ANSWER_SECONDS:g} s")
            pause(RETRY_SECONDS / 4)
        return known

    def _make(self, topic: str, partitions: int, config: Mapping[str, str]) -> bool:
        """False: somebody else made it meanwhile."""
        asked = [admin.NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))]

        def make() -> bool:
            try:
                _results(self._admin.create_topics(asked, request_timeout=ANSWER_SECONDS))
            except ck.KafkaException as error:
                if error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        return bool(self._ask(make))

    def _keep(self, topic: str, config: Mapping[str, str]) -> None:
        """Of a topic that is there already."""
        entries = [
            admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        asked = [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic, incremental_configs=entries)]
        self._ask(lambda: _results(self._admin.incremental_alter_configs(asked)))

    def spans(self, topic: str) -> dict[int, Span]:
        partitions = [ck.TopicPartition(topic, number) for number in range(self._count(topic))]
        first = self._offsets(partitions, admin.OffsetSpec.earliest())
        end = self._offsets(partitions, admin.OffsetSpec.latest())
        return {number: Span(first[number], end[number]) for number in sorted(first)}

    def _offsets(self, partitions: Sequence[Any], spec: Any) -> dict[int, int]:
        def ask() -> dict[int, int]:
            waiting = self._admin.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=ck.IsolationLevel.READ_COMMITTED,
                request_timeout=ANSWER_SECONDS,
            )
            return {part.partition: future.result(timeout=ANSWER_SECONDS).offset for part, future in waiting.items()}

        offsets: dict[int, int] = self._ask(ask)
        return offsets

    def _count(self, topic: str) -> int:
        known = self._known_partitions(topic)
        if known is None:
            raise UnknownTopicError(
                f"{self._settings['bootstrap.servers']}: no topic '{topic}'; {nearest(topic, self.topics())}"
            )
        return known

    def _known_partitions(self, topic: str) -> int | None:
        """None: there is no such topic. Only it is asked about (and not made by asking, as a broker may do): a broker
        may have thousands. What else is wrong with it, such as that it is not for us, is raised as `LogError`."""

        def ask() -> int:
            waiting = self._admin.describe_topics(ck.TopicCollection([topic]), request_timeout=ANSWER_SECONDS)
            return len(waiting[topic].result(timeout=ANSWER_SECONDS).partitions)

        try:
            count: int = self._ask(ask, f"topic '{topic}': ")
        except UnknownTopicError:
            return None
        return count

    # Reading.

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[pa.RecordBatch]:
        if first >= end:
            return
        reader = self._reader("penstock-reader")
        reader.assign([ck.TopicPartition(topic, partition, first)])
        try:
            at, quiet = first, Stopwatch()
            while at < end:
                # it waits for as many as it is asked for
                got = reader.consume(min(READ_MESSAGES, end - at), timeout=CONSUME_SECONDS)
                before = at
                rows, at = self._rows(got, topic, partition, at, end)
                if at > before:  # errors come too, and may come for ever
                    quiet = Stopwatch()
                elif quiet.seconds() > STALL_SECONDS:
                    self._begin_anew()
                    raise LogError(f"topic '{topic}', partition {partition}: nothing came for {STALL_SECONDS:g} s")
                if rows:
                    yield _batch(rows)
        finally:
            with suppress(ck.KafkaException, RuntimeError):  # the latter where it was let go of
                reader.unassign()

    def _rows(self, got: list[Any], topic: str, partition: int, at: int, end: int) -> tuple[list[Any], int]:
        """The messages before `end`, and how far the partition is read with them. Offsets have holes: what ends a
        transaction has one too."""
        rows: list[Any] = []
        for message in got:
            error = message.error()
            if error is None:
                if message.offset() >= end:
                    return rows, end
                rows.append(message)
                at = message.offset() + 1
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                at = max(at, message.offset())
            elif error.code() in (ck.KafkaError.OFFSET_OUT_OF_RANGE, ck.KafkaError._AUTO_OFFSET_RESET):
                there = self.spans(topic)[partition]
                if at < there.first:
                    raise GoneError(topic, partition, at, there.first)
                raise WentBackError(topic, partition, at, there)
            elif error.code() in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_PARTITION):
                raise UnknownTopicError(f"topic '{topic}': no partition {partition}")
            elif not error.retriable() and error.code() != ck.KafkaError._ALL_BROKERS_DOWN:
                raise LogError(f"topic '{topic}', partition {partition}: {error.str()}")
        return rows, at

    def _reader(self, group: str) -> Any:
        """Connecting takes longer than most reads do: it is kept."""
        if group not in self._readers:
            self._readers[group] = made(
                ck.Consumer,
                {
                    "fetch.wait.max.ms": 50,
                    **self._settings,
                    "group.id": group,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                },
            )
        return self._readers[group]

    # Producers.

    def producer(self) -> KafkaProducer:
        return KafkaProducer({**self._settings, "enable.idempotence": True})

    def transactional(self, name: str, topic: str) -> KafkaTransactions:
        check_topic(topic)
        producer = KafkaTransactions(self, {**self._settings, "transactional.id": name}, name, topic)
        producer.take_over()
        return producer

    # Groups.

    def commit_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        positions = [ck.TopicPartition(topic, number, offset) for number, offset in offsets.items()]
        self._ask(lambda: self._reader(group).commit(offsets=positions, asynchronous=False))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        asked = [ck.TopicPartition(topic, number) for number in range(self._count(topic))]
        committed = self._ask(lambda: self._reader(group).committed(asked, timeout=ANSWER_SECONDS))
        return {part.partition: part.offset for part in committed if part.offset >= 0}

    def group_metadata(self, group: str) -> Any:
        return self._reader(group).consumer_group_metadata()

    def close(self) -> None:
        readers, self._readers = self._readers, {}
        self._made_admin = None
        for reader in readers.values():
            reader.close()

    def _begin_anew(self) -> None:
        """With other clients from now on. One that fails may do so for good: after a restart of the broker some had no
        leader for a partition, or a newer one than the broker, however often they asked (seen with librdkafka 2.16.0).
        """
        if self._anew.seconds() < ANEW_SECONDS:
            return
        self._anew = Stopwatch()
        old, readers = [self._made_admin], list(self._readers.values())
        self._made_admin, self._readers = None, {}

        def let_go() -> None:
            old.clear()  # an admin client has no close, and ending it takes its time
            for reader in readers:
                reader.close()

        threading.Thread(target=let_go, name="kafka-let-go", daemon=True).start()

    @property
    def _admin(self) -> Any:
        if self._made_admin is None:
            self._made_admin = made(admin.AdminClient, self._settings)
        return self._made_admin

    def _ask(self, question: Any, about: str = "") -> Any:
        watch = Stopwatch()
        while True:
            try:
                return question()
            except (ck.KafkaException, TimeoutError) as error:
                failure = _of(error)
                if failure is not None and failure.code() in _NOT_READY and watch.seconds() < ANSWER_SECONDS:
                    pause(RETRY_SECONDS)
                    continue
                if failure is not None and failure.code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise UnknownTopicError(f"{self._settings['bootstrap.servers']}: {failure.str()}") from error
                self._begin_anew()
                why = failure.str() if failure is not None else "no answer"
                raise LogError(f"Kafka at {self._settings['bootstrap.servers']}: {about}{why}") from error


def _results(waiting: Mapping[Any, Any]) -> list[Any]:
    """Of what was asked: who asks again after a failure has to ask anew."""
    return [future.result(timeout=ANSWER_SECONDS) for future in waiting.values()]


def _of(error: Exception) -> Any:
    return error.args[0] if error.args and isinstance(error.args[0], ck.KafkaError) else None


def _ignore(_error: Any) -> None:
    """librdkafka tells of every broken connection; what cannot be done is told by whoever asked for it."""


def _batch(messages: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([message.timestamp()[1] for message in messages], pa.int64()),
        ],
        schema=MESSAGES,
    )
