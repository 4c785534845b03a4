"""A pipeline's driver process: `python -m penstock.control.executors.driver FOLDER`. It runs one pipeline on Spark,
follows the orders in its folder and reports there; it needs no controller to go on flowing."""

from __future__ import annotations

import fcntl
import math
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock.base import clock
from penstock.base.clock import Stopwatch, pause
from penstock.base.errors import BadInputError, ClusterError, PenstockError, RunError
from penstock.base.files import read_value
from penstock.base.process_identity import own_identity
from penstock.base.tolerance import TOLERANCE
from penstock.control.core.messages import OrderKind
from penstock.control.executors.driver_files import (
    DRIVER,
    JOB,
    LOCK,
    ORDER,
    REPORT,
    DriverJob,
    DriverOrder,
    DriverProcess,
    DriverReport,
    DriverState,
    PartReport,
    get,
    keep_fence,
    put,
)
from penstock.control.metrics import Metric
from penstock.planning.replanning.plan_changes import moves
from penstock.report.figures import ARRIVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.control.executors.driver_files import WatchedField
    from penstock.control.executors.spark_runs import DrivenRun
    from penstock.report.figures import Figures, OperatorFlow


# Readings of the parts of a run: operators, their threads per slot, slots, and partitions of topics.


def parts_of(figures: Figures, threads_on: Callable[[str, str], int]) -> tuple[PartReport, ...]:
    """`threads_on`: how many an operator has in a slot; 0 where nobody knows."""
    totals = dict.fromkeys(figures.operators, 0)
    for name, where in figures.on_slots:
        totals[name] = totals.get(name, 0) + threads_on(name, where)
    parts = [PartReport(operator=name, values=_values(flow, totals[name])) for name, flow in figures.operators.items()]
    parts += [
        PartReport(operator=name, slot=_slot(where), values=_values(flow, threads_on(name, where)))
        for (name, where), flow in figures.on_slots.items()
    ]
    parts += [
        PartReport(slot=_slot(where), values={str(Metric.CPU): cpu, str(Metric.MEMORY_MB): memory})
        for where, (cpu, memory) in figures.slots.items()
    ]
    parts += [
        PartReport(partition=where, values={str(Metric.LAG): float(count)}) for where, count in figures.lag.items()
    ]
    return tuple(parts)


def busiest(parts: Sequence[PartReport]) -> float | None:
    """Of its time, how much the busiest operator uses, over all slots. Of Spark's own operators no threads are known:
    theirs is a part of the batch's time already."""
    shares = [part.values[Metric.BUSY] for part in parts if part.operator is not None and part.slot is None]
    return max((share for share in shares if share <= 1 + TOLERANCE), default=None)


def batch_cost(figures: Figures, busy: float) -> float | None:
    """Seconds a batch takes besides the work of its busiest operator: seconds - busy / batches per second."""
    if figures.batch_seconds is None or figures.batches_per_second <= 0:
        return None
    return max(0.0, figures.batch_seconds - busy / figures.batches_per_second)


def part_of_possible(busy: float, cost: float, most_work: float) -> float:
    """Busy as a part of what it can be. A run that falls behind has batches of `most_work` seconds of work and pays
    the cost of each: it is busy most_work / (most_work + cost) of the time, and can do no more."""
    return min(1.0, busy * (most_work + cost) / most_work)


def _values(flow: OperatorFlow, threads: int) -> dict[str, float]:
    """Busy is of all its threads together where nobody knows how many there are."""
    values = {
        str(Metric.RATE_IN): flow.received,
        str(Metric.RATE_OUT): flow.sent,
        str(Metric.BUSY): flow.busy / max(1, threads),
    }
    return {**values, str(Metric.THREADS): float(threads)} if threads else values


def _slot(text: str) -> tuple[str, int]:
    node, _, number = text.rpartition("/")
    return node, int(number)


LOOK_SECONDS = 0.1
REPORT_SECONDS = 1.0
LOCK_SECONDS = 1.0
RETRY_SECONDS = 1.0
"""Between two attempts to carry out an order."""
QUIET_SECONDS = 15.0
"""Longer than Spark says nothing of a query that finds nothing (10 s)."""


