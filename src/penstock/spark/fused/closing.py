"""The end of a run in a session that goes on: its workers close what its code opened, though they live on."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.fused.region_function import segments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import SparkSession

    from penstock.spark.fused.accounts import WorkerName

MOST_ROUNDS = 3
_CLOSED = "host string, worker bigint, failures array<string>"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CloseRun:
    """For `DataFrame.mapInArrow`: says which worker has closed its part of the run, and what that raised."""

    run: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        failures = segments.close_run(self.run)
        yield pa.record_batch(
            [pa.array([socket.gethostname()]), pa.array([os.getpid()]), pa.array([failures], pa.list_(pa.string()))],
            names=["host", "worker", "failures"],
        )


def close_in_workers(session: SparkSession, run: str, workers: Collection[WorkerName]) -> list[str]:
    """Asks all of `workers`, and says what could not be closed.

    Spark gives a task to the worker that has been idle for longest: of twice as many tasks as there are workers one
    comes to each. Those who have not answered in the end are gone, and have closed before, or close when they end.
    """
    left, failures = set(workers), list[str]()
    for _ in range(MOST_ROUNDS):
        if not left:
            break
        tasks = 2 * len(left)
        try:
            rows = session.range(0, tasks, 1, tasks).mapInArrow(CloseRun(run), _CLOSED).collect()
        except Exception as error:  # whatever Py4J says: why the run ended says more
            _LOG.warning("run %s: its workers close what they opened when they end: %s", run, error)
            break
        failures += [line for row in rows for line in row.failures]
        closed = left & {(row.host, row.worker) for row in rows}
        if not closed:
            break
        left -= closed
    return failures
