"""What tasks tell about themselves on its way to the driver: one small record per task and batch.

Records travel as a Python accumulator: Spark brings them with the task's own result, so that nothing is there twice or
missing that counts. A task that is run again tells again, under the same name, and the last word counts. One that
reads several partitions of what code made (`coalesce`) tells of each under the same name, and all of that counts.
"""

from __future__ import annotations

import queue
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.accumulators import AccumulatorParam

from penstock.runtime.account import Account

if TYPE_CHECKING:
    from pyspark import SparkContext


WorkerName = tuple[str, int]
"""A Python worker: its host, and the number of its process there."""


IDLE_SECONDS = 90.0
"""Spark ends a worker that had nothing to do for a minute; clocks of hosts differ."""


class TaskRecord(NamedTuple):
    """`region` and `partition` name the task within its batch, `attempt` is a number that no other try of it has;
    `began` is seconds since the epoch, `executor` the process whose child the `worker` is."""

    batch: int
    region: int
    partition: int
    attempt: int
    began: float
    wall_seconds: float
    cpu_seconds: float
    host: str
    executor: str
    worker: int
    slot: str
    """NODE/NUMBER of the slot its executor holds, where the cluster counts slots; else empty."""
    account: bytes
    entered: tuple[tuple[str, int], ...] = ()
    """Rows that came in, by the sender whose rows all come in there."""


class _OnWorker(AccumulatorParam[list[TaskRecord]]):
    """In a task: gathers what the task adds."""

    def zero(self, value: list[TaskRecord]) -> list[TaskRecord]:
        return []

    def addInPlace(self, value1: list[TaskRecord], value2: list[TaskRecord]) -> list[TaskRecord]:  # noqa: N802
        return value1 + value2


class _OnDriver(_OnWorker):
    """In the driver: what arrives is queued instead of kept for ever."""

    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[TaskRecord] = queue.SimpleQueue()

    def __reduce__(self) -> tuple[type[_OnWorker], tuple[()]]:
        return _OnWorker, ()

    def addInPlace(self, value1: list[TaskRecord], value2: list[TaskRecord]) -> list[TaskRecord]:  # noqa: N802
        for record in value2:
            self.arrived.put(record)
        return value1


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """All tasks of one batch."""

    tasks: tuple[TaskRecord, ...]

    def account(self) -> Account:
        merged = Account()
        for task in self.tasks:
            merged.merge(Account.from_bytes(task.account))
        return merged

    def entered(self) -> dict[str, int]:
        """Rows by sender. One that several regions read comes into each of them whole, and counts once."""
        by_region: Counter[tuple[str, int]] = Counter()
        for task in self.tasks:
            for sender, rows in task.entered:
                by_region[sender, task.region] += rows
        senders: dict[str, int] = {}
        for (sender, _), rows in by_region.items():
            senders[sender] = max(rows, senders.get(sender, 0))
        return senders


class Accounts:
    """The driver's end."""

    def __init__(self, context: SparkContext) -> None:
        self._param = _OnDriver()
        self.accumulator: Any = context.accumulator([], self._param)
        self._batches: dict[int, dict[tuple[int, int], list[TaskRecord]]] = {}
        self._workers: dict[WorkerName, float] = {}
        """When each was last at work, in seconds since the epoch."""

    @property
    def workers(self) -> set[WorkerName]:
        """Who ran tasks and may still live."""
        return set(self._workers)

    def take(self, batch: int) -> BatchRecords:
        """Of a batch that is committed; what came of earlier ones that never were is forgotten."""
        while not self._param.arrived.empty():
            record = self._param.arrived.get()
            self._workers[record.host, record.worker] = record.began + record.wall_seconds
            known = self._batches.setdefault(record.batch, {}).setdefault((record.region, record.partition), [])
            if known and known[0].attempt != record.attempt:
                known.clear()
            known.append(record)
        alive_since = max(self._workers.values(), default=0.0) - IDLE_SECONDS
        self._workers = {worker: ended for worker, ended in self._workers.items() if ended >= alive_since}
        records = self._batches.pop(batch, {})
        for older in [number for number in self._batches if number < batch]:
            del self._batches[older]
        return BatchRecords(tuple(record for name in sorted(records) for record in records[name]))
