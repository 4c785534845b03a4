"""A fused run while it lives: conducted by a thread of its own, asked and watched from others."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from penstock.base.clock import Stopwatch, now, pause
from penstock.base.errors import BadInputError, ClusterError, Refusal, RefusedError, RunFailedError
from penstock.engines.fused.query import FusedQuery
from penstock.engines.fused.restartable_query import GROUPS, POLL_SECONDS, as_failure
from penstock.report.report import became_faster, notes_of_all, notes_under_load, settled_after, summarise
from penstock.report.totals import KeptBatches, Totals, deaths_lately, disturbance, forgotten_notes, too_many_died
from penstock.runs.states import OVER, RunState, StateHistory, move
from penstock.spark.session.process_tree import (
    MachineUsage,
    engine_cpu,
    java_process,
    share_given,
    share_of_others,
    tree_cpu_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.engines.fused.query import FusedSpec
    from penstock.report.report import BatchObservation, Report
    from penstock.spark.internals.executors import FusedExecutors

__all__ = ["FusedRun", "Hooks", "RunFailedError", "run_fused"]

KEPT_BATCHES = 20_000
"""Batches that a run without end remembers; totals are added up as they come."""
SHOWN_ERRORS = 3
"""Errors of dead letters shown in the state of a run."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hooks:
    """Callbacks while a pipeline runs: batches, tuples for the console, and problems of the run."""

    watch: Callable[[BatchObservation], None] | None = None
    show: Callable[[str, str], None] | None = None
    warn: Callable[[str], None] | None = None


