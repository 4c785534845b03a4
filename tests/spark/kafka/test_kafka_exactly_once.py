"""From Kafka into Kafka, exactly once, counted by reading the topics (only what is committed)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from topic_chaos import rounds

from penstock.connectors.topic_address import parse_log
from penstock.spark.broker.broker import RunningBroker


@pytest.mark.long("a broker's own way of what placed/test_placed_topics.py sees of the embedded log")
def test_placed_rounds_of_every_fault(
    broker: RunningBroker, restart_broker: Callable[[], None], tmp_path: Path
) -> None:
    """kill -9 of a bundle, another plan, another driver, a broker that is away: in turns; bench/kafka_chaos.py does
    more of each, on Spark."""
    address = parse_log(broker.address)
    faults = ["kill", "plan", "conductor", "broker"]
    chaos, lost, doubled = rounds(tmp_path, address, faults, messages=2_000, others={"broker": restart_broker})
    assert (chaos.sent, lost, doubled) == (8_000, 0, 0)