class Driver:
    def __init__(self, folder: Path, job: DriverJob) -> None:
        self._folder = folder
        self._job = job
        self._fence = 0
        self._order: DriverOrder | None = None
        self._done = -1
        self._changed_at = 0.0
        self._first_tuple = -1
        self._away_at = -math.inf
        """When a source was last seen to wait for its broker."""
        self._reported_at = 0.0
        self._carried: DriverOrder | None = None
        """The order that executors carry out."""
        self._moved_threads = 0
        self._is_changed = False
        """Whether the last order changed anything."""
        self._failure = ""
        """Reason why the newest order could not be carried out."""
        self._failed: Stopwatch | None = None
        """Time since then."""
        self._watched: tuple[WatchedField, ...] = ()
        self._reported: object = None
        self._move: _Move | None = None
        """The change that is under way."""
        self._nodes: dict[str, int] = {}

    def run(self) -> int:
        self._say(DriverState.STARTING)
        order = self._read_order()
        if order is None or order.kind is not OrderKind.RUN:
            self._say(DriverState.ENDED, why="there was nothing to run any more")
            return 0
        try:
            from penstock.control.executors.spark_runs import start_run  # noqa: PLC0415 - Spark takes a while to load

            run = start_run(self._folder, self._job, order)
            self._begin_with(order)
            state = self._conduct(run)
        except PenstockError as error:
            self._say(DriverState.FAILED, why=str(error))
            return 1
        self._say(state)
        return 0

    def _conduct(self, run: DrivenRun) -> DriverState:
        """Until an order, or the end of its input, ends it."""
        while True:
            order = self._read_order()
            if order is not None and order.kind is not OrderKind.RUN:
                if self._move is not None:
                    self._move.wait()
                run.kill() if order.forced else run.stop()
                return DriverState.DRAINED if order.kind is OrderKind.DRAIN else DriverState.ENDED
            if run.has_ended(LOOK_SECONDS):
                return DriverState.ENDED
            if order is not None and run.is_running:
                self._follow(run, order)
            self._report(run)

    def _begin_with(self, order: DriverOrder) -> None:
        self._carried, self._done, self._changed_at = order, order.serial, clock.now()

    def _follow(self, run: DrivenRun, order: DriverOrder) -> None:
        """Carry out a new order while the pipeline flows. Try it again after a while if it fails."""
        if order.watched != self._watched:
            self._watched = order.watched
            run.watch(order.watched)
        if self._move is not None:
            if not self._move.is_over:
                return
            moved, self._move = self._move, None
            if isinstance(moved.failure, BadInputError | ClusterError | RunError):
                self._note_failure(str(moved.failure))
                return
            if moved.failure is not None:
                raise moved.failure
            self._changed_to(moved.order, is_change=True)
        if order.serial == self._done or self._carried is None:
            return
        if order.runs_as(self._carried):
            self._changed_to(order, is_change=False)
        elif self._failed is None or self._failed.seconds() >= RETRY_SECONDS:
            self._move = _Move(run, order)

    def _changed_to(self, order: DriverOrder, *, is_change: bool) -> None:
        before = order if self._carried is None else self._carried
        self._begin_with(order)
        self._moved_threads = moves(before.threads, before.threads, order.threads).moved
        self._is_changed = is_change
        self._failed, self._failure = None, ""

    def _note_failure(self, failure: str) -> None:
        if failure != self._failure:
            print(f"{failure}; it is tried again", file=sys.stderr, flush=True)
        self._failed, self._failure = Stopwatch(), failure

    def _read_order(self) -> DriverOrder | None:
        """The newest order of the newest controller; one of an older controller is not obeyed."""
        try:
            order = get(DriverOrder, self._folder, ORDER)
        except BadInputError:
            return self._order  # it cannot be read just now
        if order is not None and order.incarnation == self._job.incarnation and order.fence >= self._fence:
            self._fence, self._order = order.fence, order
        return self._order

    def _report(self, run: DrivenRun) -> None:
        last = run.last_batch
        if last is not None and last > self._changed_at:
            self._first_tuple = self._done
        figures = run.figures if self._knows_what_comes(run) else None
        readings: dict[str, float] = {}
        if figures is not None:
            readings = {
                Metric.OFFERED_RATE: figures.offered,
                Metric.RATE: figures.sustained if figures.recent is None else figures.recent,
                Metric.BACKLOG: float(figures.backlog),
            }
            if run.idle_seconds >= ARRIVAL_SECONDS:
                # a stopped stream has no batch that reports it
                readings |= {Metric.OFFERED_RATE: 0.0, Metric.RATE: 0.0, Metric.BACKLOG: 0.0}
                figures = replace(figures, lag=dict.fromkeys(figures.lag, 0))
            if figures.lag:
                readings[Metric.LAG] = float(sum(figures.lag.values()))
            if "p95" in figures.latency_ms:
                readings[Metric.LATENCY_MS] = figures.latency_ms["p95"]
        parts = () if figures is None else parts_of(figures, run.threads_on)
        if figures is not None and (busy := busiest(parts)) is not None:
            readings[Metric.BUSY] = busy
            cost = batch_cost(figures, busy)
            if cost is not None and run.most_work is not None:
                readings[Metric.BATCH_COST_S] = cost
                readings[Metric.BUSY] = part_of_possible(busy, cost, run.most_work)
        state = DriverState.RUNNING if run.is_running else DriverState.STARTING
        if self._move is None:
            self._nodes = dict(run.nodes())
        self._say(
            state,
            nodes=self._nodes,
            readings=finite(readings),
            parts=parts,
            shares=dict(run.shares),
            why=self._failure,
            moved_threads=self._moved_threads,
            pause_seconds=run.pause_seconds if self._is_changed else 0.0,
        )

    def _knows_what_comes(self, run: DrivenRun) -> bool:
        """While a source waits for its broker, that nothing comes is no figure of the stream. Nor is it behind that,
        until there is a batch, or Spark has looked once more and found none."""
        if run.is_source_away:
            self._away_at = clock.now()
        last = run.last_batch
        return (last is not None and last > self._away_at) or clock.now() - self._away_at > QUIET_SECONDS

    def _say(self, state: DriverState, **more: Any) -> None:
        """At once where something changed, else once a second."""
        now = clock.now()
        report = DriverReport(
            incarnation=self._job.incarnation,
            state=state,
            at=now,
            serial=self._done,
            first_tuple=self._first_tuple,
            **more,
        )
        changing = (report.state, report.serial, report.nodes, report.first_tuple)
        if changing != self._reported or now - self._reported_at >= REPORT_SECONDS:
            self._reported, self._reported_at = changing, now
            try:
                put(self._folder, REPORT, report)
            except BadInputError as error:
                # a full disk: the pipeline runs on, and the next report is complete
                self._reported = None
                print(error, file=sys.stderr, flush=True)