class FusedRun:
    """A run for `seconds` after the first batch (after its start if nothing comes), or without end. `executors`: given
    if slots can be added and released."""

    def __init__(
        self,
        session: SparkSession,
        spec: FusedSpec,
        hooks: Hooks | None = None,
        history: StateHistory | None = None,
        executors: FusedExecutors | None = None,
    ) -> None:
        self._session = session
        self._spec = spec
        self._seconds = spec.config.run_seconds
        self._warm_up = spec.config.warm_up_seconds
        self._hooks = hooks or Hooks()
        self.history = history or StateHistory()
        self._executors = executors
        self._lock = threading.Lock()
        self._asked_to_end = threading.Event()
        self._then = RunState.STOPPED
        """The state after the query was drained."""
        self._at_once = False
        self._batches = KeptBatches(KEPT_BATCHES)
        self._totals = Totals()
        self._first_errors: tuple[str, ...] = ()
        """First errors of dead letters so far."""
        self._failure: BaseException | None = None
        self._report: Report | None = None
        self._query: FusedQuery | None = None
        self._slots = spec.slots
        self._changes: list[str] = []
        self._changed_between: tuple[float, float] | None = None
        """When the last change of slots began and when it was made, until its pause is known."""
        self._pause: float | None = None
        self._closed: Mapping[str, int] = {}
        """Rows that were open when the input ended, and were closed."""
        self._close: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._conduct, name=f"penstock-{spec.run}", daemon=True)

    def start(self, close: Callable[[], None] = lambda: None) -> None:
        """Start the query. `close` releases its resources (session, lock of the folder) as soon as it has ended, even
        if no caller waits for that."""
        self._close = close
        self._thread.start()

    # -- from outside ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        return self.history.state

    @property
    def last_batch(self) -> float | None:
        """When the last batch that held tuples and is finished was begun, in seconds since the epoch."""
        return self._batches.last_began

    @property
    def idle_seconds(self) -> float:
        """Seconds without work since the end of its last batch; 0 while there is work."""
        idle_at, last = None if self._query is None else self._query.idle_at, self._batches.last
        return 0.0 if idle_at is None or last is None else max(0.0, idle_at - last.finished)

    @property
    def slots(self) -> int:
        return self._slots

    def stop(self, then: RunState = RunState.STOPPED) -> None:
        """Ask it to take in nothing more, to finish the batch under way and to end; the run is `then` paused or
        stopped."""
        self._then = then
        self._asked_to_end.set()

    def kill(self) -> None:
        """Ask it to end at once; a resumed run repeats the batch under way."""
        self._at_once = True
        self._asked_to_end.set()

    @property
    def nodes(self) -> dict[str, int] | None:
        """Return the slots on each node now, if that is known; a run that has ended has none."""
        has_ended = self.state in OVER | {RunState.PAUSED}
        return None if self._executors is None or has_ended else self._executors.nodes()

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """Count from the next batch on how many tuples have a field above a threshold."""
        if self._query is not None:
            self._query.shares.watch(fields)

    @property
    def shares(self) -> Mapping[int, float]:
        """Return the part of the last batch above each threshold."""
        return {} if self._query is None else self._query.shares.last

    @property
    def pause_seconds(self) -> float | None:
        """Seconds without output of the last change of slots; None if none was made, or no batch ended since."""
        return self._pause

    def rescale(self, slots: int, places: Mapping[Slot, ExecutorSize] | None = None) -> float:
        """Change the number of slots while the query runs, to exactly `places` if its slots have names; return the
        seconds it took."""
        if slots < 1:
            raise BadInputError(f"slots: expected at least 1, found {slots}")
        if self._executors is None:
            reason = "its slots are those of its Spark session; stop it, and resume it with others"
            raise RefusedError(Refusal(f"run '{self._spec.run}'", (), notes=(reason,)))
        if self.state is not RunState.RUNNING:
            raise RefusedError(Refusal(f"run '{self._spec.run}'", (), notes=(f"it is {self.state}, not running",)))
        with self._lock:
            before = self._slots
            if slots < before:
                # a batch that begins now must not need slots that are about to be released
                self._spread_over(slots)
            began = now()
            try:
                seconds = self._executors.change_to(slots, places=places)
            except ClusterError:
                self._spread_over(before)
                raise
            self._spread_over(slots)
            self._slots, self._pause = slots, None
            self._changed_between = (began, now())
            self._changes.append(f"from {before} to {slots} slots in {seconds:.1f} s, without a stop")
        return seconds

    def _spread_over(self, slots: int) -> None:
        if self._query is not None:
            self._query.spread_over(slots)

    def await_end(self, timeout: float | None = None) -> Report | None:
        """The report, or None if it still runs after `timeout` seconds. Raises what ended a run that failed."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        if self._failure is not None:
            raise self._failure
        return self._report

    # -- the thread --------------------------------------------------------------------------------------------------

    def _conduct(self) -> None:
        try:
            self._report = self._run()
            is_paused = self.state is RunState.DRAINING and not self._at_once
            move(self.history, self._then if is_paused else RunState.STOPPED)
        except BaseException as error:
            self._failure = as_failure(error)
            log.error("run %s failed: %s", self._spec.run, error)
            move(self.history, RunState.FAILED)
        try:
            with self._lock:  # a change of slots that is under way still asks Java
                self._close()
        except BaseException as error:
            # raised to the waiting caller, unless the run itself has failed: that error matters more
            log.error("run %s: failed to release resources: %s", self._spec.run, error)
            self._failure = self._failure or error

    def _run(self) -> Report:
        java = java_process(self._session)
        machine = MachineUsage.now(java)
        query = self._query = FusedQuery(self._session, self._spec, self._hooks.show)
        try:
            began = query.begin(self._is_given_up)
            used_before, ran = tree_cpu_seconds(java), Stopwatch()
            move(self.history, RunState.RUNNING)
            self._flow(query)
            whole = query.ended
            if whole and self._spec.close_windows:
                self._closed = query.close_windows(lambda: self._at_once)
                self._take(query)
            elif not self._at_once:
                move(self.history, RunState.DRAINING)
                query.drain()
                self._take(query)
            used, elapsed = tree_cpu_seconds(java), ran.seconds()
        finally:
            query.stop()
        batches = list(self._batches)
        warm_up = self._settled_after(batches)
        report = summarise(
            batches,
            self._offered(batches, began, warm_up),
            warm_up,
            query.audit() or self._totals.audit,
            engine_cpu(used_before, used, self._totals.cpu_seconds, elapsed),
            began,
            whole=whole,
        )
        if whole and report.operators:
            report = replace(report, operators=self._totals.operators)
        machine_then = MachineUsage.now(java)
        others = share_of_others(machine, machine_then)
        pace = None if report.pace is None else report.pace * share_given(machine, machine_then)
        end = self._end_notes(query, report) if whole else ()
        start = self._start_notes(warm_up, report)
        forgotten = forgotten_notes(len(batches), self._totals.batches, whole=whole)
        notes = (*report.notes, *start, *disturbance(others), *query.notes, *self._changes, *forgotten, *end)
        return replace(report, notes=notes, others_cpu=others, pace=pace, first_errors=query.first_errors)

    def _is_given_up(self) -> bool:
        return self._asked_to_end.is_set()

    def _flow(self, query: FusedQuery) -> None:
        runs: Stopwatch | None = None
        since: Stopwatch | None = None
        while not self._is_given_up():
            pause(POLL_SECONDS)
            ended, is_working = query.ended, query.is_working
            if runs is None and query.is_ready:
                runs = Stopwatch()
            if self._take(query) and since is None:
                since = Stopwatch()
            if self._seconds is None and not self._spec.config.until_end:
                self._judge()
            # a first batch may take long; if none was under way there is nothing to wait for
            watch = since or (None if is_working else runs)
            if ended or (self._seconds is not None and watch is not None and watch.seconds() >= self._seconds):
                return

    def _take(self, query: FusedQuery) -> int:
        batches = query.poll()
        for batch in batches:
            self._batches.add(batch)
            self._totals.add(batch)
            if self._hooks.watch is not None:
                self._hooks.watch(batch)
        if self._changed_between is not None:
            self._pause = longest_gap([it.finished for it in self._batches if it.tuples], *self._changed_between)
            self._changed_between = None if self._pause is not None else self._changed_between
        if batches:
            errors, self._first_errors = self._first_errors, query.first_errors
            if self._first_errors and not errors and self._hooks.warn is not None:
                self._hooks.warn(f"the first dead letter: {self._first_errors[0]}")
        return len(self._batches)

    def _judge(self) -> None:
        """End a run whose tuples die: a run without end has no final report in which it would be seen."""
        limit = self._spec.config.max_dead_letter_ratio
        deaths = too_many_died(self._totals.deaths, deaths_lately(reversed(self._batches)), limit)
        if deaths is not None:
            errors = "; ".join(self._first_errors[:SHOWN_ERRORS])
            raise RunFailedError(
                f"{deaths.dead:,} of the last {deaths.tuples:,} tuples became dead letters, where "
                f"{limit:.3g} of all may (max_dead_letter_ratio=): {errors}"
            )

    @property
    def details(self) -> dict[str, Any]:
        """Details in state.json beside the state. A run that was drained or killed before its time can be resumed."""
        last = self._batches.last
        details: dict[str, Any] = {"slots": self._slots, "batches": self._totals.batches, "dead": self._totals.dead}
        if self._first_errors:
            details["first_errors"] = list(self._first_errors[:SHOWN_ERRORS])
        if last is not None:
            details |= {"tuples": last.tuples, "backlog": last.backlog, "finished": last.finished}
        return {**details, "resumable": self._asked_to_end.is_set()}

    def _settled_after(self, batches: list[BatchObservation]) -> float:
        """Return the second from which it has settled, if the load is constant; otherwise that cannot be told."""
        load = self._spec.load
        return settled_after(batches, self._warm_up) if load is not None and load.is_steady else self._warm_up

    def _start_notes(self, settled: float, report: Report) -> list[str]:
        load = self._spec.load
        if load is None or not load.is_steady:
            return []
        return notes_under_load(self._warm_up, settled, report.offered_rate, report.sustained_rate)

    def _offered(self, batches: list[BatchObservation], began: float, warm_up: float) -> float | None:
        """Tuples/s asked for while it was measured; None: a source of the user's own is asked for nothing."""
        load = self._spec.load
        if load is None:
            return None
        if not batches:
            return load.mean_rate
        return load.rate_between(batches[0].finished - began + warm_up, batches[-1].finished - began)

    def _end_notes(self, query: FusedQuery, report: Report) -> list[str]:
        took = report.history[-1].seconds if report.history else 0.0
        notes = notes_of_all(
            self._totals.tuples, took, len(report.history), report.batches, became_faster(list(self._batches))
        )
        for what, count in self._closed.items():
            notes.append(f"{count:,} {what} were still open when it ended, and were {_closing(what)}")
        kept = "the run's folder keeps them for when it goes on"
        left = "what they had yet to send, if anything, is not in the sinks"
        for what, count in query.held_back.items():
            notes.append(f"{count:,} {what} are still open: {left if self._spec.close_windows else kept}")
        return notes


def longest_gap(ended: Sequence[float], began: float, made: float) -> float | None:
    """Return the longest time in which no batch ended, from the last end before `began` to the first one after `made`.

    max(e[i + 1] - e[i]) over the ends e from before `began` until after `made`; None if none came after.
    """
    first = max(0, bisect_right(ended, began) - 1)
    last = bisect_right(ended, made)
    if last == len(ended):
        return None
    return max((after - before for before, after in pairwise(ended[first : last + 1])), default=0.0)


def _closing(what: str) -> str:
    """Return a sentence on windows that were closed: a join and code with state send only what they choose."""
    return "sent on as they were" if what == GROUPS else "closed: what they had yet to send was sent on"


def run_fused(session: SparkSession, spec: FusedSpec, hooks: Hooks | None = None) -> Report:
    """Run for `seconds` past the first batch, drain, and report what happened past the warm-up."""
    run = FusedRun(session, spec, hooks)
    run.start()
    return cast("Report", run.await_end())
