"""Kafka's client, without a broker: what becomes of a read that gets nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.log.contract import LogError

ck = pytest.importorskip("confluent_kafka")
client = pytest.importorskip("penstock.connectors.kafka.client")


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
