"""One streaming query that is started again from its checkpoint when a process it depends on dies."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING

from penstock.base.clock import Stopwatch, pause, seconds_of
from penstock.base.errors import RunFailedError
from penstock.dataflow.secrets import redact
from penstock.spark.internals.error_messages import spark_errors
from penstock.spark.session.embedded import ATTEMPTS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.1
DRAIN_SECONDS = 60.0
MOST_RESTARTS = 3
WITHIN_SECONDS = 600.0
"""Seconds over which restarts are counted: one a day is no reason to give up."""


GROUPS = "groups"
HELD_BACK = {
    "stateStoreSave": GROUPS,
    "sessionWindowStateStoreSaveExec": GROUPS,
    "symmetricHashJoin": "rows of a join of streams",
    "flatMapGroupsWithState": "states of flatMapGroupsWithState",
    "applyInPandasWithState": "states of applyInPandasWithState",
    "transformWithStateExec": "states of transformWithState",
    "transformWithStateInPandasExec": "states of transformWithStateInPandas",
    "transformWithStateInPySparkExec": "states of transformWithState",
}
"""Operators of Spark's whose state may hold rows to be sent, and their kind; others only remember rows they have
seen."""


class LastingQuery:
    """A query, and how to start it, with care or without. An error of its own code ends it for good; any other only
    after some restarts. A task whose worker died at every attempt Spark makes is tried again with care, until it was
    tried as often as in sessions of ours: Spark on `local[2]` makes one.

    The process in which Spark asks a Python source for offsets is not a task: when it dies, Spark gives up the query.
    The checkpoint has the committed batches and the contents of the one under way, so a new start loses and doubles
    nothing.
    """

    def __init__(self, start: Callable[[bool], StreamingQuery]) -> None:
        self._start = start
        self._query = start(False)
        self._clock = Stopwatch()
        self._restarted_at: list[float] = []
        self._tries = Counter[int]()
        """Tries of a task whose worker died, by the last commit before it."""
        self.restarts: list[str] = []
        self._left: list[StreamingQueryProgress] = []
        """Progress of committed batches of a query that died, not read yet."""
        self.last_committed = -1
        self.idle_at: float | None = None
        """When it last looked for work and found none, in seconds since the epoch; None: there was some."""

    @property
    def is_active(self) -> bool:
        return self._query.isActive

    @property
    def is_working(self) -> bool:
        """A batch is under way, or it looks for one."""
        return bool(self._query.status["isTriggerActive"])

    @property
    def recent_progress(self) -> list[StreamingQueryProgress]:
        return self._query.recentProgress

    @property
    def ended(self) -> bool:
        """It came to its end, and nothing is wrong."""
        return not self._query.isActive and self._query.exception() is None

    def check(self) -> None:
        """Start again if it has died; raise if that is no use."""
        if self._query.isActive or self.ended:
            return
        text = str(self._query.exception())
        # the next one does not know of batches it did not run
        self._left = self.new_progress()
        tries = tries_until_worker_died(text)
        self._tries = Counter({self.last_committed: self._tries[self.last_committed] + tries})
        careful = tries > 0 and self._tries[self.last_committed] < ATTEMPTS
        if not careful:
            recent = [at for at in self._restarted_at if at > self._clock.seconds() - WITHIN_SECONDS]
            if not may_restart(text) or len(recent) >= MOST_RESTARTS:
                raise RunFailedError(f"Spark stopped the query: {reason(text)}")
            self._restarted_at = [*recent, self._clock.seconds()]
        self.restarts.append(reason(text))
        _LOG.warning("the query ended and is started again from its checkpoint: %s", reason(text))
        self._query = self._start(careful)

    def new_progress(self) -> list[StreamingQueryProgress]:
        """Return the progress of batches committed since the last look, in order."""
        left, self._left = self._left, []
        last = self._query.lastProgress
        self.idle_at = None if last is None or _is_batch(last) else seconds_of(last.timestamp)
        if last is None or not _is_batch(last) or last.batchId <= self.last_committed:
            # an idle trigger reports too: batches committed before it are further back
            recent = [] if last is None or last.batchId - 1 <= self.last_committed else self._query.recentProgress
        elif last.batchId == self.last_committed + 1:
            recent = [last]
        else:
            recent = self._query.recentProgress
        committed = [progress for progress in recent if _is_batch(progress) and progress.batchId > self.last_committed]
        if committed:
            self.last_committed = committed[-1].batchId
        return [*left, *committed]

    @property
    def is_ready(self) -> bool:
        """It has asked its sources for the first time, or has taken tuples in already."""
        return self._query.lastProgress is not None or "Waiting" in self._query.status["message"]

    def wait_until_ready(self, is_given_up: Callable[[], bool]) -> None:
        """Wait until it is ready, or given up: if a source has rows, that takes a whole batch."""
        while not self.is_ready and not is_given_up():
            pause(POLL_SECONDS / 4)
            self.check()
            if self.ended:
                return

    def drain(self) -> None:
        """Sources have stopped; wait until the batch under way is committed and nothing is left to do."""
        waited = Stopwatch()
        idle = 0
        while idle < 2 and waited.seconds() < DRAIN_SECONDS:
            pause(POLL_SECONDS)
            self.check()
            status = self._query.status
            idle = idle + 1 if not status["isTriggerActive"] and not status["isDataAvailable"] else 0

    def finish_batch(self, last_one: threading.Event) -> None:
        """Sources go on; the batch under way is the `last_one`: wait until it is committed."""
        waited = Stopwatch()
        last = self._query.lastProgress
        last_one.set()
        while self._query.isActive and self._query.status["isTriggerActive"] and waited.seconds() < DRAIN_SECONDS:
            pause(POLL_SECONDS / 10)
            now = self._query.lastProgress
            if now is not None and (last is None or now.batchId > last.batchId):
                return

    def run_last_batch(self, is_given_up: Callable[[], bool]) -> None:
        """Run the one more batch that the checkpoint of the ended query names. Sources may hold more rows by now, which
        are not for this run, so an error after that batch is ignored. It takes as long as all open windows take."""
        self._query = self._start(False)
        while self._query.isActive and not is_given_up():
            pause(POLL_SECONDS / 4)

    @property
    def failure(self) -> str | None:
        """Why it is not active any more; None: nothing is wrong."""
        error = self._query.exception()
        return None if error is None else reason(str(error))

    @property
    def has_watermark(self) -> bool:
        last = self._query.lastProgress
        return last is not None and "watermark" in last.eventTime

    def held_back(self) -> dict[str, int]:
        """Return how many rows operators may still have to send after the last batch, by kind."""
        held: Counter[str] = Counter()
        last = self._query.lastProgress
        for state in () if last is None else last.stateOperators:
            if state.operatorName in HELD_BACK:
                held[HELD_BACK[state.operatorName]] += state.numRowsTotal
        return {what: count for what, count in held.items() if count}

    def stop(self) -> None:
        self._query.stop()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"the query ended and was started again from its checkpoint: {why}" for why in self.restarts)


def _is_batch(progress: StreamingQueryProgress) -> bool:
    """Return whether it is of a batch that ran, and not of a look that found nothing to do."""
    return "addBatch" in progress.durationMs


_OF_A_PROCESS = re.compile(
    r"failed to connect back|EOFException|SocketException|SocketTimeout|Broken pipe|Connection (reset|refused|closed)"
    r"|\(no cause message\)"
)
"""Messages of Java when a process it talks to is gone, or could not be started in time; for some there is none."""


_WORKER_DIED = re.compile(r"failed (\d+) times, most recent failure: [^\n]*Python worker exited unexpectedly")


def tries_until_worker_died(text: str) -> int:
    """Return how often Spark tried a task whose worker died in the end; 0: the error is another one."""
    died = _WORKER_DIED.search(text)
    return 0 if died is None else int(died[1])


def may_restart(text: str) -> bool:
    """Return whether an error is a process that died, and neither user code nor a task that failed at every attempt. A
    worker process that could not be started in time is not user code, however often it was tried."""
    if "failed to connect back" in text:
        return True
    if "Traceback (most recent call last)" in text or "stage failure" in text:
        return False
    return _OF_A_PROCESS.search(text) is not None


def reason(text: str) -> str:
    """Return the line of a Spark error with the cause: the last exception named before the query's description."""
    lines = [line.strip() for line in text.partition("=== Streaming Query ===")[0].splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Warning): ", line)]
    return redact(named[-1] if named else lines[0]) if lines else "it did not say why"


def as_failure(error: BaseException) -> BaseException:
    """Return an error of Spark's in one line; any other as it is."""
    if not isinstance(error, spark_errors()):
        return error
    failure = RunFailedError(f"Spark gave up: {reason(str(error))}")
    failure.__cause__ = error
    return failure
