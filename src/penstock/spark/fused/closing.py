"""The end of a run in a session that goes on: its workers close what its code opened, though they live on."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.spark.fused.region_function import segments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import SparkSession

    from penstock.spark.fused.accounts import WorkerName

MOST_ROUNDS = 3

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CloseRun:
    """For `DataFrame.mapInArrow`: says which worker has closed its part of the run."""

    run: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        segments.close_run(self.run)
        yield pa.record_batch([pa.array([socket.gethostname()]), pa.array([os.getpid()])], names=["host", "worker"])


def close_in_workers(session: SparkSession, run: str, workers: Collection[WorkerName]) -> None:
    """Asks all of `workers`. Spark gives a task to the worker that has been idle for longest: of twice as many tasks
    as there are workers one comes to each. A worker that is gone has closed what it could."""
    left = set(workers)
    for _ in range(MOST_ROUNDS):
        if not left:
            return
        tasks = 2 * len(left)
        try:
            rows = session.range(0, tasks, 1, tasks).mapInArrow(CloseRun(run), "host string, worker bigint").collect()
        except (Py4JError, PySparkException) as error:
            _LOG.warning("run %s: its workers close what they opened when they end: %s", run, error)
            return
        left -= {(row.host, row.worker) for row in rows}
