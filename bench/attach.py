"""Attach on real Spark: what it costs, and whether executors follow a step of load without a restart.

attach_overhead_percent: by how much a batch of one query in a local session takes longer while somebody is attached;
blocks of batches with and without, in turns; attach_noise_percent is the standard error of that.
attach_cpu_percent: of a core, what the application's Python process takes more while somebody is attached.
attach_small_batch_more_ms: the same as the first in milliseconds, for batches with hardly anything in them.
attach_follow_seconds: from the step until more executors are there, on a cluster of two nodes with two slots each.
attach_counts_missing, attach_counts_more: counts an unattended run over the same files has and this one has not, or
the other way round.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

import penstock
from penstock.base.clock import seconds_of
from penstock.spark.clusters.local.lifecycle import running_cluster
from penstock.spark.session.cluster import start_fused_session
from penstock.spark.session.embedded import end_session, start_session

WARM_BATCHES = 3
COMPILED_BATCHES = 50
BLOCKS, BATCH_ROWS = 28, 400_000
"""A block is attached or not; they come in the order of `turns`, in one query that is never restarted."""
BLOCK_BATCHES, SMALL_BLOCK_BATCHES = 24, 40
SETTLING_BATCHES = 3
"""After attaching or letting go, not counted: people attach once and stay for days."""
SMALL_ROWS = 1_000
"""Batches as short as Spark makes them: what a batch costs us shows best there."""
ROWS = 25
"""Of a file: half a second of one slot."""
EXAMPLES = Path(__file__).parents[1] / "examples" / "attached"
sys.path.insert(0, str(EXAMPLES))
window_count = importlib.import_module("window_count")


def turns(blocks: int) -> list[bool]:
    """Attached or not: without, with, with, without, so that what drifts meets both alike."""
    return [number % 4 in (1, 2) for number in range(blocks)]


class Block(NamedTuple):
    batch_seconds: float
    cpu_part: float
    """Of a core, by this process."""


def blocks(session: Any, folder: Path, rows: int, batches: int) -> list[Block]:
    """A count over windows as fast as it goes, attached in turns."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    frame = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    counted = frame.load().groupBy(f.window("timestamp", "1 minute"), (f.col("value") % 100).alias("key")).count()
    query = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(folder)).start()
    seen = []
    try:
        _batch_after(query, COMPILED_BATCHES)
        for attached in turns(BLOCKS):
            attachment = penstock.attach(session, name="bench", act=False) if attached else None
            began, first = _batch_after(query, _last_batch(query) + SETTLING_BATCHES)
            cpu, watch = time.process_time(), time.monotonic()
            ended, last = _batch_after(query, first + batches)
            cpu_part = (time.process_time() - cpu) / (time.monotonic() - watch)
            seen.append(Block((ended - began) / (last - first), cpu_part))
            if attachment is not None:
                assert attachment.model is not None, "nothing was learned: it did not listen"
                attachment.detach()
    finally:
        query.stop()
    return seen


def _last_batch(query: Any) -> int:
    return -1 if query.lastProgress is None else int(query.lastProgress["batchId"])


def _batch_after(query: Any, number: int) -> tuple[float, int]:
    """Waits for a batch of at least that number; says when Spark began it, and which it was. Looked for seldom: asking
    costs, too."""
    while True:
        if query.exception() is not None:
            raise query.exception()
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= number:
            return seconds_of(progress["timestamp"]), int(progress["batchId"])
        time.sleep(0.1)


def overhead(folder: Path) -> dict[str, float]:
    session = start_session(2, folder / "java.log")
    try:
        seen = blocks(session, folder / "large", BATCH_ROWS, BLOCK_BATCHES)
        large = [block.batch_seconds for block in seen]
        print(f"a large batch is longer by {compared(large)} percent", file=sys.stderr, flush=True)
        short = blocks(session, folder / "small", SMALL_ROWS, SMALL_BLOCK_BATCHES)
        small = [block.batch_seconds for block in short]
    finally:
        end_session(session)
    percent, noise = compared(large)
    without, with_it = sides(small)
    cpu_without, cpu_with = sides([block.cpu_part for block in seen])
    return {
        "attach_rows_per_second_without": round(BATCH_ROWS / median(sides(large)[0])),
        "attach_overhead_percent": round(percent, 2),
        "attach_noise_percent": round(noise, 2),
        "attach_cpu_percent": round(100 * (fmean(cpu_with) - fmean(cpu_without)), 2),
        "attach_small_batch_ms": round(1000 * median(without), 1),
        "attach_small_batch_more_ms": round(1000 * (median(with_it) - median(without)), 2),
        "attach_small_noise_ms": round(1000 * compared(small)[1] / 100 * median(without), 2),
    }


