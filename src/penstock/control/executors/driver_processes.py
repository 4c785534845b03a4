"""Pipelines on Spark: a driver process for each, started, watched and ended through the files of its folder."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, PenstockError
from penstock.base.files import private_folder
from penstock.base.processes import ProcessError, end, find, kill, start, tree
from penstock.cluster.topology import Slot
from penstock.control.core.messages import (
    Died,
    Drained,
    DriverEnded,
    FirstTuple,
    Holds,
    OrderKind,
    PartReading,
    Readings,
    Started,
)
from penstock.control.core.records import EngineName
from penstock.control.executors.driver_files import (
    JOB,
    LOG,
    ORDER,
    REPORT,
    DriverJob,
    DriverOrder,
    DriverReport,
    DriverState,
    PlanEntry,
    WatchedField,
    check_owner,
    driver_in,
    folder_of,
    get,
    is_locked,
    keep_fence,
    put,
)
from penstock.control.metrics import Metric
from penstock.runs.config import FUSED, PLACED, RunConfig, read_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.base.process_identity import ProcessIdentity
    from penstock.control.core.messages import Observation, PipelineOrder

log = logging.getLogger("penstock.control")

DRIVER_COMMAND = (sys.executable, "-P", "-m", "penstock.control.executors.driver")
LONGEST_INTERVAL_MS = 500
LOG_BYTES = 200_000
"""Of a driver's output, the newest are shown."""
MAX_RETRY_SECONDS = 30.0
"""Between two attempts to write an order."""
_FAILURES = (OSError, PenstockError, ProcessError, ValidationError)
"""Kinds of errors that concern one pipeline: a full disk, no file descriptor left, a process that may not be ended, a
plan that is none."""


@dataclass
class _Followed:
    """One pipeline as it is watched: the last order, and what was already said about it."""

    folder: Path
    order: PipelineOrder
    started: ProcessIdentity | None = None
    """As this controller started it; a driver says itself who it is."""
    incarnation: int = -1
    """Of the one started, or that could not be."""
    failure: str = ""
    """Reason why the order could not be carried out, or looked after, the last time."""
    attempts: int = 0
    """To carry out the present order, that failed."""
    attempted: Stopwatch = field(default_factory=Stopwatch)
    read_at: float = -1.0
    passed_on: set[Observation] = field(default_factory=set)
    told_holds: Holds | None = None


