"""A fused run while it lives: conducted by a thread of its own, asked and watched from others."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, ClusterError, PenstockError, Refusal, RefusedError, RunFailedError
from penstock.engines.fused.query import FusedQuery
from penstock.engines.fused.restartable_query import GROUPS, POLL_SECONDS, as_failure
from penstock.report.report import became_faster, notes_of_all, notes_under_load, settled_after, summarise
from penstock.report.totals import KeptBatches, Totals, deaths_lately, disturbance, forgotten_notes, too_many_died
from penstock.runs.run_folder import RunState, moved
from penstock.spark.session.process_tree import (
    MachineUsage,
    engine_cpu,
    java_process,
    share_given,
    share_of_others,
    tree_cpu_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pyspark.sql import SparkSession

    from penstock.cluster.topology import Slot
    from penstock.engines.fused.query import FusedSpec
    from penstock.report.report import BatchObservation, Report
    from penstock.runs.run_folder import FusedRunFolder
    from penstock.spark.internals.executors import FusedExecutors

__all__ = ["FusedRun", "Hooks", "RunFailedError", "run_fused"]

KEPT_BATCHES = 20_000
"""A run without end remembers so many batches; what is counted over all of them is added up as they come."""
SHOWN_ERRORS = 3
"""Of dead letters, in the state of a run."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hooks:
    """Who hears of what while a pipeline runs: batches, tuples for the console, and what is wrong with the run."""

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
        folder: FusedRunFolder | None = None,
        executors: FusedExecutors | None = None,
    ) -> None:
        self._session = session
        self._spec = spec
        self._seconds = spec.config.run_seconds
        self._warm_up = spec.config.warm_up_seconds
        self._hooks = hooks or Hooks()
        self._folder = folder
        self._executors = executors
        self._lock = threading.Lock()
        self._state = RunState.STARTING
        self._asked_to_end = threading.Event()
        self._at_once = False
        self._batches = KeptBatches(KEPT_BATCHES)
        self._totals = Totals()
        self._first_errors: tuple[str, ...] = ()
        """Of dead letters, as they are known so far."""
        self._failure: BaseException | None = None
        self._report: Report | None = None
        self._query: FusedQuery | None = None
        self._slots = spec.slots
        self._changes: list[str] = []
        self._closed: Mapping[str, int] = {}
        """What was open when the input ended, and was closed."""
        self._written = Stopwatch()
        self._close: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._conduct, name=f"penstock-{spec.run}", daemon=True)

    def start(self, close: Callable[[], None] = lambda: None) -> None:
        """`close`: what it was started with (its session, its folder's lock) is let go of as soon as it has ended,
        whether somebody waits for that or not."""
        self._close = close
        self._thread.start()

    # -- from outside ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        return self._state

    @property
    def last_batch(self) -> float | None:
        """When the last batch that held tuples and is finished was begun, in seconds since the epoch."""
        return self._batches.last_began

    @property
    def idle_seconds(self) -> float:
        """How long after the end of its last batch it still found nothing to do; 0 while there is something."""
        idle_at, last = None if self._query is None else self._query.idle_at, self._batches.last
        return 0.0 if idle_at is None or last is None else max(0.0, idle_at - last.finished)

    @property
    def slots(self) -> int:
        return self._slots

    def drain(self) -> None:
        """What is under way is finished, nothing more is taken in, and the run ends."""
        self._asked_to_end.set()

    def stop(self) -> None:
        """Ends at once; what is under way is run again by whoever goes on."""
        self._at_once = True
        self._asked_to_end.set()

    @property
    def nodes(self) -> dict[str, int] | None:
        """How many slots are on each node now, where that is known; one that has ended has none left to ask for."""
        has_ended = self._state in {RunState.ENDED, RunState.FAILED}
        return None if self._executors is None or has_ended else self._executors.nodes()

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """From the next batch on it is counted how many tuples have a field above a threshold."""
        if self._query is not None:
            self._query.shares.watch(fields)

    @property
    def shares(self) -> Mapping[int, float]:
        """Of the last batch: the part of it that was above, by what is watched."""
        return {} if self._query is None else self._query.shares.last

    def rescale(self, slots: int, places: Collection[Slot] | None = None) -> float:
        """More or fewer slots while the query goes on, on exactly `places` where its slots have names;
        returns the seconds it took."""
        if slots < 1:
            raise BadInputError(f"slots: expected at least 1, found {slots}")
        if self._executors is None:
            reason = "its slots are those of its Spark session; drain it, and resume it with others"
            raise RefusedError(Refusal(f"run '{self._spec.run}'", (), notes=(reason,)))
        if self._state is not RunState.RUNNING:
            raise RefusedError(Refusal(f"run '{self._spec.run}'", (), notes=(f"it is {self._state}, not running",)))
        with self._lock:
            before = self._slots
            if slots < before:
                # a batch that begins now needs nobody who is about to go
                self._spread_over(slots)
            try:
                seconds = self._executors.change_to(slots, places=places)
            except ClusterError:
                self._spread_over(before)
                raise
            self._spread_over(slots)
            self._slots = slots
            if self._folder is not None:
                with self._logged_if_unwritten("its slots"):
                    self._folder.describe_slots(slots)
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
            # drained or stopped before its time, it can be gone on with
            self._go_to(RunState.ENDED, resumable=self._asked_to_end.is_set())
        except BaseException as error:
            self._failure = as_failure(error)
            log.error("run %s failed: %s", self._spec.run, error)
            self._go_to(RunState.FAILED, reason=str(error).splitlines()[0] if str(error) else type(error).__name__)
        try:
            with self._lock:  # a change of slots that is under way still asks Java
                self._close()
        except BaseException as error:
            # raised where it is waited for, unless the run itself has failed: that says more
            log.error("run %s: what it used could not be let go of: %s", self._spec.run, error)
            self._failure = self._failure or error

    def _run(self) -> Report:
        java = java_process(self._session)
        machine = MachineUsage.now(java)
        query = self._query = FusedQuery(self._session, self._spec, self._hooks.show)
        try:
            began = query.begin(self._is_given_up)
            used_before, ran = tree_cpu_seconds(java), Stopwatch()
            self._go_to(RunState.RUNNING)
            self._flow(query)
            whole = query.ended
            if whole and self._spec.close_windows:
                self._closed = query.close_windows(lambda: self._at_once)
                self._take(query)
            elif not self._at_once:
                self._go_to(RunState.DRAINING)
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
        self._answer_questions()
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
            # a first batch may take long; where none was under way there is nothing to wait for
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
        if batches:
            errors, self._first_errors = self._first_errors, query.first_errors
            if self._first_errors and not errors and self._hooks.warn is not None:
                self._hooks.warn(f"the first dead letter: {self._first_errors[0]}")
        if self._folder is not None and self._written.seconds() > 1.0:
            self._write_state()
        return len(self._batches)

    def _judge(self) -> None:
        """A run that has no end has no report in which somebody reads that its tuples die."""
        limit = self._spec.config.max_dead_letter_ratio
        deaths = too_many_died(self._totals.deaths, deaths_lately(reversed(self._batches)), limit)
        if deaths is not None:
            errors = "; ".join(self._first_errors[:SHOWN_ERRORS])
            raise RunFailedError(
                f"{deaths.dead:,} of the last {deaths.tuples:,} tuples became dead letters, where "
                f"{limit:.3g} of all may (max_dead_letter_ratio=): {errors}"
            )

    def _answer_questions(self) -> None:
        if self._folder is None:
            return
        for name, question in self._folder.questions():
            try:
                match question:
                    case {"ask": ("drain" | "stop") as ending}:
                        (self.drain if ending == "drain" else self.stop)()
                        self._folder.answer(name)
                    case {"ask": "rescale", "slots": int(slots)}:
                        threading.Thread(target=self._rescale_for, args=(name, slots), daemon=True).start()
                    case _:
                        self._folder.answer(name, error=f"a fused run does not know '{question['ask']}'")
            except PenstockError as error:
                self._folder.answer(name, error=str(error))

    def _rescale_for(self, name: str, slots: int) -> None:
        """In a thread of its own: batches go on meanwhile. A run that is starting may have a batch in its sink already:
        it is waited for."""
        while self._state is RunState.STARTING:
            pause(POLL_SECONDS)
        try:
            answer: dict[str, Any] = {"seconds": self.rescale(slots)}
        except PenstockError as error:
            answer = {"error": str(error)}
        if self._folder is not None:
            self._folder.answer(name, **answer)

    def _go_to(self, state: RunState, **more: Any) -> None:
        self._state = moved(self._state, state)
        self._write_state(**more)

    def _write_state(self, **more: Any) -> None:
        if self._folder is None:
            return
        self._written = Stopwatch()
        last = self._batches.last
        details: dict[str, Any] = {"slots": self._slots, "batches": self._totals.batches, "dead": self._totals.dead}
        if self._first_errors:
            details["first_errors"] = list(self._first_errors[:SHOWN_ERRORS])
        if last is not None:
            details |= {"tuples": last.tuples, "backlog": last.backlog, "finished": last.finished}
        with self._logged_if_unwritten("its state"):
            self._folder.write_state(self._state, **details, **more)

    @contextmanager
    def _logged_if_unwritten(self, what: str) -> Iterator[None]:
        """A full disk must not end what still flows, nor hide why it ended."""
        try:
            yield
        except (OSError, BadInputError) as error:
            log.warning("run %s: %s could not be written: %s", self._spec.run, what, error)

    def _settled_after(self, batches: list[BatchObservation]) -> float:
        """Only where the load is the same all the time, a run shows when it has settled."""
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


def _closing(what: str) -> str:
    """What became of what was closed: a join and code with state send only what they choose to."""
    return "sent on as they were" if what == GROUPS else "closed: what they had yet to send was sent on"


def run_fused(session: SparkSession, spec: FusedSpec, hooks: Hooks | None = None) -> Report:
    """Run for `seconds` past the first batch, drain, and report what happened past the warm-up."""
    run = FusedRun(session, spec, hooks)
    run.start()
    return cast("Report", run.await_end())
