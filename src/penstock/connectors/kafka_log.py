"""Kafka as a log of messages, through confluent-kafka (librdkafka).

The number of the last transaction commits with the messages: it is the offset of a consumer group that has the
producer's name. So a batch that is sent again is recognised by its number, whichever process sends it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pyarrow as pa
from confluent_kafka import admin

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, nearest
from penstock.base.text import is_whole
from penstock.connectors.connection_settings import client_settings
from penstock.connectors.log_contract import (
    MESSAGES,
    NONE_YET,
    FencedError,
    GoneError,
    LogError,
    NotTakenError,
    Span,
    UnknownTopicError,
    WentBackError,
    check_partitions,
    check_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


# Producers of Kafka: messages as they come, or in transactions that carry a number.


PRODUCER_ANSWER_SECONDS = 10.0
"""The longest a broker may take for a step of a transaction."""
DELIVERY_SECONDS = 120.0
"""Seconds for which delivery of messages is tried: a broker may be away for a minute."""
TRANSACTION_SECONDS = 900.0
"""Seconds after which the broker aborts a transaction: the max that brokers allow by default. A transaction that needs
longer would be sent forever."""
SOCKET_SECONDS = 60.0
"""Max seconds to wait for an answer; for a client with transactions librdkafka would make it as long as these."""
PRODUCER_STALL_SECONDS = 15.0
"""Seconds without progress after which a transaction is given up; another producer of the same name begins anew."""
CLOSE_SECONDS = 1.0
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
PRODUCER_RETRY_SECONDS = 0.2
_NEVER_TAKEN = frozenset(
    {
        ck.KafkaError.MSG_SIZE_TOO_LARGE,
        ck.KafkaError.RECORD_LIST_TOO_LARGE,
        ck.KafkaError.INVALID_RECORD,
        ck.KafkaError.INVALID_TIMESTAMP,
        ck.KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ck.KafkaError.POLICY_VIOLATION,
        ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ck.KafkaError.GROUP_AUTHORIZATION_FAILED,
        ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ck.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ck.KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }
)
"""Errors that a broker repeats if it is asked again."""
_WAYS_OUT = {
    ck.KafkaError.MSG_SIZE_TOO_LARGE: (
        "raise kafka.message.max.bytes of the sink, and max.message.bytes of the topic, or send less in a message"
    ),
    ck.KafkaError.RECORD_LIST_TOO_LARGE: "lower kafka.batch.size of the sink, or raise max.message.bytes of the topic",
    ck.KafkaError.INVALID_RECORD: "the topic asks for something else of its messages, such as a key (cleanup.policy)",
    ck.KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "lower kafka.transaction.timeout.ms of the sink to what the broker allows (transaction.max.timeout.ms)"
    ),
}
"""Remedies, unless the user's rights are the cause."""
_GIVEN_UP = (ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT)
"""Errors of messages of a transaction that is aborted."""


