"""From Kafka into Kafka, exactly once, counted by reading the topics (only what is committed)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from topic_chaos import rounds

import penstock
from penstock.connectors.log.address import parse_log
from penstock.errors import BadInputError
from penstock.spark.broker.broker import RunningBroker, broker_down, broker_up
from topic_runs import doubling, fill, lost_and_doubled


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """One for a test that restarts it, or whose topics have names that others use."""
    pytest.importorskip("confluent_kafka")
    try:
        started = broker_up(tmp_path / "state")
    except (penstock.ClusterError, BadInputError) as error:
        pytest.skip(f"no broker: {error}")
    yield started
    broker_down(tmp_path / "state")


def test_placed_rounds_of_every_fault(own_broker: RunningBroker, tmp_path: Path) -> None:
    """kill -9 of a bundle, another plan, another driver: in turns; bench/kafka_chaos.py does more of each, on Spark."""
    address = parse_log(own_broker.address)
    chaos, lost, doubled = rounds(tmp_path, address, ["kill", "plan", "conductor"], messages=2_000)
    assert (chaos.sent, lost, doubled) == (6_000, 0, 0)


def test_placed_while_the_broker_is_away(own_broker: RunningBroker, tmp_path: Path) -> None:
    def restart() -> None:
        broker_down(tmp_path / "state", keep=True)
        broker_up(tmp_path / "state")

    address = parse_log(own_broker.address)
    chaos, lost, doubled = rounds(tmp_path, address, ["broker"], messages=2_000, others={"broker": restart})
    assert (chaos.sent, lost, doubled) == (2_000, 0, 0)


def test_fused_from_kafka_into_kafka(session: Any, own_broker: RunningBroker, tmp_path: Path, own_runs: Path) -> None:
    """With our own connector, and on past a restart of the broker."""
    address = parse_log(own_broker.address)
    log = address.open()
    fill(log, 0, 3_000)
    report = penstock.run(
        doubling(address, groupId="readers"), session=session, until_end=True, folder=tmp_path / "run"
    )
    assert lost_and_doubled(log, 3_000) == (0, 0)
    assert "source 'in': Kafka, read by our own connector" in report.report.notes
    assert sum(log.group_offsets("readers", "in").values()) == 3_000
    broker_down(tmp_path / "state", keep=True)
    broker_up(tmp_path / "state")
    fill(log, 3_000, 4_000)
    penstock.run(doubling(address, groupId="readers"), session=session, until_end=True, folder=tmp_path / "run")
    assert lost_and_doubled(log, 4_000) == (0, 0)
    log.close()
