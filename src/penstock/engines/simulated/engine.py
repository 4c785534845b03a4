"""The simulated engine: a plan runs batch by batch in simulated time, behind the same contract as on Spark.

Its sink is the file `delivered.csv` in the run's folder: one line for each batch, written when the batch commits. The
last whole line is the position from which the run is resumed.
"""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.clock import Stopwatch, now, stamp
from penstock.base.errors import BadInputError
from penstock.base.files import read_text
from penstock.dataflow.builder import PipelineBuilder
from penstock.dataflow.pipeline import Pipeline, flows
from penstock.engines.simulated.fused import fused_result, setup_of
from penstock.engines.simulated.preparation import planned_job
from penstock.planning.files import parse_plan
from penstock.report.figures import RecentBatches
from penstock.runs.description import RunDescription
from penstock.runs.folder import new_run_folder
from penstock.runs.states import RunState, move
from penstock.simulation.fused_run import next_start, sent_per_tuple, simulate_batch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.engines.simulated.preparation import PlannedJob
    from penstock.inputs.finders import RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.planning.plan import Plan
    from penstock.planning.prediction.fused import FusedSetup
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.report.report import BatchObservation
    from penstock.report.simulated_result import SimulatedResult
    from penstock.runs.config import RunConfig
    from penstock.runs.folder import RunFolder
    from penstock.runs.states import StateHistory

DELIVERED = "delivered.csv"
TURN_SECONDS = 0.02
"""Seconds between two looks of the simulation at the clock."""
KEPT_BATCHES = 20_000
SEED = 0


@dataclass(frozen=True)
class SimulatedRunJob:
    """A plan ready to run in simulated time."""

    job: PlannedJob
    config: RunConfig
    listener: Listener

    @property
    def slots(self) -> int:
        return self.config.slots or max(1, self.job.saved.slots.used)

    @property
    def pipeline(self) -> Pipeline:
        return self.job.pipeline

    @property
    def plan(self) -> SavedPlan:
        return self.job.saved

    @property
    def setup(self) -> FusedSetup:
        return setup_of(self.job, self.slots, None, None, self.config.batch_interval_ms)

    def changed(self, plan: RunnableLike | None, slots: int | None) -> SimulatedRunJob:
        """The same run by another plan, or with other slots."""
        if plan is None:
            return replace(self, config=replace(self.config, slots=slots or self.slots))
        job = planned_job(_as_plan(plan), self.job.load, self.config.models, self.job.routing)
        if set(job.pipeline.operators) != set(self.pipeline.operators):
            raise BadInputError(f"{job.where}: a plan for other operators than those of '{self.pipeline.name}'")
        return replace(self, job=job, config=replace(self.config, slots=slots))


@dataclass(frozen=True)
class Position:
    """Batches and rows that are committed, and the simulated time of the last commit."""

    batches: int = 0
    rows: int = 0
    clock: float = 0.0