class DriverExecutors:
    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        command: Sequence[str] = DRIVER_COMMAND,
        store: str = "",
    ) -> None:
        """`store` is the id of the store that the pipelines are in; drivers of another are left alone."""
        self._base = private_folder(folder)
        check_owner(self._base, store)
        self._store = store
        self._fence = 0
        self._environment = dict(os.environ if environment is None else environment)
        self._settings = dict(settings or {})
        self._command = list(command)
        self._followed: dict[str, _Followed] = {}

    def want(self, orders: Iterable[PipelineOrder], fence: int) -> None:
        """An order that cannot be carried out concerns its pipeline alone: the others get theirs."""
        self._fence = fence
        names = set()
        for order in orders:
            names.add(order.pipeline)
            known = self._followed.get(order.pipeline)
            if known is None:
                known = self._followed[order.pipeline] = _Followed(folder_of(self._base, order.pipeline), order)
            elif known.order == order:
                continue
            known.order = order
            known.passed_on.clear()
            known.attempts = 0
            self._tell(known)
        for name in set(self._followed) - names:
            del self._followed[name]

    def _tell(self, known: _Followed) -> None:
        try:
            self._carry_out(known)
        except _FAILURES as error:
            known.attempts, known.attempted = known.attempts + 1, Stopwatch()
            self._note(known, error)
        else:
            known.attempts, known.failure = 0, ""

    @staticmethod
    def _note(known: _Followed, error: Exception) -> None:
        failure = str(error) or type(error).__name__
        if failure != known.failure:
            log.warning("pipeline '%s': %s", known.order.pipeline, failure)
        known.failure = failure

    def _carry_out(self, known: _Followed) -> None:
        order = known.order
        if order.kind is not OrderKind.RUN and not known.folder.is_dir():
            return
        starts = order.kind is OrderKind.RUN and not self._runs(known)
        if starts:
            known.incarnation = order.incarnation  # whatever comes of it: one that cannot be started has died
        keep_fence(self._base, self._store, self._fence)
        if order.forced and order.kind is not OrderKind.RUN:
            kill(self._processes(known))  # whether or not there is room left for the order
        private_folder(known.folder)
        driver_order = DriverOrder(
            kind=order.kind,
            serial=order.serial,
            incarnation=order.incarnation,
            fence=self._fence,
            slots=tuple((slot.node, slot.number) for slot in order.slots),
            plan=None if order.plan is None else PlanEntry.of(order.plan),
            forced=order.forced,
            watched=tuple(
                WatchedField(trigger=trigger.id, field=trigger.field, above=trigger.above)
                for trigger in order.triggers
                if trigger.enabled
            ),
        )
        put(known.folder, ORDER, driver_order)
        if starts:
            self._start(known)

    def _start(self, known: _Followed) -> None:
        """One driver at a time: an earlier one that still runs is ended first."""
        order = known.order
        kill(self._processes(known))
        if is_locked(known.folder):
            raise BadInputError(f"{known.folder}: a driver that is not among the processes seen from here runs it")
        rate = order.submission.target.rate
        job = DriverJob(
            name=order.pipeline,
            pipeline=order.submission.pipeline,
            plan=None if order.submission.plan is None else dict(order.submission.plan),
            rate=rate,
            config=config_of(order, self._settings),
            incarnation=order.incarnation,
            fence=self._fence,
        )
        put(known.folder, JOB, job)
        (known.folder / REPORT).unlink(missing_ok=True)
        known.started = start([*self._command, str(known.folder)], self._environment, known.folder / LOG)

    def _processes(self, known: _Followed) -> list[object]:
        drivers = [known.started, driver_in(known.folder)]
        return [process for driver in drivers if driver is not None for process in tree(driver)]

    def _runs(self, known: _Followed) -> bool:
        """Whether a driver of the present incarnation is there."""
        own = driver_in(known.folder)
        if own is not None and own.incarnation == known.order.incarnation and (find(own) or is_locked(known.folder)):
            return True
        # a driver that was just started has not registered yet
        return known.incarnation == known.order.incarnation and known.started is not None and bool(find(known.started))

    def observe(self, now: float) -> list[Observation]:
        seen: list[Observation] = []
        for known in self._followed.values():
            try:
                for observation in self._look(known):
                    seen.append(observation)  # noqa: PERF402 - of a look that fails, what was seen before counts
            except _FAILURES as error:
                self._note(known, error)
            else:
                known.failure = known.failure if known.attempts else ""
        return seen

    def _look(self, known: _Followed) -> Iterator[Observation]:
        order, name = known.order, known.order.pipeline
        runs = self._runs(known)
        report = get(DriverReport, known.folder, REPORT) if known.folder.is_dir() else None
        if report is not None and report.incarnation == order.incarnation:
            yield from self._reported(known, report)
        if runs:
            if known.attempts and known.attempted.seconds() >= min(MAX_RETRY_SECONDS, 2.0**known.attempts):
                self._tell(known)
            return
        if not is_locked(known.folder):
            yield from self._holding(known, Holds(name, order.serial, ()))
        if order.kind is OrderKind.RUN and known.incarnation == order.incarnation:
            yield from _once(known, Died(name, order.incarnation, self._last_words(known, report)))
        elif order.kind is OrderKind.RUN:
            # this controller has not started one: an earlier controller died before it could
            self._tell(known)
        elif order.kind is OrderKind.DRAIN:
            # uncommitted input is read again: this is as drained as it gets
            yield from _once(known, Drained(name, order.incarnation))
        elif order.kind is OrderKind.END:
            yield from _once(known, DriverEnded(name))

    def _reported(self, known: _Followed, report: DriverReport) -> Iterator[Observation]:
        order, name = known.order, known.order.pipeline
        if report.state is DriverState.RUNNING:
            yield from _once(known, Started(name, order.incarnation))
            held = held_of(order.slots, report.nodes) if report.serial == order.serial else None
            if held is not None:
                yield from self._holding(known, Holds(name, order.serial, held))
                if report.first_tuple == order.serial and len(held) == len(order.slots):
                    yield from _once(known, FirstTuple(name, order.serial))
        if report.at != known.read_at:
            known.read_at = report.at
            if report.readings:
                parts = tuple(
                    PartReading(
                        part.operator, None if part.slot is None else Slot(*part.slot), part.values, part.partition
                    )
                    for part in report.parts
                )
                yield Readings(name, {**used_by(parts), **report.readings}, report.shares, parts)

    @staticmethod
    def _holding(known: _Followed, holds: Holds) -> Iterator[Observation]:
        if holds != known.told_holds:
            known.told_holds = holds
            yield holds

    def _last_words(self, known: _Followed, report: DriverReport | None) -> str:
        if known.failure:
            return known.failure
        if report is not None and report.incarnation == known.order.incarnation:
            if report.why and report.state is not DriverState.RUNNING:
                return report.why
            if report.state is DriverState.ENDED:
                return "its input ended"
        lines = self.log_of(known.order.pipeline).strip().splitlines()
        return lines[-1] if lines else "its process is gone"

    def log_of(self, pipeline: str) -> str:
        """The newest of what its drivers printed."""
        path = folder_of(self._base, pipeline) / LOG
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            return file.read().decode("utf-8", errors="replace")

    def close(self) -> None:
        """Drivers flow on without us."""


