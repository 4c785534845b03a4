"""Attach in a real driver: what is heard of a plain query, the advice for it, and an experiment that confirms it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import penstock
from penstock.clock import Stopwatch, pause
from penstock.control.attached.advice import Limit, advise
from penstock.control.attached.batches import batch_of
from penstock.control.attached.learning import learn

ROOT = Path(__file__).parents[2]
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


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    return importlib.import_module("limits")


def test_larger_batches_help_where_the_driver_is_the_limit(session: Any, tmp_path: Path, limits: Any) -> None:
    """The shortest of the five experiments of `./run bench limits`."""
    case = next(case for case in limits.cases() if case.limit is Limit.DRIVER)
    batches: list[Any] = []
    before = limits.rate_of(session, case.application, "tiny", tmp_path, batches.extend)
    model = learn([batch for entry in batches if (batch := batch_of(json.loads(entry.json), limits.SLOTS))])
    assert model is not None
    assert advise(model, rate=case.times * before, latency_ms=case.latency_ms).limit is Limit.DRIVER
    assert limits.rate_of(session, case.helps, "larger", tmp_path) >= limits.HELPS * before


def test_the_example_counts_every_order(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples" / "attached"), *sys.path])
    example = importlib.import_module("window_count")
    cloudpickle.register_pickle_by_value(example)  # type: ignore[no-untyped-call] # Spark's own
    (tmp_path / "in").mkdir()
    times = ["2026-01-01T00:00:00Z"] * 3 + ["2026-01-01T00:00:12Z"] * 2 + ["2027-01-01T00:00:00Z"]
    rows = [{"at": at, "customer": number % 2} for number, at in enumerate(times)]
    (tmp_path / "in" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folders = [str(tmp_path / name) for name in ("in", "out", "checkpoint")]
    example.start(session, *folders, availableNow=True).awaitTermination()
    counts = session.read.parquet(folders[1]).collect()
    # the last order is there to let the windows before it end
    assert sorted((row["customer"], row["count"]) for row in counts) == [(0, 1), (0, 2), (1, 1), (1, 1)]
