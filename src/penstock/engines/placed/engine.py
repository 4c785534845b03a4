"""The placed engine: operators are long-running Spark tasks on the slots a plan names, with epochs as commits.

A pause holds the sources. Unless its executors are kept, the Spark application then ends; to resume is to start another
from the last epoch.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.clock import stamp
from penstock.base.errors import BadInputError, PenstockError, RunError
from penstock.base.files import write_text
from penstock.cluster.contract import AppRequest, Purpose
from penstock.dataflow.load import Load
from penstock.engines.placed.preparation import PlacedJob, check_nodes, prepare_placed
from penstock.engines.placed.run_control import RunControl
from penstock.inputs.finders import logic_of, runnable
from penstock.modelling.library import doubts_about
from penstock.modelling.machine import this_machine
from penstock.report.result import TriedRate
from penstock.runs.config import RunConfig
from penstock.runs.environment import cluster_of, services_of
from penstock.runs.folder import RunFolder, is_run
from penstock.runs.foreground import await_with_interrupts
from penstock.runs.run import Run
from penstock.runs.states import OVER, RunState, move
from penstock.spark.internals.settings import daemon_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.connectors.commit import Commit
    from penstock.dataflow.pipeline import Pipeline
    from penstock.engines.placed.application import PlacedApplication
    from penstock.inputs.finders import RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.report.report import Report
    from penstock.report.result import PlacedResult
    from penstock.runs.states import StateHistory

OVERLOAD = 2.0
"""Times the rate that the plan's slots support: more than can be done."""
OTHER_PLAN = "other-plan.json"
"""File in the run's folder for a plan that is not a file."""

_SETTINGS = {
    # the conductor decides what happens to a bundle that failed, and on which slot
    "spark.task.maxFailures": "1",
    **daemon_settings("penstock.engines.placed.bundle.worker_daemon"),
}


@dataclass(frozen=True)
class PlacedPrepared:
    """A job, whether it continues the run in its folder, and the plan it changes to as soon as rows flow."""

    job: PlacedJob
    listener: Listener
    continues: bool = False
    onto: RunnableLike | None = None
    share: Mapping[Slot, ExecutorSize] | None = None
    """Executors that a controller ordered: those the run leaves are released."""

    @property
    def pipeline(self) -> Pipeline:
        return self.job.pipeline

    @property
    def plan(self) -> SavedPlan:
        return self.job.plan


