"""Attach in a real driver: what is heard of a plain query, and the advice for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import penstock
from penstock.base.clock import Stopwatch, pause

ROWS = 2000


def test_a_plain_query_is_heard_and_left_alone(session: Any, tmp_path: Path) -> None:
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    counted = source.load().selectExpr("value % 7 AS key").groupBy("key").count()
    attachment = penstock.attach(session, name="plain", target={"rate": 100.0, "latency_ms": 20_000})
    query = counted.writeStream.format("memory").queryName("plain_counts").outputMode("complete").start()
    try:
        waited = Stopwatch()
        while len(attachment.batches) < 5 and waited.seconds() < 60:
            pause(0.2)
        assert query.isActive
    finally:
        query.stop()
        attachment.detach()
    assert attachment.why_not == "a local session has no executors of its own"
    assert [batch.rows for batch in attachment.batches[:5]] == [ROWS] * 5
    assert all(batch.slots == 2 and batch.state_rows == 7 for batch in attachment.batches)
    assert attachment.model is not None
    assert attachment.advice is not None
    # the source is as fast as the query: what arrives is what can be done, and some room is wanted beyond that
    assert attachment.advice.target_rate >= 100
    assert attachment.advice.needed_slots is not None
    # counts are those of whole batches: nothing was lost or doubled by being listened to
    assert session.sql("SELECT sum(count) FROM plain_counts").first()[0] % ROWS == 0
