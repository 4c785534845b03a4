"""What can be wrong with topics of a real broker, by fused runs; the embedded log has tests of the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.clock import Stopwatch
from penstock.connectors import kafka_log as client
from penstock.connectors.log_contract import TopicLog
from penstock.connectors.topic_address import LogAddress, parse_log
from penstock.spark.broker.broker import RunningBroker
from topic_runs import double

PATIENCE_SECONDS = 120.0


OF_A_BROKER = pytest.mark.long("a broker's own way of what fused/test_fused_topics.py sees of the embedded log")


@pytest.fixture
def address(broker: RunningBroker) -> LogAddress:
    return parse_log(broker.address)


@pytest.fixture
def log(address: LogAddress) -> Iterator[TopicLog]:
    opened = address.open()
    yield opened
    opened.close()


def doubling_of(address: LogAddress, name: str, **options: str) -> penstock.Pipeline:
    """The broker is that of other tests too: topics go by the test's name."""
    built = penstock.pipeline("doubling")
    built.source("in", format="kafka", options={**address.options, "subscribe": name, **options})
    built.then("double", logic=double, schema="value binary")
    built.sink("out", format="kafka", options={**address.options, "topic": f"{name}-out"})
    return built.build()


def send(log: TopicLog, topic: str, values: list[bytes], partition: int | None = None) -> None:
    producer = log.producer()
    producer.send(topic, values, partition=partition)
    producer.close()


def values(log: TopicLog, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            found += batch["value"].to_pylist()
    return sorted(found)


def test_no_broker_is_one_line(session: Any, tmp_path: Path, own_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)
    nowhere = parse_log("kafka:127.0.0.1:1")
    with pytest.raises(penstock.BadInputError, match=r"source 'in': Kafka at 127\.0\.0\.1:1: "):
        penstock.run(doubling_of(nowhere, "t"), session=session, until_end=True, folder=tmp_path / "run")


def test_a_wrong_topic_is_named_with_one_like_it(
    session: Any, address: LogAddress, log: TopicLog, tmp_path: Path, own_runs: Path
) -> None:
    log.create("orders", 1)
    with pytest.raises(penstock.BadInputError, match="no topic 'order'; did you mean 'orders'"):
        penstock.run(doubling_of(address, "order"), session=session, until_end=True, folder=tmp_path / "run")


@OF_A_BROKER
def test_partitions_that_are_added_are_read_while_the_run_goes_on(
    session: Any, address: LogAddress, log: TopicLog, tmp_path: Path, own_runs: Path
) -> None:
    log.create("growing", 1)
    log.create("growing-out", 1)
    send(log, "growing", [b"1", b"2"])
    run = penstock.start(doubling_of(address, "growing"), session=session, folder=tmp_path / "run", warm_up=0)
    try:
        await_values(run, log, "growing-out", [b"2", b"4"])
        log.create("growing", 3)
        send(log, "growing", [b"10"], partition=1)
        send(log, "growing", [b"20"], partition=2)
        send(log, "growing", [b"3"], partition=0)
        await_values(run, log, "growing-out", [b"2", b"20", b"4", b"40", b"6"])
    finally:
        run.stop()


def await_values(run: Any, log: TopicLog, topic: str, expected: list[bytes]) -> None:
    watch = Stopwatch()
    while values(log, topic) != expected:
        assert not run.await_termination(0.2)
        assert watch.seconds() < PATIENCE_SECONDS, values(log, topic)


@OF_A_BROKER
def test_retention_past_the_offsets_stops_the_run_or_is_counted(
    session: Any, address: LogAddress, log: TopicLog, tmp_path: Path, own_runs: Path
) -> None:
    from confluent_kafka import TopicPartition

    log.create("short", 1)
    log.create("short-out", 1)
    send(log, "short", [b"1"] * 5)
    penstock.run(doubling_of(address, "short"), session=session, until_end=True, folder=tmp_path / "run")
    send(log, "short", [b"1"] * 100)
    # as retention does it, without the wait
    for future in log._admin.delete_records([TopicPartition("short", 0, 65)]).values():  # type: ignore[attr-defined]
        future.result(timeout=10)
    with pytest.raises(penstock.PenstockError, match="60 messages from offset 5 on are gone"):
        penstock.run(doubling_of(address, "short"), session=session, until_end=True, folder=tmp_path / "run")
    goes_on = doubling_of(address, "short", failOnDataLoss="false")
    report = penstock.run(goes_on, session=session, until_end=True, folder=tmp_path / "run")
    assert "topic and partition short/0: 60 messages were gone unread" in report.report.notes
    assert len(values(log, "short-out")) == 45