@dataclass(frozen=True)
class PlacedEngine:
    name: ClassVar[str] = "placed"
    places_operators: ClassVar[bool] = True

    def prepare(
        self,
        config: RunConfig,
        pipeline: RunnableLike,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> PlacedPrepared:
        before = None if config.folder is None or not is_run(config.folder) else RunFolder(config.folder)
        if before is not None and places is None:
            return self.prepare_again(before, config, pipeline, listener, given=given)
        # on its share a run continues at once by the plan for that share: others may have its former slots
        continues = before is not None and before.checkpoint.last() is not None
        job = replace(prepare_placed(pipeline, config, given), sizes=dict(places or {}))
        return PlacedPrepared(job, listener, continues, share=places)

    def prepare_again(
        self,
        folder: RunFolder,
        config: RunConfig,
        plan: RunnableLike | None,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        before: PlacedPrepared | None = None,
    ) -> PlacedPrepared:
        known = folder.description
        if known.engine != self.name:
            raise BadInputError(f"{folder.place}: a {known.engine} run, not a placed one")
        if config.slots is not None:
            raise BadInputError("slots=: of a placed run rescale them once it runs, or resume it by another plan")
        current, segments = folder.plan()
        kept = known.config
        if before is not None:
            given, own = given or before.job.given, before.job.config
            kept = replace(
                kept, session=own.session, settings=own.settings, secret_file=own.secret_file, models=own.models
            )
        resumed = replace(kept.resumed_with(config), folder=folder.place)
        share = None if before is None else before.share
        job = replace(prepare_placed(current, resumed, given, segments), sizes=dict(share or {}))
        return PlacedPrepared(job, listener, True, _other(plan, current), share)

    def default_folder(self, pipeline: str) -> Path:
        return fresh_folder(pipeline)

    def start(self, prepared: PlacedPrepared, folder: RunFolder, history: StateHistory) -> PlacedEngineRun:
        return PlacedEngineRun(prepared, folder, history)

    def find_highest_rate(self, prepared: PlacedPrepared, folder: RunFolder, listener: Listener) -> PlacedResult:
        """Run the trials on executors that they share."""
        job = prepared.job
        with placed_session(job.pipeline.name, job.config) as session:
            shared = replace(prepared, job=replace(job, config=replace(job.config, session=session)))
            return self._searched(shared, folder, listener)

    def _searched(self, prepared: PlacedPrepared, folder: RunFolder, listener: Listener) -> PlacedResult:
        from penstock.engines.rate_search import MORE_THAN_ANY, find_highest_rate  # noqa: PLC0415 - loads Spark

        results: list[PlacedResult] = []
        job = prepared.job
        too_much = OVERLOAD * (job.slots_rate() or 0.0)
        low, high = job.config.low, job.config.high
        if high is None and not too_much:
            raise BadInputError("find_max=: the plan predicts no rate to start from; give high=")

        def offer(rate: float) -> Report:
            load = Load.constant(too_much if rate == MORE_THAN_ANY else rate)
            listener.on_message(f"trial {len(results) + 1}: offering {load.mean_rate:,.4g} rows/s")
            trial = replace(prepared, job=replace(job, load=load))
            place = RunFolder(f"{folder.place}/trial-{len(results) + 1}")
            results.append(await_with_interrupts(Run(self, trial, place, listener)))
            return results[-1].report

        searched = find_highest_rate(offer, lambda: bool(results) and results[-1].interrupted, low, high)
        shown = searched.trials.index(searched.best) if searched.best else -1
        tried = tuple(TriedRate(it.rate, it.stable, it.report.sustained_rate, it.saturated) for it in searched.trials)
        return replace(
            results[shown],
            searched=True,
            highest_rate=searched.best.rate if searched.best else None,
            tried=tried,
            interrupted=results[-1].interrupted,
        )

    def has_begun(self, folder: RunFolder) -> bool:
        return folder.checkpoint.last() is not None


def _other(plan: RunnableLike | None, current: SavedPlan) -> RunnableLike | None:
    """The plan if it is another than the run has."""
    if plan is None:
        return None
    _, saved = runnable(plan)
    if saved is None:
        raise BadInputError("placed execution needs a plan, not a pipeline: make one with `plan`")
    return None if saved == current else plan


class PlacedEngineRun:
    """One run, over all Spark applications that it has between pauses. Conducted by a thread of its own."""

    idle_seconds = 0.0
    is_source_away = False
    max_work_seconds = None

    def __init__(self, prepared: PlacedPrepared, folder: RunFolder, history: StateHistory) -> None:
        self.history = history
        self._prepared, self._folder = prepared, folder
        self._control = RunControl(history)
        self._result: PlacedResult | None = None
        self._error: BaseException | None = None
        self._releases = False
        """A pause ends the application, so that its executors are released."""
        self._woken = threading.Condition()
        self._plan = prepared.plan
        self._application = _application(prepared, folder, self._control)
        self._commit = self._application.taken(continues=prepared.continues)
        self._thread = threading.Thread(target=self._conduct, daemon=True, name=f"placed run in {folder.place}")
        self._thread.start()

    def _conduct(self) -> None:
        try:
            onto = None if self._prepared.onto is None else self._file_of(self._prepared.onto)
            continues = self._prepared.continues
            while True:
                self._result = _conducted(self._application, self._commit, onto, continues=continues)
                if not self._releases or self._control.at_once:
                    break
                self._control.to(RunState.PAUSED)
                with self._woken:
                    self._woken.notify_all()
                    self._woken.wait_for(lambda: self.history.state is not RunState.PAUSED)
                    if self.history.state in OVER:
                        break
                    self._releases, onto, continues = False, self._onto, True
                self._commit = self._folder.checkpoint.last() or self._commit
                current, segments = self._folder.plan()
                job = prepare_placed(current, self._prepared.job.config, self._prepared.job.given, segments)
                job = replace(job, sizes=dict(self._prepared.share or {}))
                self._prepared = replace(self._prepared, job=job)
                self._application = _application(self._prepared, self._folder, self._control)
            self._control.end(RunState.STOPPED)
        except BaseException as error:  # raised by `wait`
            self._error = error
            self._control.end(RunState.FAILED)
        with self._woken:
            self._woken.notify_all()

    # Requests.

    def stop(self) -> None:
        with self._woken:
            if self._is_released:
                self._control.to(RunState.STOPPED)
                self._woken.notify_all()
                return
            self._releases = False
        with suppress(RunError):  # it may be ending already
            self._control.ask("stop")

    def kill(self) -> None:
        self._control.at_once = True
        with self._woken:
            if self._is_released:
                self._control.to(RunState.STOPPED)
                self._woken.notify_all()

    @property
    def _is_released(self) -> bool:
        return self._releases and self.history.state is RunState.PAUSED

    def pause(self, *, keep_executors: bool = False) -> None:
        if keep_executors:
            self._control.ask("pause").result()
            return
        self._releases = True
        try:
            self._control.ask("stop").result()
        except BaseException:
            self._releases = False
            raise
        with self._woken:
            self._woken.wait_for(lambda: self.history.state in OVER | {RunState.PAUSED})
        if self.history.state is not RunState.PAUSED:
            raise RunError("the run came to its end before it was paused")

    def resume(self, plan: RunnableLike | None = None, slots: int | None = None) -> None:
        if slots is not None:
            self._resume(plan)
            self.rescale(slots)
        else:
            self._resume(plan)

    def _resume(self, plan: RunnableLike | None) -> None:
        file = None if plan is None else self._file_of(plan)
        if not self._is_released:
            self._control.ask("resume" if file is None else "change", file).result()
            self._changed(plan)
            return
        with self._woken:
            self._onto = file
            move(self.history, RunState.STARTING)
            self._woken.notify_all()
        self._await_flow()
        self._changed(plan)

    def _await_flow(self) -> None:
        while self.history.state is RunState.STARTING:
            if self.wait(0.05) is not None:
                return

    def rescale(
        self,
        slots: int | None = None,
        plan: RunnableLike | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> None:
        if plan is not None:
            self._control.ask("change", self._file_of(plan), places=places).result()
            self._changed(plan)
        else:
            self._control.ask("rescale", slots=slots if places is None else len(places)).result()
            self._plan = self._folder.plan()[0]
        if places is not None:
            self._prepared = replace(self._prepared, share=places)

    def _changed(self, plan: RunnableLike | None) -> None:
        if plan is not None:
            self._plan = runnable(plan)[1] or self._plan

    def _file_of(self, plan: RunnableLike) -> Path:
        """A plan as a file, which the run reads."""
        if isinstance(plan, str | Path):
            return Path(plan).absolute()
        saved = runnable(plan)[1]
        if saved is None:
            raise BadInputError("plan=: expected a plan, found a pipeline; make one with `plan`")
        file = self._folder.path / OTHER_PLAN
        write_text(file, saved.model_dump_json() + "\n")
        return file

    def wait(self, timeout: float | None = None) -> PlacedResult | None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._result

    # Observations.

    @property
    def plan(self) -> SavedPlan:
        return self._plan

    @property
    def slots(self) -> int:
        return len(self._control.places)

    @property
    def places(self) -> frozenset[Slot]:
        return self._control.places

    @property
    def progress(self) -> Figures | None:
        return self._control.figures

    @property
    def details(self) -> Mapping[str, Any]:
        last = None
        with suppress(PenstockError, OSError):  # a commit that cannot be read is reported by the run itself
            last = self._folder.checkpoint.last()
        epoch = {} if last is None else {"epoch": last.epoch, "generation": last.generation}
        return {"slots": self.slots, **epoch, "resumable": True}

    @property
    def nodes(self) -> Mapping[str, int]:
        """Slots on each node: those in use, and those of its share that its plan leaves empty."""
        held: dict[str, int] = {}
        if self.history.state is RunState.RUNNING:
            for slot in sorted(self._control.places | set(self._prepared.share or ())):
                held[slot.node] = held.get(slot.node, 0) + 1
        return held

    @property
    def pause_seconds(self) -> float | None:
        return self._control.pause_seconds

    @property
    def last_batch(self) -> float | None:
        return self._control.last_tuple

    def threads_on(self, operator: str, slot: str) -> int:
        """Threads by the plan; a refuge from it may have others."""
        by_slot = {str(where): threads for where, threads in self._plan.threads_by_slot().items()}
        return by_slot.get(slot, {}).get(operator, 0)

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        self._control.watched = dict(fields)

    @property
    def shares(self) -> Mapping[int, float]:
        return {number: share for number, share in self._control.shares.items() if number in self._control.watched}


def _application(prepared: PlacedPrepared, folder: RunFolder, control: RunControl) -> PlacedApplication:
    from penstock.engines.placed.application import PlacedApplication  # noqa: PLC0415 - psutil belongs to the extra

    job, listener = prepared.job, prepared.listener
    manager = cluster_of(job.config)
    known = manager.topology() if manager.pins else None
    if known is not None:
        check_nodes(job, known)
    for warning in doubts_about(job.pipeline, job.demands, here=this_machine(), code=logic_of(job.pipeline)):
        listener.on_message(warning)
    return PlacedApplication(job, folder, manager, control, listener, is_led=prepared.share is not None)


def _conducted(application: PlacedApplication, commit: Commit, onto: Path | None, *, continues: bool) -> PlacedResult:
    """Run with services and a session, which end with it."""
    job, config = application.job, application.job.config
    with services_of(job.pipeline, application.listener) as environment:
        application.find_slots(continues=continues)
        if config.session is not None:
            return application.run(config.session, commit, environment, onto)
        settings = {**_SETTINGS, **_packages(config), **config.settings}
        with cluster_of(config).session(AppRequest(job.pipeline.name, Purpose.PLACED, settings=settings)) as app:
            return application.run(app.spark, commit, environment, onto)


def _packages(config: RunConfig) -> dict[str, str]:
    return {"spark.jars.packages": ",".join(config.packages)} if config.packages else {}


@contextmanager
def placed_session(name: str, config: RunConfig | None = None) -> Iterator[Any]:
    """A session that several placed runs use, one after the other: they find its executors warm."""
    with cluster_of(config or RunConfig()).session(AppRequest(name, Purpose.PLACED, settings=_SETTINGS)) as app:
        yield app.spark


def fresh_folder(pipeline: str) -> Path:
    """A new folder below the working directory: runs/NAME-TIME."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in pipeline)
    return Path("runs") / f"{safe}-{stamp()}"
