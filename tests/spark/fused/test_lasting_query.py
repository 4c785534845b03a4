"""A query that is started again when it died, and one that is given up: queries in memory, no session."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from penstock.spark.fused.lasting_query import LastingQuery


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
    return LastingQuery(lambda: next(started))


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
