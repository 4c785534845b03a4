"""What Spark's Python workers run for a bundle: every row they get is a ticket."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.bundle_work import BundleWorker, where_it_runs
from penstock.spark.channels import Ticket
from penstock.spark.sinks import Ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.bundles import Bundle

OUTPUT_SCHEMA = "ticket bigint"

_workers: dict[tuple[str, str], BundleWorker] = {}
"""Bundles of this process: one worker may be handed tickets of several."""


def _worker(run: str, bundle: Bundle, ends: Ends) -> BundleWorker:
    key = (run, bundle.name)
    if key not in _workers:
        _workers[key] = BundleWorker(Path(run), bundle, ends)
        atexit.register(_workers[key].close)
    return _workers[key]


@dataclass(frozen=True)
class BundleFunction:
    """For `DataFrame.mapInArrow` over text lines. `environment` is set in the worker before any code runs there."""

    run: str
    bundle: Bundle
    environment: tuple[tuple[str, str], ...] = ()
    ends: Ends = field(default_factory=Ends)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.update(self.environment)
        worker = _worker(self.run, self.bundle, self.ends)
        where = where_it_runs()
        for batch in batches:
            numbers = []
            for line in batch["value"].to_pylist():
                ticket = Ticket.of(line)
                worker.work_off(ticket, where)
                numbers.append(ticket.number)
            yield pa.record_batch([pa.array(numbers, pa.int64())], names=["ticket"])