class _Move:
    """A change to another order, in a thread of its own: it takes seconds, in which the pipeline flows and is reported
    on."""

    def __init__(self, run: DrivenRun, order: DriverOrder) -> None:
        self.order = order
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._make, args=(run,), name="move", daemon=True)
        self._thread.start()

    def _make(self, run: DrivenRun) -> None:
        try:
            run.change_to(self.order)
        except Exception as error:
            self.failure = error  # raised when the driver looks again

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join()


def finite(readings: Mapping[str, float]) -> dict[str, float]:
    return {str(name): float(value) for name, value in readings.items() if math.isfinite(value)}


def main() -> int:
    folder = Path(sys.argv[1])
    with os.fdopen(os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        if not _locks(lock):
            print("another driver runs this pipeline already", file=sys.stderr)
            return 3
        try:
            job = read_value(DriverJob, folder / JOB)
            # an earlier controller may have written the job late, and started this
            keep_fence(folder.parent, "", job.fence)
            put(folder, DRIVER, DriverProcess(incarnation=job.incarnation, **dict(own_identity())))
        except BadInputError as error:
            print(error, file=sys.stderr)
            return 1
        return Driver(folder, job).run()


def _locks(lock: IO[str]) -> bool:
    """Try for a moment: a controller that asks whether the lock is held holds it itself meanwhile."""
    watch = Stopwatch()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if watch.seconds() > LOCK_SECONDS:
                return False
            pause(LOOK_SECONDS)
        else:
            return True


if __name__ == "__main__":
    sys.exit(main())
