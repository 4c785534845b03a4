"""Producers of Kafka: messages as they come, or in transactions that carry a number."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from penstock.clock import Stopwatch, pause
from penstock.connectors.log.contract import NONE_YET, FencedError, LogError, NotTakenError
from penstock.digits import is_whole
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.connectors.kafka.client import KafkaLog

ANSWER_SECONDS = 10.0
"""The longest a broker may take for a step of a transaction."""
DELIVERY_SECONDS = 120.0
"""How long messages are tried to be delivered: a broker may be away for a minute."""
TRANSACTION_SECONDS = 900.0
"""The longest a transaction may take before the broker aborts it: the most that brokers allow where nobody says
otherwise. One that needs longer would be sent for ever."""
SOCKET_SECONDS = 60.0
"""The longest wait for an answer; where a client has transactions librdkafka would make it as long as these."""
STALL_SECONDS = 15.0
"""A transaction that gets no further for so long is given up; another producer of the same name begins anew."""
CLOSE_SECONDS = 1.0
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
RETRY_SECONDS = 0.2
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
"""What a broker that is asked again says again."""
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
"""What to do about it, where it is not the user's rights."""
_GIVEN_UP = (ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT)
"""What becomes of messages of a transaction that is aborted."""


class KafkaProducer:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._failed: list[tuple[Any, str]] = []
        """What was not delivered: the error, and what of which topic it was."""
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

    def flush(self) -> None:
        left = self._producer.flush(DELIVERY_SECONDS + ANSWER_SECONDS)
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
        """Whoever had the name is fenced, what it left open is aborted, and the last number is read."""
        self._call(lambda: self._producer.init_transactions(ANSWER_SECONDS))
        self.last = self._log.group_offsets(self._name, self._topic).get(0, 0) - 1

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
        super().send(topic, values, keys, partition=partition, times_ms=times_ms)

    def commit(self, number: int) -> None:
        self._begin()
        self._deliver()
        mark = [ck.TopicPartition(self._topic, 0, number + 1)]
        group = self._log.group_metadata(self._name)
        self._call(lambda: self._producer.send_offsets_to_transaction(mark, group, ANSWER_SECONDS))
        self._call(lambda: self._producer.commit_transaction(ANSWER_SECONDS))
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
            elif watch.seconds() > STALL_SECONDS:
                raise LogError(f"Kafka: {left:,} messages did not arrive for {STALL_SECONDS:g} s")

    def abort(self) -> None:
        if self._open:
            self._call(lambda: self._producer.abort_transaction(ANSWER_SECONDS))
            self._open = False

    def close(self) -> None:
        """What is open and cannot be aborted at once is so by the next of this name, or by the broker."""
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
        """Steps of a transaction may be asked for again where the broker was not ready."""
        watch = Stopwatch()
        while True:
            try:
                _within(STALL_SECONDS, step)
                return
            except ck.KafkaException as error:
                failure = error.args[0]
                if not failure.retriable() or watch.seconds() > STALL_SECONDS:
                    raise _failure(failure, f"what is sent under '{self._name}'") from error
                pause(RETRY_SECONDS)


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
    """Of a client that has transactions, in milliseconds, as long as the user may say: none is longer than the
    transaction, which librdkafka asks for."""
    most_ms = int(TRANSACTION_SECONDS * 1000)
    given = str(settings.get(TRANSACTION_TIMEOUT, most_ms))
    transaction_ms = int(given) if is_whole(given) else most_ms  # what is no number, librdkafka complains of
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
    """What is to be raised for an error of Kafka's about `what`."""
    code = failure.code()
    if code in (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH):
        return FencedError("Kafka: another producer took over")
    if code in _NEVER_TAKEN:
        way_out = _WAYS_OUT.get(code, "ask for the right to it, or name another")
        return NotTakenError(f"Kafka does not take {what}: {failure.str()}; {way_out}")
    return LogError(f"Kafka: {failure.str()}")
