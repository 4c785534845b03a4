"""The fused engine: a run is one Structured Streaming query; every slot runs the whole pipeline on its share of rows.

A pause drains the query and, unless its executors are kept, ends its Spark session. To resume is to start the query
again from Spark's checkpoint.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.errors import BadInputError, PenstockError, Refusal, RefusedError, RunError
from penstock.base.files import temporary_folder
from penstock.base.text import is_whole
from penstock.connectors.topic_address import absolute_place
from penstock.dataflow.load import Load
from penstock.engines.fused.preparation import (
    FusedJob,
    batch_hearer,
    check_ends,
    describe_run,
    describe_slots,
    is_own_checkpoint,
    name_to_resume_by,
    own_checkpoint,
    prepare,
    prepare_as_before,
    resumed_config,
    spec_of,
)
from penstock.engines.fused.rate_trials import search_highest
from penstock.inputs.finders import runnable
from penstock.planning.prediction.fused import most_work_seconds
from penstock.runs.environment import local_by_default, services_of, spark_session, with_executor_memory
from penstock.runs.folder import is_unnamed, new_run_folder
from penstock.runs.states import OVER, RunState, move

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.fused.run import FusedRun
    from penstock.inputs.finders import RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.report.result import RunResult
    from penstock.runs.config import RunConfig
    from penstock.runs.environment import RunSession
    from penstock.runs.folder import RunFolder
    from penstock.runs.states import StateHistory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FusedPrepared:
    """A job, and how to find its pipeline again."""

    job: FusedJob
    listener: Listener
    given: str | None
    """Name of the pipeline or plan, by which the run is resumed."""
    plan: SavedPlan | None
    places: Mapping[Slot, ExecutorSize] | None = None

    @property
    def pipeline(self) -> Pipeline:
        return self.job.pipeline


@dataclass(frozen=True)
class FusedEngine:
    name: ClassVar[str] = "fused"
    places_operators: ClassVar[bool] = False

    def prepare(
        self,
        config: RunConfig,
        pipeline: RunnableLike,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> FusedPrepared:
        if given is not None:
            raise BadInputError("given=: not an option of engine 'fused': give the pipeline itself")
        config = config.for_engine(self.name)
        if config.dead_letters is not None:
            config = replace(config, dead_letters=absolute_place(config.dead_letters))
        if places is not None:
            config = replace(config, slots=len(places))
        job = prepare(pipeline, config)
        check_ends(job.pipeline, until_end=config.until_end, local_by_default=local_by_default(config))
        return FusedPrepared(job, listener, name_to_resume_by(pipeline), runnable(pipeline)[1], places)

    def prepare_again(
        self,
        folder: RunFolder,
        config: RunConfig,
        plan: RunnableLike | None,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        before: FusedPrepared | None = None,
    ) -> FusedPrepared:
        known, places = folder.description, None
        if before is not None:
            own, places = before.job.config, before.places
            kept = replace(
                known.config, session=own.session, settings=own.settings, secret_file=own.secret_file, models=own.models
            )
            known = known.model_copy(update={"config": kept})
        resumed = resumed_config(known, folder, config, has_plan=plan is not None)
        if plan is not None:
            return self.prepare(resumed, plan, listener, places=places)
        if before is None:
            job = prepare_as_before(known, folder, given, resumed)
            saved = None if known.given is None else runnable(known.given)[1]
            return FusedPrepared(job, listener, known.given, saved)
        is_same = resumed.slots == before.job.slots and config.models is None
        if is_same:
            job = replace(before.job, config=resumed)
        else:
            job = prepare_as_before(known, folder, before.pipeline, resumed)
        return replace(before, job=job, listener=listener)

    def default_folder(self, pipeline: str) -> Path:
        return new_run_folder(pipeline)

    def start(self, prepared: FusedPrepared, folder: RunFolder, history: StateHistory) -> FusedEngineRun:
        folder.take()
        describe_run(prepared.job, folder, _checkpoint(prepared.job.config, folder), prepared.given)
        return FusedEngineRun(prepared, folder, history)

    def find_highest_rate(self, prepared: FusedPrepared, folder: RunFolder, listener: Listener) -> RunResult:
        """Run the trials in a folder of their own: a trial is not resumed."""
        with temporary_folder("search") as scratch:
            return search_highest(prepared.job, listener, scratch)

    def has_begun(self, folder: RunFolder) -> bool:
        """Whether it began a batch: sinks may hold some of it. A checkpoint elsewhere may have one."""
        if not folder.has_run:
            return False
        if not is_own_checkpoint(folder, folder.description.config.checkpoint):
            return True
        return any(is_whole(name) for name in folder.names("checkpoint/offsets"))


def _checkpoint(config: RunConfig, folder: RunFolder) -> str:
    return config.checkpoint or own_checkpoint(folder, local_by_default=local_by_default(config))


class FusedEngineRun:
    """One run, over all queries that it has between pauses."""

    def __init__(self, prepared: FusedPrepared, folder: RunFolder, history: StateHistory) -> None:
        self.history = history
        self._prepared, self._folder = prepared, folder
        self._listener = prepared.listener
        self._opened = ExitStack()
        """Services and the Spark session."""
        self._started: RunSession | None = None
        self._keeps_session = False
        self._woken = threading.Event()
        """Set when a paused run is resumed or ends."""
        self._changing = threading.Lock()
        """Held by one request at a time that replaces the query."""
        self._query: FusedRun
        self._failure: BaseException | None = None
        try:
            self._begin()
        except BaseException:
            self._opened.close()
            raise

    @property
    def _job(self) -> FusedJob:
        return self._prepared.job

    def _session(self) -> RunSession:
        if self._started is None:
            job = self._job
            self._environment = self._opened.enter_context(services_of(job.pipeline, self._listener))
            self._started = self._opened.enter_context(
                spark_session(
                    with_executor_memory(job.config, job.slot_memory_mb),
                    job.slots,
                    self._folder.working_folder / "java.log",
                    f"penstock-{self._folder.description.run}",
                    self._listener,
                    self._prepared.places,
                )
            )
        return self._started

    def _begin(self) -> None:
        """Start the query, in the session there is or in a new one."""
        from penstock.engines.fused.run import FusedRun, Hooks  # noqa: PLC0415 - Spark loads only when it is used
        from penstock.spark.internals.checkpoint import partitions_of  # noqa: PLC0415

        started, job = self._session(), self._job
        spec = spec_of(
            job,
            job.config,
            self._folder.description.run,
            self._folder.working_folder,
            _checkpoint(job.config, self._folder),
            is_kept=not (self._folder.is_local and is_unnamed(self._folder.path)),
        )
        spec = replace(spec, environment=self._environment, save_files=self._folder.save_files)
        if job.setup is not None and job.setup.sparks_own:
            job = replace(job, setup=replace(job.setup, partitions=partitions_of(started.session, spec.checkpoint)))
            self._prepared = replace(self._prepared, job=job)
        hear, self._figures = batch_hearer(self._listener, spec.load, job.config.run_seconds)
        hooks = Hooks(hear, self._listener.on_tuple, self._listener.on_message)
        self._load = spec.load
        self._query = FusedRun(started.session, spec, hooks, self.history, started.executors)
        self._query.start(self._close_session)

    def _close_session(self) -> None:
        """End the Spark session when its query has ended, unless a pause keeps it."""
        if self._keeps_session and self.history.state is RunState.PAUSED:
            return
        self._started = None
        self._opened.close()

    # Requests.

    def stop(self) -> None:
        self._end(lambda query: query.stop())

    def kill(self) -> None:
        self._end(lambda query: query.kill())

    def _end(self, end: Any) -> None:
        if self.history.state is not RunState.PAUSED:
            end(self._query)
            return
        with self._changing:
            move(self.history, RunState.STOPPED)
            self._close_session()
            self._woken.set()

    def pause(self, *, keep_executors: bool = False) -> None:
        with self._changing:
            self._pause(keep_executors=keep_executors)

    def _pause(self, *, keep_executors: bool) -> None:
        self._keeps_session = keep_executors
        self._woken.clear()
        self._query.stop(RunState.PAUSED)
        self._query.await_end()
        if self.history.state is not RunState.PAUSED:
            raise RunError("the run came to its end before it was paused")

    def resume(self, plan: RunnableLike | None = None, slots: int | None = None) -> None:
        with self._changing:
            self._resume(plan, slots)

    def _resume(self, plan: RunnableLike | None, slots: int | None) -> None:
        self._prepared = self._changed(plan, slots)
        wanted, before = self._job.slots, self._query.slots
        move(self.history, RunState.STARTING)
        try:
            if self._started is not None and wanted != before:
                if self._started.executors is not None:
                    self._started.executors.change_to(wanted, places=self._prepared.places)
                elif self._has_own_session:
                    self._close_session()
            describe_run(self._job, self._folder, _checkpoint(self._job.config, self._folder), self._prepared.given)
            self._begin()
        except BaseException as error:
            self._failure = error
            move(self.history, RunState.FAILED)
            with suppress(PenstockError):  # the first failure is raised
                self._close_session()
            raise
        finally:
            self._woken.set()

    @property
    def _has_own_session(self) -> bool:
        return self._job.config.session is None

    def _changed(self, plan: RunnableLike | None, slots: int | None) -> FusedPrepared:
        """Return the same run by another plan, or with as many threads in each of other slots."""
        prepared, job = self._prepared, self._job
        if plan is None and slots in {None, job.slots} and self._query.slots == job.slots:
            return prepared
        config = replace(job.config, rate=self._load, slots=slots or (self._query.slots if plan is None else None))
        changed = prepare(
            job.pipeline if plan is None else plan,
            config,
            threads=replace(job, slots=self._query.slots).all_threads if plan is None else None,
        )
        if changed.pipeline.name != job.pipeline.name:
            raise BadInputError(f"plan=: a plan of '{changed.pipeline.name}', not of '{job.pipeline.name}'")
        if plan is None:
            return replace(prepared, job=changed)
        return replace(prepared, job=changed, given=name_to_resume_by(plan), plan=runnable(plan)[1])

    def rescale(
        self,
        slots: int | None = None,
        plan: RunnableLike | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> None:
        """Add or release executors while the query runs. For another plan, or in an embedded session, the query is
        started again from its last commit."""
        wanted = len(places) if places is not None else slots
        with self._changing:
            has_executors = self._started is not None and self._started.executors is not None
            if plan is None and wanted is not None and has_executors:
                self._query.rescale(wanted, places)
                self._prepared = replace(self._prepared, places=places)
                try:
                    describe_slots(self._folder, wanted)
                except (OSError, BadInputError) as error:  # a full disk does not undo the change
                    log.warning("%s: its slots could not be written: %s", self._folder.place, error)
                return
            if plan is None and not self._has_own_session:
                reason = "its slots are those of its Spark session; stop it, and resume it with others"
                raise RefusedError(Refusal(f"run '{self._folder.description.run}'", (), notes=(reason,)))
            self._changed(plan, wanted)  # an error leaves the run unchanged
            self._pause(keep_executors=True)
            self._resume(plan, wanted)

    def wait(self, timeout: float | None = None) -> RunResult | None:
        while True:
            query = self._query
            report = query.await_end(timeout)
            if self._failure is not None:
                raise self._failure
            if report is None:
                return None
            if self.history.state in OVER and query is self._query:
                return self._result(report)
            self._woken.wait(timeout)
            if timeout is not None and self.history.state not in OVER:
                return None

    def _result(self, report: Report) -> RunResult:
        job, config = self._job, self._job.config
        offered = self._load or Load.constant(max(report.offered_rate, 1e-3))
        judged = replace(report, max_dead_letter_ratio=config.max_dead_letter_ratio)
        return job.result(judged, offered, flat_out=config.until_end and self._load is None)

    # Observations.

    @property
    def plan(self) -> SavedPlan | None:
        return self._prepared.plan

    @property
    def slots(self) -> int:
        return self._query.slots

    @property
    def progress(self) -> Figures | None:
        return self._figures()

    @property
    def details(self) -> Mapping[str, Any]:
        return self._query.details

    @property
    def nodes(self) -> Mapping[str, int]:
        return self._query.nodes or {}

    @property
    def last_batch(self) -> float | None:
        return self._query.last_batch

    @property
    def idle_seconds(self) -> float:
        return self._query.idle_seconds

    @property
    def is_source_away(self) -> bool:
        from penstock.engines.fused.sources.topic_notices import is_source_away  # noqa: PLC0415 - beside Spark

        return is_source_away(self._folder.working_folder)

    @property
    def pause_seconds(self) -> float | None:
        return self._query.pause_seconds

    @property
    def max_work_seconds(self) -> float:
        return most_work_seconds(self._job.interval_seconds)

    def threads_on(self, operator: str, slot: str) -> int:
        return self._job.threads.get(operator, 0)

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        self._query.watch(fields)

    @property
    def shares(self) -> Mapping[int, float]:
        return self._query.shares
