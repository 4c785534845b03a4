from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from log_contract import LogContract
from penstock.base.errors import BadInputError
from penstock.connectors import kafka_log as client
from penstock.connectors.connection_settings import client_settings
from penstock.connectors.log_contract import LogError, NotTakenError, TopicLog
from penstock.connectors.topic_address import parse_log
from penstock.spark.broker.broker import RunningBroker


class TestKafkaLog(LogContract):
    @pytest.fixture
    def make(self, broker: RunningBroker) -> Iterator[Callable[[], TopicLog]]:
        made: list[TopicLog] = []

        def one_more() -> TopicLog:
            made.append(parse_log(broker.address).open())
            return made[-1]

        yield one_more
        for log in made:
            log.close()

    @pytest.fixture
    def expire(self, make: Callable[[], TopicLog]) -> Callable[[TopicLog, str], int]:
        from confluent_kafka import TopicPartition

        def delete(log: TopicLog, topic: str) -> int:
            log.create(topic, 1)
            producer = log.producer()
            producer.send(topic, [b"x"] * 300)
            producer.close()
            # as retention does it, without the wait
            for future in log._admin.delete_records([TopicPartition(topic, 0, 120)]).values():  # type: ignore[attr-defined]
                future.result(timeout=10)
            return log.spans(topic)[0].first

        return delete

    def test_what_the_broker_never_takes_is_said_at_once(self, make: Callable[[], TopicLog]) -> None:
        log = make()
        log.create("small", 1)
        log._keep("small", {"max.message.bytes": "1000"})  # type: ignore[attr-defined]
        producer = log.transactional("never-taken", "small")
        producer.send("small", [b"x" * 5_000])
        with pytest.raises(NotTakenError, match=r"a message of 5,000 bytes to topic 'small': .*message\.max\.bytes"):
            producer.commit(0)
        producer.close()
        # the next of its name begins anew
        producer = log.transactional("never-taken", "small")
        producer.send("small", [b"x"])
        producer.commit(0)
        producer.close()
        assert log.transactional("never-taken", "small").last == 0


def test_no_broker_is_said_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)
    log = parse_log("kafka:127.0.0.1:1").open()
    with pytest.raises(LogError, match=r"Kafka at 127\.0\.0\.1:1: "):
        log.topics()


def test_secrets_come_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    monkeypatch.setenv("KAFKA_WORD", "hush")
    options = {**servers, "kafka.sasl.username": "me", "kafka.sasl.password.env": "KAFKA_WORD", "subscribe": "t"}
    assert client_settings(options) == {"bootstrap.servers": "h:1", "sasl.username": "me", "sasl.password": "hush"}
    with pytest.raises(BadInputError, match=r"is a secret: say kafka\.sasl\.password\.env"):
        client_settings({**servers, "kafka.sasl.password": "hush"})
    with pytest.raises(BadInputError, match="the environment has no NOBODY"):
        client_settings({**servers, "kafka.sasl.password.env": "NOBODY"})
    with pytest.raises(BadInputError, match=r"expected the option kafka\.bootstrap\.servers"):
        client_settings({})