class KafkaProducer:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._failed: list[tuple[Any, str]] = []
        """Messages that were not delivered: the error, and the message and topic."""
        # what stands later counts: how it is sent is the user's to say
        sent_how = {
            "linger.ms": 20,
            "batch.num.messages": 50_000,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "delivery.timeout.ms": int(DELIVERY_SECONDS * 1000),
            "partitioner": "murmur2_random",
        }
        self._producer = made(ck.Producer, {**sent_how, **settings, "on_delivery": self._heard})

    def send(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> None:
        self._begin()
        produce = self._producer.produce
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        for position, value in enumerate(values):
            key = None if keys is None else keys[position]
            if times_ms is not None:
                more["timestamp"] = times_ms[position]
            while True:
                try:
                    produce(topic, value, key, **more)
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._check()
                except ck.KafkaException as error:
                    raise _failure(error.args[0], _described(topic, value, key)) from error

    def _begin(self) -> None:
        """Begin a transaction if there are any and none is open. Called before messages are sent."""

    def flush(self) -> None:
        left = self._producer.flush(DELIVERY_SECONDS + PRODUCER_ANSWER_SECONDS)
        self._check()
        if left:
            raise LogError(f"Kafka: {left:,} messages could not be delivered")

    def close(self) -> None:
        self.flush()

    def _heard(self, error: Any, message: Any) -> None:
        if error is not None and error.code() not in _GIVEN_UP:
            self._failed.append((error, _described(message.topic(), message.value(), message.key())))

    def _check(self) -> None:
        if not self._failed:
            return
        failed, self._failed = self._failed, []
        for error, what in failed:
            if error.code() in _NEVER_TAKEN:
                raise _failure(error, what)
        raise LogError(f"Kafka: {len(failed):,} messages could not be delivered: {failed[0][0].str()}")


class KafkaTransactions(KafkaProducer):
    def __init__(self, log: KafkaLog, settings: Mapping[str, Any], name: str, topic: str) -> None:
        super().__init__({**timeouts(settings), **settings})
        self._log, self._name, self._topic = log, name, topic
        self._open = False
        self.last = NONE_YET

    def take_over(self) -> None:
        """Fence the former holder of the name, abort its open transaction, and read the last number."""
        self._call(lambda: self._producer.init_transactions(PRODUCER_ANSWER_SECONDS))
        self.last = self._log.group_offsets(self._name, self._topic).get(0, 0) - 1

    def commit(self, number: int) -> None:
        self._begin()
        self._deliver()
        mark = [ck.TopicPartition(self._topic, 0, number + 1)]
        group = self._log.group_metadata(self._name)
        self._call(lambda: self._producer.send_offsets_to_transaction(mark, group, PRODUCER_ANSWER_SECONDS))
        self._call(lambda: self._producer.commit_transaction(PRODUCER_ANSWER_SECONDS))
        self._open = False
        self.last = number

    def _deliver(self) -> None:
        """All messages, however many: as long as some arrive."""
        left, watch = len(self._producer), Stopwatch()
        while left:
            before, left = left, self._producer.flush(1.0)
            self._check()
            if left < before:
                watch = Stopwatch()
            elif watch.seconds() > PRODUCER_STALL_SECONDS:
                raise LogError(f"Kafka: {left:,} messages did not arrive for {PRODUCER_STALL_SECONDS:g} s")

    def abort(self) -> None:
        if self._open:
            self._call(lambda: self._producer.abort_transaction(PRODUCER_ANSWER_SECONDS))
            self._open = False

    def close(self) -> None:
        """Close the producer. A transaction that cannot be aborted at once is aborted by the next producer of this
        name, or by the broker."""
        if self._open:
            self._producer.purge()
            with suppress(ck.KafkaException, LogError):
                _within(2 * CLOSE_SECONDS, lambda: self._producer.abort_transaction(CLOSE_SECONDS))
            self._open = False

    def _begin(self) -> None:
        if not self._open:
            self._call(self._producer.begin_transaction)
            self._open = True

    def _call(self, step: Callable[[], object]) -> None:
        """Repeat a step of a transaction if the broker was not ready."""
        watch = Stopwatch()
        while True:
            try:
                _within(PRODUCER_STALL_SECONDS, step)
                return
            except ck.KafkaException as error:
                failure = error.args[0]
                if not failure.retriable() or watch.seconds() > PRODUCER_STALL_SECONDS:
                    raise _failure(failure, f"what is sent under '{self._name}'") from error
                pause(PRODUCER_RETRY_SECONDS)


def _within(seconds: float, step: Callable[[], object]) -> None:
    """After a restart of the broker `send_offsets_to_transaction` does not come back, whatever time it is given (seen
    with librdkafka 2.16.0). So steps are waited for from outside. What one that is left alone may still do is fenced
    off by the next producer of its name."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            step()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="kafka-transaction", daemon=True).start()
    try:
        done.result(seconds)
    except TimeoutError:
        raise LogError(f"Kafka: a step of a transaction was not done within {seconds:g} s") from None


def timeouts(settings: Mapping[str, Any]) -> dict[str, int]:
    """Return the timeouts of a client with transactions, in milliseconds, unless the user sets them: none is longer
    than the transaction, which librdkafka requires."""
    most_ms = int(TRANSACTION_SECONDS * 1000)
    given = str(settings.get(TRANSACTION_TIMEOUT, most_ms))
    transaction_ms = int(given) if is_whole(given) else most_ms  # librdkafka rejects other values
    return {
        TRANSACTION_TIMEOUT: transaction_ms,
        "delivery.timeout.ms": min(int(DELIVERY_SECONDS * 1000), transaction_ms),
        "socket.timeout.ms": min(int(SOCKET_SECONDS * 1000), transaction_ms),
    }


def made(kind: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> Any:
    """A client of librdkafka's; settings that it does not take are bad input."""
    try:
        return kind(settings)
    except ck.KafkaException as error:
        raise BadInputError(f"Kafka: option kafka.*: {error.args[0].str()}") from error


def _described(topic: str, value: bytes | None, key: bytes | None) -> str:
    return f"a message of {len(value or b'') + len(key or b''):,} bytes to topic '{topic}'"


def _failure(failure: Any, what: str) -> LogError | FencedError | NotTakenError:
    """Return the exception for an error of Kafka's about `what`."""
    code = failure.code()
    if code in (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH):
        return FencedError("Kafka: another producer took over")
    if code in _NEVER_TAKEN:
        way_out = _WAYS_OUT.get(code, "ask for the right to it, or name another")
        return NotTakenError(f"Kafka does not take {what}: {failure.str()}; {way_out}")
    return LogError(f"Kafka: {failure.str()}")


ANSWER_SECONDS = 10.0
"""The longest a broker may take for an answer."""
READ_MESSAGES = 5_000
CONSUME_SECONDS = 0.05
STALL_SECONDS = 15.0
"""Seconds without data after which a read is given up; the caller tries again."""
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
"""Errors of a broker that has just started, for groups and partitions; they pass within a moment."""


def open_log(options: Mapping[str, str]) -> KafkaLog:
    """Return the log at the brokers that the options of a source or sink name."""
    return KafkaLog(client_settings(options))


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
        """Return the number of partitions of a topic that is being created: brokers learn of it one after the other."""
        watch = Stopwatch()
        while (known := self._known_partitions(topic) or 0) < least:
            if watch.seconds() > ANSWER_SECONDS:
                raise LogError(f"topic '{topic}' was created and is still not there after {ANSWER_SECONDS:g} s")
            pause(RETRY_SECONDS / 4)
        return known

    def _make(self, topic: str, partitions: int, config: Mapping[str, str]) -> bool:
        """Create a topic; return False if another process created it meanwhile."""
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
        """Set the retention of an existing topic."""
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
                # it waits for the full number of messages, or its timeout
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
            with suppress(ck.KafkaException, RuntimeError):  # the latter if it is closed
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
        """Continue with new clients. A client that fails may fail for good: after a restart of the broker some had no
        leader for a partition, or a newer one than the broker, however often they asked (seen with librdkafka
        2.16.0)."""
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
    """Return results of requests. After a failure the requests must be made again."""
    return [future.result(timeout=ANSWER_SECONDS) for future in waiting.values()]


def _of(error: Exception) -> Any:
    return error.args[0] if error.args and isinstance(error.args[0], ck.KafkaError) else None


def _ignore(_error: Any) -> None:
    """Ignore broken connections, of which librdkafka reports each one; the failed request is reported to its caller."""


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
