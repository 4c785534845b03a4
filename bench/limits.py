"""Five applications of different limits: advised from Spark's own event log, then the experiment that confirms each:
more of what the advice names helps, more of something else does not. `./run bench limits [--only NAME,...] [--json]`

Work is waiting (a row takes a millisecond or two), so that two slots do twice as much as one on any machine; state is
the one that costs CPU. A thing helps where it does at least 1.4 times as much, and does not below 1.25.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.base.clock import seconds_of
from penstock.control.attached.advice import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    from pyspark.sql import SparkSession

SLOTS, MORE_SLOTS = 2, 4
BATCHES, SECONDS = 7, 4.0
"""So many batches and so long at least, to get warm and again to be measured: short batches are compiled late."""
HELPS, DOES_NOT = 1.4, 1.25


@dataclass(frozen=True, slots=True)
class Application:
    """Batches of `rows` in `partitions`, each row taking `row_ms`; counted by `keys` where there are any. `queued` rows
    a second wait in a log that gives `rows` of them every second."""

    rows: int
    partitions: int = SLOTS
    row_ms: float = 0.0
    keys: int | None = None
    queued: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    limit: Limit
    application: Application
    times: float
    """How many times the rate seen is wanted."""
    helps: Application
    helps_slots: int
    other: Application
    other_slots: int
    words: tuple[str, str]
    """What is more of in each."""
    latency_ms: float | None = None


def cases() -> list[Case]:
    few, many = Application(400, partitions=1, row_ms=2), Application(800, partitions=8, row_ms=2)
    tiny = Application(20)
    state, queue = Application(60_000, keys=10**9), Application(60, queued=600)
    return [
        Case(
            Limit.PARTITIONS,
            few,
            3,
            replace(few, partitions=2),
            SLOTS,
            few,
            MORE_SLOTS,
            ("2 partitions", "4 slots"),
        ),
        Case(
            Limit.EXECUTORS,
            many,
            1.5,
            many,
            MORE_SLOTS,
            replace(many, partitions=16),
            SLOTS,
            ("4 slots", "16 partitions"),
        ),
        Case(
            Limit.DRIVER,
            tiny,
            30,
            replace(tiny, rows=2000),
            SLOTS,
            tiny,
            MORE_SLOTS,
            ("batches of 2,000 rows", "4 slots"),
            latency_ms=200,
        ),
        Case(
            Limit.STATE,
            state,
            3,
            replace(state, keys=100),
            SLOTS,
            replace(state, partitions=8),
            SLOTS,
            ("less state: 100 keys", "8 partitions"),
        ),
        Case(
            Limit.SOURCE,
            queue,
            10,
            replace(queue, rows=1200),
            SLOTS,
            queue,
            MORE_SLOTS,
            ("1,200 rows a trigger", "4 slots"),
        ),
    ]


def started(session: SparkSession, application: Application, name: str, folder: Path) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415 - workers load this module without a session

    if application.queued is None:
        reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", application.rows)
        frame = reader.option("numPartitions", application.partitions).load().select("value")
    else:
        frame = _queue(session, application)
    if application.row_ms:
        frame = frame.mapInPandas(_waiting(application.row_ms / 1000), "value bigint")
    if application.keys is not None:
        frame = frame.groupBy((f.col("value") % application.keys).alias("key")).count()
    writer = frame.writeStream.format("noop").outputMode("append" if application.keys is None else "update")
    if application.queued is not None:
        writer = writer.trigger(processingTime="1 second")
    return writer.queryName(name).option("checkpointLocation", str(folder / name)).start()


def _waiting(row_seconds: float) -> Any:
    def wait(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            time.sleep(row_seconds * len(batch))
            yield batch

    return wait


def _queue(session: SparkSession, application: Application) -> Any:
    """A log with offsets as Kafka's, into which rows come all the time, and which gives so many of them a batch."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition  # noqa: PLC0415

    rate, most, parts = application.queued, application.rows, application.partitions

    class Reader(DataSourceStreamReader):
        def __init__(self) -> None:
            self._began = time.time()

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
            return {"queue": dict.fromkeys(map(str, range(parts)), 0)}

        def _arrived(self) -> int:
            return int((rate or 0.0) * (time.time() - self._began) / parts)

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
            arrived = self._arrived()
            return {"queue": {part: min(arrived, at + most // parts) for part, at in start["queue"].items()}}

        def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
            return {"queue": dict.fromkeys(map(str, range(parts)), self._arrived())}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return [InputPartition((at, end["queue"][part])) for part, at in start["queue"].items()]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            first, last = partition.value
            return ((value,) for value in range(first, last))

    class Queue(DataSource):
        @classmethod
        def name(cls) -> str:
            return "queue"

        def schema(self) -> str:
            return "value bigint"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

    session.dataSource.register(Queue)
    return session.readStream.format("queue").load()


def rate_of(
    session: SparkSession,
    application: Application,
    name: str,
    folder: Path,
    hear: Callable[[list[Any]], None] = lambda _: None,
) -> float:
    """Rows/s, waits between batches included, once it is warm: of the best batch, so that others make none slow."""
    query = started(session, application, name, folder)
    try:
        first = after(query, BATCHES // 2)
        last = after(query, first + BATCHES)
        seen = [entry for entry in query.recentProgress if first <= entry["batchId"] <= last]
    finally:
        query.stop()
    hear(seen)
    began = [seconds_of(entry["timestamp"]) for entry in seen]
    spans = [following - start for start, following in pairwise(began)]
    return max(float(entry["numInputRows"]) / span for entry, span in zip(seen, spans, strict=False) if span > 0)


def after(query: Any, number: int) -> int:
    """Waits for a batch of at least that number, and `SECONDS` at least."""
    began = time.monotonic()
    while time.monotonic() < began + 90:
        if query.exception() is not None:
            raise query.exception()
        progress = query.lastProgress
        long_enough = time.monotonic() >= began + SECONDS
        if progress is not None and progress["batchId"] >= number and progress["numInputRows"] and long_enough:
            return int(progress["batchId"])
        time.sleep(0.005)
    raise TimeoutError(f"batch {number} did not come within 90 s")


def rates(folder: Path, slots: int, wanted: list[tuple[str, Application]]) -> dict[str, float]:
    """One session, its event log in `folder`."""
    from penstock.spark.session.embedded import end_session, start_session  # noqa: PLC0415

    log = folder / f"log-{slots}"
    log.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(log),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": str(SLOTS),
    }
    session = start_session(slots, folder / f"java-{slots}.log", settings=settings)
    try:
        # the first Python workers of a session come up slowly
        rate_of(session, Application(20, row_ms=1), f"warm_{slots}", folder)
        return {name: rate_of(session, application, f"{name}_{slots}", folder) for name, application in wanted}
    finally:
        end_session(session)


def main() -> int:
    only = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
    chosen = [case for case in cases() if only is None or case.limit in only]
    runs: dict[int, list[tuple[str, Application]]] = {SLOTS: [], MORE_SLOTS: []}
    # each once before any counts: what comes first is compiled while it runs, and would look slow beside the others
    runs[SLOTS] += [(f"first_{case.limit}", case.application) for case in chosen]
    for case in chosen:
        runs[SLOTS].append((f"{case.limit}", case.application))
        runs[case.helps_slots].append((f"{case.limit}_named", case.helps))
        runs[case.other_slots].append((f"{case.limit}_other", case.other))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seen = {name: rate for slots, wanted in runs.items() for name, rate in rates(folder, slots, wanted).items()}
        log = next((folder / f"log-{SLOTS}").iterdir())
        advised = {
            case.limit: penstock.advise(
                log,
                query=f"{case.limit}_{SLOTS}",
                rate=case.times * seen[str(case.limit)],
                latency_ms=case.latency_ms,
            )[0].advice
            for case in chosen
        }
    right, results = True, {}
    for case in chosen:
        base, named, other = (seen[f"{case.limit}{suffix}"] for suffix in ("", "_named", "_other"))
        advice = advised[case.limit]
        confirmed = advice.limit is case.limit and named >= HELPS * base and other < DOES_NOT * base
        right = right and confirmed
        results[str(case.limit)] = {
            "advised": str(advice.limit),
            "evidence": advice.evidence,
            "rows_per_second": round(base),
            case.words[0]: round(named / base, 2),
            case.words[1]: round(other / base, 2),
            "confirmed": confirmed,
        }
    print(json.dumps(results, indent=None if "--json" in sys.argv else 1))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
