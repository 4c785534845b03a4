"""A query that is started again when it died, and one that is given up: queries in memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.errors import RunFailedError
from penstock.engines.fused.restartable_query import LastingQuery
from penstock.spark.region_function import CAREFUL_BATCH, this_task


def progress(number: int) -> Any:
    return SimpleNamespace(batchId=number, durationMs={"addBatch": 5}, timestamp="2026-01-01T00:00:00.000Z")


class Query:
    """As Spark shows it: what it committed, whether it lives, and why not."""

    def __init__(self, committed: list[int], died_of: str | None = None, message: str = "Processing new data") -> None:
        self.recentProgress = [progress(number) for number in committed]
        self.isActive = died_of is None
        self.status = {"message": message, "isTriggerActive": True, "isDataAvailable": True}
        self._died_of = died_of

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self) -> str | None:
        return self._died_of


def lasting(*queries: Query) -> LastingQuery:
    started: Iterator[Any] = iter(queries)
    return LastingQuery(lambda _: next(started))


def test_batches_of_a_query_that_died_are_told_once() -> None:
    gone = Query([0, 1, 2], died_of="java.net.SocketException: Connection reset")
    query = lasting(gone, Query([3]))
    query.check()
    assert query.restarts
    assert [told.batchId for told in query.new_progress()] == [0, 1, 2, 3]
    assert query.new_progress() == []


def test_batches_of_two_queries_that_died_between_two_looks() -> None:
    reset = "java.net.SocketException: Connection reset"
    query = lasting(Query([0], died_of=reset), Query([1], died_of=reset), Query([]))
    query.check()
    query.check()
    assert [told.batchId for told in query.new_progress()] == [0, 1]


def worker_died(tries: int) -> str:
    """A sink was being written: the traceback is of the driver's own code."""
    return (
        "Traceback (most recent call last):\n  File ...\npy4j.protocol.Py4JJavaError: An error occurred\n"
        f": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed {tries} times"
        ", most recent failure: Lost task 0.0 in stage 2.0 (TID 2) (localhost executor driver): "
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).\nCaused by: java.io.EOFException"
    )


@pytest.mark.parametrize(("tries", "restarts"), [(1, 7), (4, 1), (8, 0)])
def test_a_task_whose_worker_dies_is_tried_with_care_and_in_the_end_no_more(tries: int, restarts: int) -> None:
    """On `local[2]` a task is tried once, on a cluster four times; in sessions of ours eight times."""
    starts: list[bool] = []

    def start(careful: bool) -> Any:
        starts.append(careful)
        return Query([], died_of=worker_died(tries))

    query = LastingQuery(start)
    for _ in range(restarts):
        query.check()
    with pytest.raises(RunFailedError, match="Spark stopped the query"):
        query.check()
    assert starts == [False, *[True] * restarts]


def test_tries_are_those_of_one_batch() -> None:
    query = lasting(*(Query([number], died_of=worker_died(4)) for number in range(10)))
    for _ in range(9):
        query.check()
    assert [told.batchId for told in query.new_progress()] == list(range(10))


def test_care_reaches_the_worker(session: Any) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch([pa.array([this_task().is_careful])], names=["careful"])

    for batch, expected in ((None, False), ("-1", False), ("0", True)):
        session.sparkContext.setLocalProperty(CAREFUL_BATCH, batch)
        [row] = session.range(0, 1, 1, 1).mapInArrow(look, "careful boolean").collect()
        assert row.careful is expected
    session.sparkContext.setLocalProperty(CAREFUL_BATCH, None)


def test_a_first_batch_that_does_not_end_can_be_given_up() -> None:
    query = lasting(Query([]))
    answers = iter([False, False, True])
    query.wait_until_ready(lambda: next(answers))
    assert next(answers, None) is None
    assert not query.is_ready


def test_it_is_ready_when_it_waits_or_has_committed() -> None:
    for ready in (Query([0]), Query([], message="Waiting for data to arrive")):
        query = lasting(ready)
        query.wait_until_ready(lambda: False)
        assert query.is_ready