@dataclass(frozen=True)
class SimulatedEngine:
    """Simulated seconds pass `speed` times as fast as real ones."""

    name: ClassVar[str] = "simulated"
    places_operators: ClassVar[bool] = True
    speed: float = 1.0

    def prepare(
        self,
        config: RunConfig,
        pipeline: RunnableLike,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> SimulatedRunJob:
        config = config.for_engine(self.name)
        if places is not None:
            config = replace(config, slots=len(places))
        if given is not None:
            raise BadInputError("given=: simulated runs run no code; leave it out")
        job = planned_job(_as_plan(pipeline), config.load, config.models, config.routing)
        made = SimulatedRunJob(job, config, listener)
        _ = made.setup  # an operator without a model is refused here
        return made

    def prepare_again(
        self,
        folder: RunFolder,
        config: RunConfig,
        plan: RunnableLike | None,
        listener: Listener,
        *,
        given: Pipeline | None = None,
        before: Any = None,
    ) -> SimulatedRunJob:
        known = folder.description
        saved = parse_plan(known.definition, f"{folder.place}/run.json")
        kept = replace(
            known.config,
            seconds=config.seconds,
            warm_up=config.warm_up,
            models=config.models or (before and before.config.models),
        )
        again = SimulatedRunJob(planned_job(saved, kept.load, kept.models, kept.routing), kept, listener)
        return again.changed(plan, config.slots)

    def default_folder(self, pipeline: str) -> Path:
        return new_run_folder(pipeline)

    def start(self, prepared: SimulatedRunJob, folder: RunFolder, history: StateHistory) -> SimulatedRun:
        folder.take()
        if folder.has_run:
            known = folder.description
            if known.pipeline != prepared.pipeline.name:
                raise BadInputError(f"{folder.place}: pipeline '{known.pipeline}' ran here")
            run = known.run
        else:
            run = f"{prepared.pipeline.name}-{stamp()}-{uuid.uuid4().hex[:6]}"
        folder.describe(description_of(prepared, run))
        return SimulatedRun(prepared, folder, history, self.speed)

    def find_highest_rate(self, prepared: SimulatedRunJob, folder: RunFolder, listener: Listener) -> Any:
        raise BadInputError("find_max=: not an option of engine 'simulated'; use `penstock simulate --find-max`")

    def has_begun(self, folder: RunFolder) -> bool:
        return position_after(folder.read_file(DELIVERED)).batches > 0


def _as_plan(given: RunnableLike) -> str | Path | Plan | SavedPlan:
    if isinstance(given, Pipeline | PipelineBuilder):
        raise BadInputError("a simulated run needs a plan, not a pipeline: make one with `plan`")
    return given


def description_of(prepared: SimulatedRunJob, run: str) -> RunDescription:
    return RunDescription(
        run=run,
        pipeline=prepared.pipeline.name,
        config=replace(prepared.config, rate=prepared.job.load, slots=prepared.slots),
        definition=prepared.plan.model_dump(mode="json"),
        started=stamp(),
    )


def position_after(text: str) -> Position:
    """Return the position after the last whole line; a line that was torn by a death never was."""
    lines = text.split("\n")[:-1]
    if not lines:
        return Position()
    batch, first, count, clock = lines[-1].split(",")
    return Position(int(batch) + 1, int(first) + int(count), float(clock))


class SimulatedRun:
    """One run in simulated time, in a thread of its own."""

    max_work_seconds = None
    pause_seconds = None
    is_source_away = False
    idle_seconds = 0.0

    def __init__(self, job: SimulatedRunJob, folder: RunFolder, history: StateHistory, speed: float) -> None:
        self.history = history
        self._job, self._folder, self._speed = job, folder, speed
        self._lock = threading.Condition()
        """Held while a batch commits and while a request changes the run."""
        self._wanted = RunState.RUNNING
        self._ended_by_itself = False
        self._error: BaseException | None = None
        self._file = folder.working_folder / DELIVERED
        self._position = self._recovered()
        self._began = self._position.clock
        self._setup = job.setup
        self._sends = self._sent()
        self._recent = RecentBatches(job.job.load, job.config.seconds)
        self._batches: list[BatchObservation] = []
        self._last: float | None = None
        self._thread = threading.Thread(target=self._conduct, name="penstock-simulated", daemon=True)
        self._thread.start()

    def _recovered(self) -> Position:
        """Remove a torn line from the sink, and return the position before it."""
        if not self._file.exists():
            return Position()
        text = read_text(self._file)
        os.truncate(self._file, len(text[: text.rfind("\n") + 1].encode()))
        return position_after(text)

    def _sent(self) -> dict[str, float]:
        pipeline = self._job.pipeline
        senders = [stream.sender for stream in pipeline.streams]
        return sent_per_tuple(list(self._setup.gains), senders, flows(pipeline))

    # Requests.

    def stop(self) -> None:
        self._want(RunState.STOPPED)

    def kill(self) -> None:
        self._want(RunState.STOPPED)

    def pause(self, *, keep_executors: bool = False) -> None:
        self._want(RunState.PAUSED)
        with self._lock:
            self._lock.wait_for(lambda: self.history.state is not RunState.DRAINING)

    def _want(self, state: RunState) -> None:
        with self._lock:
            self._wanted = state
            if self.history.state in {RunState.STARTING, RunState.RUNNING}:
                move(self.history, RunState.DRAINING)
            self._lock.notify_all()

    def resume(self, plan: RunnableLike | None = None, slots: int | None = None) -> None:
        with self._lock:
            self._change(self._job.changed(plan, slots))
            self._wanted = RunState.RUNNING
            move(self.history, RunState.STARTING)
            self._lock.notify_all()

    def rescale(
        self,
        slots: int | None = None,
        plan: RunnableLike | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> None:
        with self._lock:
            self._change(self._job.changed(plan, slots if places is None else len(places)))

    def _change(self, job: SimulatedRunJob) -> None:
        self._job, self._setup = job, job.setup
        self._sends = self._sent()
        self._folder.describe(description_of(job, self._folder.description.run))

    def wait(self, timeout: float | None = None) -> SimulatedResult | None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        seconds = self._position.clock - self._began
        job = self._job
        return fused_result(
            job.job,
            self._setup,
            self._batches,
            seconds,
            job.config.warm_up_seconds,
            SEED,
            job.config.batch_interval_ms / 1000,
        )

    # The thread.

    def _conduct(self) -> None:
        try:
            with self._file.open("a", encoding="ascii") as sink:
                self._simulate(sink)
        except BaseException as error:  # raised by `wait`
            self._error = error
            with self._lock:
                move(self.history, RunState.FAILED)
                self._lock.notify_all()

    def _simulate(self, sink: Any) -> None:
        began, clock = Stopwatch(), self._position.clock
        until = clock
        while True:
            with self._lock:
                if self.history.state is RunState.STARTING:
                    move(self.history, RunState.RUNNING)
                if self._wanted is RunState.PAUSED:
                    move(self.history, RunState.PAUSED)
                    self._lock.notify_all()
                    self._lock.wait_for(lambda: self._wanted is not RunState.PAUSED)
                    began, until = Stopwatch(), clock
                    continue
                if self._wanted is RunState.STOPPED or self._is_over():
                    self._ended_by_itself = self._wanted is RunState.RUNNING
                    move(self.history, RunState.STOPPED)
                    return
                clock = self._batches_before(until + self._speed * began.seconds(), clock, sink)
                self._folder.save_files()
                self._lock.wait(TURN_SECONDS)

    def _is_over(self) -> bool:
        seconds = self._job.config.seconds
        return seconds is not None and self._position.clock - self._began >= seconds

    def _batches_before(self, moment: float, clock: float, sink: Any) -> float:
        """Simulate and commit the batches that finish before `moment`; return when the next may begin."""
        load = self._job.job.load
        while clock < moment and not self._is_over():
            done = self._position
            waiting = load.due(clock) - done.rows
            if waiting <= 0:
                clock += self._job.config.batch_interval_ms / 1000
                continue
            count = min(waiting, self._setup.most_rows)
            due_times = load.due_seconds(done.rows, done.rows + count)
            batch = simulate_batch(self._setup, self._sends, due_times, waiting - count, clock)
            if batch.finished > moment:
                break
            sink.write(f"{done.batches},{done.rows},{count},{batch.finished}\n")
            sink.flush()
            self._position = Position(done.batches + 1, done.rows + count, batch.finished)
            self._batches = [*self._batches[1 - KEPT_BATCHES :], batch]
            self._recent.add(batch)
            self._last = now()
            clock = next_start(batch, clock, self._job.config.batch_interval_ms / 1000)
        return clock

    # Observations.

    @property
    def plan(self) -> SavedPlan:
        return self._job.plan

    @property
    def slots(self) -> int:
        return self._job.slots

    @property
    def progress(self) -> Figures | None:
        return self._recent.figures()

    @property
    def details(self) -> Mapping[str, Any]:
        done = self._position
        return {
            "slots": self.slots,
            "batches": done.batches,
            "tuples": done.rows,
            "resumable": not self._ended_by_itself,
        }

    @property
    def nodes(self) -> Mapping[str, int]:
        return {}

    @property
    def last_batch(self) -> float | None:
        return self._last

    def threads_on(self, operator: str, slot: str) -> int:
        return self._setup.threads.get(operator, 0)

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """Ignored: simulated rows have no fields."""

    @property
    def shares(self) -> Mapping[int, float]:
        return {}
