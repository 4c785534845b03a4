"""The priority thesis' pipelines on Spark: what arrives in the sinks, and what becomes a dead letter."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.clock import Stopwatch
from penstock.connectors.embedded_log import EmbeddedLog
from penstock.workloads.applications import use_cases
from penstock.workloads.applications.messages import (
    BATCH_LENGTH,
    EVENT_READINGS,
    EVENT_SHARE,
    GATEWAYS,
    batch_reading,
    gateway_line,
    is_event_batch,
)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # pyspark's own
NEEDS_OUR_READER = pytest.mark.skipif(
    find_spec("pyspark.sql.streaming.datasource") is None, reason="reading topics ourselves needs pyspark 4.2"
)
PATIENCE_SECONDS = 120.0
SHORT_SERVICE = "service=0.0002"
"""CPU seconds for a tuple: the answers do not depend on it."""


def rows_of(log: EmbeddedLog, topic: str) -> list[dict[str, Any]]:
    made = []
    for partition, span in log.spans(topic).items():
        for batch in log.read(topic, partition, span.first, span.end):
            made += [json.loads(value) for value in batch["value"].to_pylist()]
    return made


def decisions(messages: int) -> list[tuple[str, int, int, bool]]:
    """Worked out from the producer's rule: 90 % of an event's readings are above the threshold, else a quarter."""
    made = []
    for gateway in range(GATEWAYS):
        complete = (messages - gateway + GATEWAYS - 1) // GATEWAYS // BATCH_LENGTH
        for batch in range(complete):
            event = is_event_batch(batch, EVENT_SHARE)
            above = round(BATCH_LENGTH * EVENT_READINGS) if event else BATCH_LENGTH // 4
            made.append((f"s{gateway}", batch, above, event))
    return made


def test_event_tp_decides_on_every_batch_of_its_own_source(session: Any, tmp_path: Path, own_runs: Path) -> None:
    log = EmbeddedLog(tmp_path / "log")
    log.create("rows", 1)
    written = penstock.writing_to(f"event-tp:{SHORT_SERVICE}", f"log:{tmp_path / 'log'}/rows")
    run = penstock.start(written, 800, session=session, warm_up=0, folder=tmp_path / "run")
    watch = Stopwatch()
    while len(rows_of(log, "rows")) < 2 * GATEWAYS:
        assert not run.await_termination(0.5)
        assert watch.seconds() < PATIENCE_SECONDS
    audit = run.stop().report.audit
    assert audit.dead == 0
    rows = rows_of(log, "rows")
    decided = [(row["source"], row["batch"], row["above"], row["event"]) for row in rows]
    assert sorted(decided) == sorted(decisions(audit.emitted))


@NEEDS_OUR_READER
@pytest.mark.parametrize(("name", "malformed"), [("event-tp", 3), ("archival-tp", 3), ("tp1", 2)])
def test_malformed_lines_are_dead_letters(
    name: str, malformed: int, session: Any, tmp_path: Path, own_runs: Path
) -> None:
    """Of three bad lines, a feed takes the one that is wrong only as a reading."""
    messages = GATEWAYS * BATCH_LENGTH
    log, address = EmbeddedLog(tmp_path / "log"), f"log:{tmp_path / 'log'}"
    log.create("messages", 2)
    producer = log.producer()
    bad = [b"no commas", b"2026-01-01T00:00:00+00:00,s1,warm,device0;0;80", b"yesterday,s1,1,device0;0;80"]
    lines = [gateway_line(number).encode() for number in range(messages)]
    for number, line in enumerate([*lines[:300], *bad, *lines[300:]]):
        producer.send("messages", [line], partition=number % 2)
    producer.close()
    read = penstock.reading_from(f"{name}:{SHORT_SERVICE}", f"{address}/messages")
    written = penstock.writing_to(read, f"{address}/rows")
    result = penstock.run(written, session=session, until_end=True, folder=tmp_path / "run")
    audit, rows = result.report.audit, rows_of(log, "rows")
    assert audit.dead == malformed
    if name == "event-tp":
        assert sorted((r["source"], r["batch"], r["above"], r["event"]) for r in rows) == sorted(decisions(messages))
    elif name == "archival-tp":
        expected = [batch_reading(n // GATEWAYS, n % GATEWAYS, BATCH_LENGTH, EVENT_SHARE) for n in range(messages)]
        assert Counter((r["source"], r["ts"], r["reading"]) for r in rows) == Counter(
            (e["source"], e["ts"], e["reading"]) for e in expected
        )
        assert {row["tag"] for row in rows} == {use_cases.STORAGE_TAG}
    else:
        assert len(rows) == messages + len(bad) - malformed
        assert {row["words"] for row in rows} == {1}