def sides(seconds: list[float]) -> tuple[list[float], list[float]]:
    """Of blocks without, and with."""
    kinds = list(zip(turns(len(seconds)), seconds, strict=True))
    return [value for attached, value in kinds if not attached], [value for attached, value in kinds if attached]


def compared(seconds: list[float]) -> tuple[float, float]:
    """By how many percent a batch is longer with than without: the mean over fours of blocks, and its standard
    error."""
    fours = [seconds[start : start + 4] for start in range(0, len(seconds) - 3, 4)]
    more = [100 * ((with_1 + with_2) / (without_1 + without_2) - 1) for without_1, with_1, with_2, without_2 in fours]
    return fmean(more), stdev(more) / len(more) ** 0.5


def feed(folder: Path, files_per_second: float, stop: threading.Event, made: list[int]) -> None:
    """Orders of ten customers, their times a second apart from file to file."""
    while not stop.wait(1 / files_per_second):
        number = made[0]
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        rows = [{"at": at.isoformat(), "customer": row % 10} for row in range(ROWS)]
        put(folder, f"{number}.json", rows)
        made[0] += 1


def put(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / f".{name}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f".{name}").rename(folder / name)


def follow(folder: Path) -> dict[str, float]:
    """Half a file/s, then four: 0.25 and 2 slot-seconds of work a second."""
    (folder / "in").mkdir()
    settings = {**penstock.attachable_settings(1), "spark.sql.shuffle.partitions": "2"}
    with running_cluster(2, 2, folder=folder / "cluster") as cluster:
        session = start_fused_session(
            cluster.master_url,
            folder / "java.log",
            "plain",
            settings,
            secret=cluster.secret(),
            scratch=folder / "scratch",
        )
        try:
            session.sparkContext.addPyFile(str(EXAMPLES / "window_count.py"))
            return _follow(session, folder)
        finally:
            end_session(session)


def _follow(session: Any, folder: Path) -> dict[str, float]:
    attachment = penstock.attach(session, name="plain", target={"latency_ms": 10_000}, maximum=3)
    assert attachment.acts, attachment.why_not
    query = window_count.start(session, str(folder / "in"), str(folder / "out"), str(folder / "checkpoint"))
    made = [0]
    began, stop = time.monotonic(), threading.Event()
    feeder = threading.Thread(target=feed, args=(folder / "in", 0.5, stop, made))
    feeder.start()
    while len(attachment.batches) < WARM_BATCHES + 2 and time.monotonic() - began < 120:
        time.sleep(0.2)
    stop.set()
    feeder.join()
    executors = session.sparkContext._jsc.sc().getExecutorIds
    before, stop = executors().size(), threading.Event()
    feeder = threading.Thread(target=feed, args=(folder / "in", 4, stop, made))
    feeder.start()
    stepped, step_at = time.monotonic(), time.time()
    while executors().size() <= before and time.monotonic() - stepped < 60:
        time.sleep(0.2)
    followed = time.monotonic() - stepped
    time.sleep(10)
    stop.set()
    feeder.join()
    after, run_id = executors().size(), query.runId
    # one order of much later lets the watermark pass all windows
    put(folder / "in", "last.json", [{"at": "2027-01-01T00:00:00+00:00", "customer": 0}])
    query.processAllAvailable()
    assert query.isActive
    assert query.runId == run_id
    query.stop()
    grown = next((sized for sized in attachment.decisions if sized.at > step_at and sized.to > sized.before), None)
    for sized in attachment.decisions:
        print(f"{sized.before} -> {sized.to}: {sized.why}", file=sys.stderr)
    attachment.detach()
    again = window_count.start(
        session, str(folder / "in"), str(folder / "alone"), str(folder / "again"), availableNow=True
    )
    again.awaitTermination()
    counts, alone = (Counter(session.read.parquet(str(folder / name)).collect()) for name in ("out", "alone"))
    return {
        "attach_executors_before": before,
        "attach_executors_after": after,
        "attach_decided_seconds": round(grown.at - step_at, 1) if grown else float("inf"),
        "attach_follow_seconds": round(followed, 1),
        "attach_rows": made[0] * ROWS,
        "attach_rows_counted": sum(row["count"] for row in counts.elements()),
        "attach_counts_missing": (alone - counts).total(),
        "attach_counts_more": (counts - alone).total(),
    }


PARTS = (follow, overhead)


def main() -> int:
    logging.basicConfig(level="WARNING")
    figures: dict[str, float] = {}
    for part in (overhead,) if "--cost-only" in sys.argv else (follow,) if "--follow-only" in sys.argv else PARTS:
        with tempfile.TemporaryDirectory() as folder:
            figures |= part(Path(folder))
        print(f"{part.__name__}: {figures}", file=sys.stderr, flush=True)
    print(json.dumps(figures, indent=None if "--json" in sys.argv else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
