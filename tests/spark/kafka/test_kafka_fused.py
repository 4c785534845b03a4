"""A fused run from Kafka into Kafka, counted by reading the topics (only what is committed)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.connectors.topic_address import parse_log
from penstock.spark.broker.broker import RunningBroker
from topic_runs import doubling, fill, lost_and_doubled

OWN = "fused-"
"""The broker is that of other tests too."""


def test_fused_from_kafka_into_kafka(
    session: Any, broker: RunningBroker, restart_broker: Callable[[], None], tmp_path: Path, own_runs: Path
) -> None:
    """With our own connector, past a message that is no number, and on past a restart of the broker."""
    address = parse_log(broker.address)
    log = address.open()
    fill(log, 0, 3_000, prefix=OWN)
    producer = log.producer()
    producer.send(f"{OWN}in", [b"no number"])
    producer.close()
    log.create(f"{OWN}letters", 1)
    report = penstock.run(
        doubling(address, OWN, groupId="fused-readers"),
        session=session,
        until_end=True,
        folder=tmp_path / "run",
        dead_letters=f"{address}/{OWN}letters",
    )
    assert lost_and_doubled(log, 3_000, OWN) == (0, 0)
    there = log.spans(f"{OWN}letters")[0]
    (letter,) = [
        row for batch in log.read(f"{OWN}letters", 0, there.first, there.end) for row in batch["value"].to_pylist()
    ]
    assert b"invalid literal for int()" in letter
    assert "source 'in': Kafka, read by our own connector" in report.report.notes
    assert sum(log.group_offsets("fused-readers", f"{OWN}in").values()) == 3_001
    restart_broker()
    fill(log, 3_000, 4_000, prefix=OWN)
    penstock.run(
        doubling(address, OWN, groupId="fused-readers"), session=session, until_end=True, folder=tmp_path / "run"
    )
    assert lost_and_doubled(log, 4_000, OWN) == (0, 0)
    log.close()
