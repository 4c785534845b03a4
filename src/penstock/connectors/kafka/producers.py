"""Producers of Kafka: messages as they come, or in transactions that carry a number."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from penstock.clock import Stopwatch, pause
from penstock.connectors.log.contract import NONE_YET, FencedError, LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.connectors.kafka.client import KafkaLog

ANSWER_SECONDS = 10.0
"""The longest a broker may take for a step of a transaction."""
DELIVERY_SECONDS = 120.0
"""How long messages are tried to be delivered: a broker may be away for a minute."""
STALL_SECONDS = 15.0
"""A transaction that gets no further for so long is given up; another producer of the same name begins anew."""
CLOSE_SECONDS = 1.0
RETRY_SECONDS = 0.2
_GIVEN_UP = (ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT)
"""What becomes of messages of a transaction that is aborted."""


class KafkaProducer:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._failed: list[str] = []
        self._producer = ck.Producer(
            {
                **settings,
                "linger.ms": 20,
                "batch.num.messages": 50_000,
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "delivery.timeout.ms": int(DELIVERY_SECONDS * 1000),
                "partitioner": "murmur2_random",
                "on_delivery": self._heard,
            }
        )

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
                    raise _failure(error) from error

    def flush(self) -> None:
        left = self._producer.flush(DELIVERY_SECONDS + ANSWER_SECONDS)
        self._check()
        if left:
            raise LogError(f"Kafka: {left:,} messages could not be delivered")

    def close(self) -> None:
        self.flush()

    def _heard(self, error: Any, _message: Any) -> None:
        if error is not None and error.code() not in _GIVEN_UP:
            self._failed.append(error.str())

    def _check(self) -> None:
        if self._failed:
            failed, self._failed = self._failed, []
            raise LogError(f"Kafka: {len(failed):,} messages could not be delivered: {failed[0]}")


class KafkaTransactions(KafkaProducer):
    def __init__(self, log: KafkaLog, settings: Mapping[str, Any], name: str, topic: str) -> None:
        timeout = {"transaction.timeout.ms": int(DELIVERY_SECONDS * 1000)}
        super().__init__({**settings, **timeout})
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
                    raise _failure(error) from error
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


def _failure(error: Any) -> LogError | FencedError:
    failure = error.args[0]
    if failure.code() in (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH):
        return FencedError("Kafka: another producer took over")
    return LogError(f"Kafka: {failure.str()}")