def used_by(parts: Sequence[PartReading]) -> dict[str, float]:
    """CPU and memory of all its slots together; nothing of those that no slot says."""
    of_slots = [part.values for part in parts if part.operator is None and part.slot is not None]
    return {
        str(metric): sum(values[metric] for values in of_slots)
        for metric in (Metric.CPU, Metric.MEMORY_MB)
        if of_slots and all(metric in values for values in of_slots)
    }


def config_of(order: PipelineOrder, settings: Mapping[str, str]) -> RunConfig:
    """Return the options of a run: those submitted, with a load and a batch interval for its target."""
    submitted = read_options(dict(order.submission.options or {}), "options", warn=False)
    target = order.submission.target
    engine = order.submission.engine if order.plan is None else order.plan.engine
    return RunConfig(
        **{
            "batch_interval_ms": batch_interval_ms(target.latency_ms),
            **submitted,
            "engine": PLACED if engine is EngineName.PLACED else FUSED,
            "rate": order.load or (None if target.rate is None else f"{target.rate:g}"),
            "settings": {**settings, **submitted.get("settings", {})},
        }
    )


def batch_interval_ms(latency_ms: float | None) -> int:
    """Between two batches of a fused pipeline: min(500, max(100, latency / 4)).

    A tuple waits for the next batch and then for the whole of it. A batch costs its cluster some 150 ms of CPU whatever
    it holds: begun one behind the other, two pipelines with next to nothing to do take two cores from everybody else.
    """
    return LONGEST_INTERVAL_MS if latency_ms is None else round(min(LONGEST_INTERVAL_MS, max(100.0, latency_ms / 4)))


def held_of(ordered: Sequence[Slot], nodes: Mapping[str, int]) -> tuple[Slot, ...] | None:
    """The ordered slots executors are on; None while there are executors elsewhere, which still have to go."""
    left = dict(nodes)
    held = []
    for slot in ordered:
        if left.get(slot.node, 0):
            left[slot.node] -= 1
            held.append(slot)
    return None if any(left.values()) else tuple(held)


def end_drivers(base: Path) -> None:
    """All drivers of a folder, whichever controller started them; what they committed stays."""
    for folder in base.iterdir() if base.is_dir() else ():
        own = driver_in(folder)
        if own is not None:
            end(tree(own))


def _once(known: _Followed, observation: Observation) -> Iterator[Observation]:
    if observation not in known.passed_on:
        known.passed_on.add(observation)
        yield observation
