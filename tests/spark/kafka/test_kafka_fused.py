"""A fused run from Kafka into Kafka, counted by reading the topics (only what is committed)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.connectors.log.address import parse_log
from penstock.spark.broker.broker import RunningBroker
from topic_runs import doubling, fill, lost_and_doubled


def test_fused_from_kafka_into_kafka(
    session: Any, broker: RunningBroker, restart_broker: Callable[[], None], tmp_path: Path, own_runs: Path
) -> None:
    """With our own connector, past a message that is no number, and on past a restart of the broker."""
    address = parse_log(broker.address)
    log = address.open()
    fill(log, 0, 3_000)
    producer = log.producer()
    producer.send("in", [b"no number"])
    producer.close()
    log.create("letters", 1)
    report = penstock.run(
        doubling(address, groupId="readers"),
        session=session,
        until_end=True,
        folder=tmp_path / "run",
        dead_letters=f"{address}/letters",
    )
    assert lost_and_doubled(log, 3_000) == (0, 0)
    there = log.spans("letters")[0]
    (letter,) = [row for batch in log.read("letters", 0, there.first, there.end) for row in batch["value"].to_pylist()]
    assert b"invalid literal for int()" in letter
    assert "source 'in': Kafka, read by our own connector" in report.report.notes
    assert sum(log.group_offsets("readers", "in").values()) == 3_001
    restart_broker()
    fill(log, 3_000, 4_000)
    penstock.run(doubling(address, groupId="readers"), session=session, until_end=True, folder=tmp_path / "run")
    assert lost_and_doubled(log, 4_000) == (0, 0)
    log.close()
