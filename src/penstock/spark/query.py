"""One streaming query that is started again from its checkpoint when a process it depends on dies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch, pause
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 0.2
DRAIN_SECONDS = 60.0
MOST_RESTARTS = 3


class RunFailedError(PenstockError):
    """Spark stopped the query; the message is the first line of its reason."""


class LastingQuery:
    """A query, and how to start it. What its own code raised ends it for good; anything else only after some restarts.

    The process in which Spark asks a Python source for offsets is not a task: when it dies, Spark gives up the query.
    The checkpoint knows what was committed and what the batch under way held, so a new start loses and doubles nothing.
    """

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._query = start()
        self.restarts: list[str] = []

    def check(self) -> None:
        """Start again if it has ended; raise if that is no use."""
        if self._query.isActive:
            return
        text = str(self._query.exception())
        if not may_restart(text) or len(self.restarts) >= MOST_RESTARTS:
            raise RunFailedError(f"Spark stopped the query: {reason(text)}")
        self.restarts.append(reason(text))
        self._query = self._start()

    def wait_until_ready(self) -> None:
        """Until the query has asked its source for the first time."""
        while "Waiting" not in self._query.status["message"]:
            pause(POLL_SECONDS / 4)
            self.check()

    def drain(self) -> None:
        """Sources have stopped; wait until the batch under way is committed and nothing is left to do."""
        waited = Stopwatch()
        idle = 0
        while idle < 2 and waited.seconds() < DRAIN_SECONDS:
            pause(POLL_SECONDS)
            self.check()
            status = self._query.status
            idle = idle + 1 if not status["isTriggerActive"] and not status["isDataAvailable"] else 0

    def stop(self) -> None:
        self._query.stop()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"the query ended and was started again from its checkpoint: {why}" for why in self.restarts)


def may_restart(text: str) -> bool:
    """Whether an error is nobody's code: neither a Python traceback nor a task that failed at every attempt.

    A worker process that could not be started in time is nobody's code, however often it was tried.
    """
    if "failed to connect back" in text:
        return True
    return "Traceback (most recent call last)" not in text and "stage failure" not in text


def reason(text: str) -> str:
    """The line of a Spark error that says what happened: the last exception named before the query's description."""
    lines = [line.strip() for line in text.partition("=== Streaming Query ===")[0].splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return named[-1] if named else lines[0] if lines else "it did not say why"
