"""Kafka's client, without a broker: what becomes of a read that gets nowhere."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from penstock.connectors.log_contract import LogError, UnknownTopicError

ck = pytest.importorskip("confluent_kafka")
client = pytest.importorskip("penstock.connectors.kafka_log")


class ErrorMessage:
    def error(self) -> Any:
        return ck.KafkaError(ck.KafkaError._TRANSPORT, "connection lost", retriable=True)


class LostReader:
    """A consumer as librdkafka's are that never find their partition's leader again: it has nothing but errors."""

    closed = False

    def assign(self, _partitions: Any) -> None:
        pass

    def unassign(self) -> None:
        pass

    def consume(self, _most: int, timeout: float) -> list[ErrorMessage]:
        return [ErrorMessage()]

    def close(self) -> None:
        self.closed = True


def test_errors_are_no_sign_that_something_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(client, "ANEW_SECONDS", 0.0)
    log = client.KafkaLog({"bootstrap.servers": "127.0.0.1:9"})
    log._readers["penstock-reader"] = LostReader()
    with pytest.raises(LogError, match=r"topic 'orders', partition 3: nothing came for 0\.05 s"):
        list(log.read("orders", 3, 0, 10))
    assert not log._readers  # the next read begins with another one


class AnsweringAdmin:
    """Says the same of every topic that it is asked about by name; lists one other."""

    def __init__(self, error: int) -> None:
        self.error = error
        self.asked: list[str] = []

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        (name,) = topics.topic_names
        self.asked.append(name)
        answer: Future[Any] = Future()
        answer.set_exception(ck.KafkaException(ck.KafkaError(self.error)))
        return {name: answer}

    def list_topics(self, timeout: float) -> Any:
        return type("Metadata", (), {"topics": {"orders": type("Topic", (), {"partitions": {0: None}, "error": None})}})


@pytest.mark.parametrize(
    ("error", "kind", "complaint"),
    [
        ("UNKNOWN_TOPIC_OR_PART", UnknownTopicError, "no topic 'order'; did you mean 'orders'"),
        ("TOPIC_AUTHORIZATION_FAILED", LogError, r"Kafka at h:1: topic 'order': .*[Aa]uthoriz"),
    ],
)
def test_what_is_wrong_with_a_topic_is_said_and_only_it_is_asked_about(
    error: str, kind: type[Exception], complaint: str
) -> None:
    log = client.KafkaLog({"bootstrap.servers": "h:1"})
    log._made_admin = asked = AnsweringAdmin(getattr(ck.KafkaError, error))
    with pytest.raises(kind, match=complaint):
        log.spans("order")
    assert asked.asked == ["order"]


class CreatingAdmin:
    """The leader is not there at first; then somebody else has made the topic."""

    def __init__(self) -> None:
        self.errors = [ck.KafkaError.NOT_COORDINATOR, ck.KafkaError.TOPIC_ALREADY_EXISTS]
        self.partitions = 0

    def create_topics(self, _topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_exception(ck.KafkaException(ck.KafkaError(self.errors.pop(0))))
        self.partitions = 3
        return {"orders": answer}

    def describe_topics(self, _topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        if self.partitions:
            answer.set_result(type("Topic", (), {"partitions": range(self.partitions)}))
        else:
            answer.set_exception(ck.KafkaException(ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return {"orders": answer}


def test_a_topic_that_somebody_else_makes_meanwhile_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)
    log = client.KafkaLog({"bootstrap.servers": "h:1"})
    log._made_admin = asked = CreatingAdmin()
    log.create("orders", 3)
    assert asked.errors == []  # asked anew, and not of the answer that had failed


def test_a_reader_is_told_what_the_user_says_and_what_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(ck, "Consumer", made.append)
    client.KafkaLog({"bootstrap.servers": "h:1", "fetch.wait.max.ms": "500"})._reader("g")
    (settings,) = made
    assert (settings["fetch.wait.max.ms"], settings["isolation.level"]) == ("500", "read_committed")
