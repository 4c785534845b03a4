"""Producers of Kafka, without a broker: what it will never take, and what the user may say."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import LogError, NotTakenError

ck = pytest.importorskip("confluent_kafka")
producers = pytest.importorskip("penstock.connectors.kafka_log")

SERVERS = {"bootstrap.servers": "127.0.0.1:9"}


class _Message:
    def topic(self) -> str:
        return "orders"

    def value(self) -> bytes:
        return b"v" * 1_000

    def key(self) -> bytes:
        return b"k" * 7


def test_a_message_that_is_too_large_is_no_broker_that_is_away() -> None:
    producer = producers.KafkaProducer(SERVERS)
    with pytest.raises(NotTakenError, match=r"a message of 2,000,000 bytes to topic 'orders': .*message\.max\.bytes"):
        producer.send("orders", [b"x" * 2_000_000])


@pytest.mark.parametrize(
    ("code", "raised", "complaint"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", NotTakenError, "does not take a message of 1,007 bytes to topic 'orders'"),
        ("INVALID_RECORD", NotTakenError, "cleanup.policy"),
        ("_MSG_TIMED_OUT", LogError, "2 messages could not be delivered"),
    ],
)
def test_what_was_not_delivered_is_told_apart(code: str, raised: type[Exception], complaint: str) -> None:
    producer = producers.KafkaProducer(SERVERS)
    producer._heard(ck.KafkaError(ck.KafkaError._MSG_TIMED_OUT), _Message())
    producer._heard(ck.KafkaError(getattr(ck.KafkaError, code)), _Message())
    with pytest.raises(raised, match=complaint):
        producer._check()


@pytest.mark.parametrize(
    ("given", "transaction", "delivery", "socket"),
    [({}, 900_000, 120_000, 60_000), ({"transaction.timeout.ms": "30000"}, 30_000, 30_000, 30_000)],
)
def test_nothing_takes_longer_than_a_transaction(
    given: dict[str, str], transaction: int, delivery: int, socket: int
) -> None:
    assert producers.timeouts(given) == {
        "transaction.timeout.ms": transaction,
        "delivery.timeout.ms": delivery,
        "socket.timeout.ms": socket,
    }


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(ck, "Producer", made.append)
    given = {**SERVERS, "linger.ms": "5", "partitioner": "consistent", "transaction.timeout.ms": "30000"}
    producers.KafkaTransactions(None, {**given, "transactional.id": "r-0"}, "r-0", "orders")
    (settings,) = made
    assert {**settings, **given} == settings
    assert settings["delivery.timeout.ms"] == 30_000


def test_settings_that_the_client_does_not_take_are_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"^Kafka: option kafka\.\*: .*batch\.num\.messages"):
        producers.KafkaProducer({**SERVERS, "batch.num.messages": "many"})
