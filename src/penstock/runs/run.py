"""`Run`: the one handle of a run, whichever engine executes it. Shaped like Spark's `StreamingQuery`."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from penstock.base.clock import Stopwatch
from penstock.base.errors import BadInputError, nearest
from penstock.base.former_names import report_former_name
from penstock.runs.config import RunConfig
from penstock.runs.folder import note_elsewhere
from penstock.runs.states import LIVING, OVER, RunRequest, RunState, StateHistory, check_permitted, move

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.inputs.finders import RunnableLike
    from penstock.planning.files import SavedPlan
    from penstock.report.figures import Figures
    from penstock.report.listener import Listener
    from penstock.runs.engine import Engine, EngineRun, Prepared
    from penstock.runs.folder import FolderRequest, RunFolder

POLL_SECONDS = 0.1
"""Seconds between two looks at the requests in the run's folder."""
STATE_SECONDS = 1.0
"""Seconds between two writings of state.json while the state stays the same."""
RECENT = 100
"""Progress that is remembered."""

log = logging.getLogger(__name__)


class Run:
    """A run that this process conducts. It runs in threads of its own; every method may be called from any thread.

    | | |
    |---|---|
    | `id`, `name` | unique name of the run; name of its pipeline |
    | `status` | starting, running, draining, paused, stopped, failed (`RunState`) |
    | `last_progress`, `recent_progress` | `Figures` of the last seconds; those of the last minutes, oldest first |
    | `exception()` | the failure of a run that failed |
    | `await_termination(timeout)` | whether it has ended; raises its failure |
    | `stop()` | commit the rows in flight, end, and return the report |
    | `pause(keep_executors=False)` | commit the rows in flight, keep the position, wait for `resume` |
    | `resume(plan=None, slots=None)` | continue from the last commit: a paused, stopped or failed run |
    | `rescale(slots=None, plan=None)` | change slots or plan while it runs |
    | `kill()` | end at once |
    | `plan`, `slots`, `folder`, `report()` | |

    A request that the state forbids raises `BadInputError` with the state and the remedy. A change that is refused
    leaves the run as it was.
    """

    def __init__(
        self, engine: Engine, prepared: Prepared, folder: RunFolder, listener: Listener, *, own: bool = False
    ) -> None:
        """Start the run. `own`: the folder is unnamed, and is kept only if the run can be resumed."""
        self._engine, self._prepared, self._folder, self._own = engine, prepared, folder, own
        self._listener = listener
        self._history = StateHistory()
        self._recent: deque[Figures] = deque(maxlen=RECENT)
        self._writing = threading.Lock()
        """Held while state.json is written: an older state must not replace a newer one."""
        self._launch()

    def _launch(self) -> None:
        with ExitStack() as opened:
            self._folder.create()
            if self._own:
                opened.callback(self._tidy)
            opened.callback(self._folder.release)
            if self._folder.is_local:
                note_elsewhere(self._folder.path)
                opened.enter_context(_logged(self._folder.path / "log"))
            self.engine_run: EngineRun = self._started()
            if not self._folder.is_local and self._folder.working_folder.is_dir():
                opened.enter_context(_logged(self._folder.working_folder / "log"))
            self.id = self._folder.description.run
            self._opened = opened.pop_all()
        self._result: Any = None
        self._error: BaseException | None = None
        self._answering: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._conduct, name=f"penstock-run-{self.id}", daemon=True)
        self._thread.start()

    def _started(self) -> EngineRun:
        try:
            return self._engine.start(self._prepared, self._folder, self._history)
        except BaseException as error:
            if self.status is not RunState.FAILED:
                move(self._history, RunState.FAILED)
            if self._folder.is_taken and self._folder.has_run:
                self._folder.write_state(RunState.FAILED, reason=_first_line(error))
            raise

    def _tidy(self) -> None:
        """Remove an unnamed folder, unless the run can be resumed."""
        state, details = self._folder.state()
        over = state is RunState.STOPPED and not details.get("resumable")
        if over or not self._engine.has_begun(self._folder):
            self._folder.remove()

    # Identity and state.

    @property
    def name(self) -> str:
        return self._prepared.pipeline.name

    @property
    def folder(self) -> str | Path:
        """The folder of the run, or its URI."""
        return self._folder.path if self._folder.is_local else self._folder.place

    @property
    def engine(self) -> str:
        return self._engine.name

    @property
    def status(self) -> RunState:
        return self._history.state

    @property
    def plan(self) -> SavedPlan | None:
        return self.engine_run.plan

    @property
    def slots(self) -> int:
        return self.engine_run.slots

    @property
    def last_progress(self) -> Figures | None:
        return self.engine_run.progress

    @property
    def recent_progress(self) -> list[Figures]:
        return list(self._recent)

    def exception(self) -> BaseException | None:
        return self._error

    # Requests.

    def stop(self, timeout: float | None = None) -> Any:
        """Commit the rows in flight, end the run and return its report; None if that takes longer than
        `timeout` seconds."""
        if self.status not in OVER:
            self._do(RunRequest.STOP)
        return self.report() if self.await_termination(timeout) else None

    def kill(self) -> None:
        """End at once. Rows that were not committed are processed again on resume."""
        if self.status not in OVER:
            self._do(RunRequest.KILL)
        self._thread.join()

    def pause(self, *, keep_executors: bool = False) -> None:
        """Commit the rows in flight, and keep the position until `resume`."""
        self._do(RunRequest.PAUSE, keep_executors=keep_executors)

    def resume(self, plan: RunnableLike | None = None, *, slots: int | None = None, **options: Any) -> Run:
        """Continue from the last commit, by another plan or with other slots if given; `options` are those of
        `penstock.resume`. Returns this run."""
        if self.status is RunState.RUNNING and plan is not None:
            report_former_name("resume(plan) of a run that runs", "rescale(plan=plan)")
            self._do(RunRequest.RESCALE, plan=plan)
        elif self.status is RunState.PAUSED and not options:
            self._do(RunRequest.RESUME, plan=plan, slots=slots)
        else:
            self._start_again(plan, slots, options)
        return self

    def _start_again(self, plan: RunnableLike | None, slots: int | None, options: dict[str, Any]) -> None:
        if self.status in LIVING and self.status is not RunState.PAUSED:
            check_permitted(RunRequest.RESUME, self.status, self.id)
        if self.status is RunState.PAUSED:
            self.stop()
        self._thread.join()
        if not self._folder.has_run:
            raise BadInputError(f"run '{self.id}' came to its end: there is nothing to resume")
        own = {key: options.pop(key) for key in ("given",) if key in options}
        config = RunConfig.of_keywords({**options, "slots": slots})
        self._prepared = self._engine.prepare_again(
            self._folder, config, plan, self._listener, before=self._prepared, **own
        )
        move(self._history, RunState.STARTING)
        self._launch()

    def rescale(
        self,
        slots: int | None = None,
        *,
        plan: RunnableLike | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> float:
        """Change to that number of slots, to exactly the executors of `places`, or to another plan, while rows flow.
        Returns seconds."""
        return self._do(RunRequest.RESCALE, slots=slots, plan=plan, places=places)

    def _do(self, request: RunRequest, **arguments: Any) -> float:
        """Do one request, from Python or from the run's folder, and return the seconds it took."""
        check_permitted(request, self.status, self.id)
        if request is RunRequest.RESCALE:
            self._await_start()
            check_permitted(request, self.status, self.id)
        given = {name: value for name, value in arguments.items() if value is not None}
        took = Stopwatch()
        match request:
            case RunRequest.STOP:
                self.engine_run.stop()
            case RunRequest.KILL:
                self.engine_run.kill()
            case RunRequest.PAUSE:
                self.engine_run.pause(**given)
            case RunRequest.RESUME:
                self.engine_run.resume(**given)
            case RunRequest.RESCALE:
                if not given:
                    raise BadInputError("rescale: give slots= or plan=")
                if (asked := given.get("slots")) is not None and asked < 1:
                    raise BadInputError(f"slots=: expected at least 1, found {asked}")
                self.engine_run.rescale(**given)
        return took.seconds()

    # Its end.

    def await_termination(self, timeout: float | None = None) -> bool:
        """Return whether the run has ended, after at most `timeout` seconds. Raise its failure if it failed."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def report(self) -> Any:
        """Return the result: `RunResult`, `PlacedResult` or `SimulatedResult`. Raise BadInputError if it still lives,
        and its failure if it failed."""
        if not self.await_termination(0):
            raise BadInputError(f"run '{self.id}' is {self.status}: it reports when it has ended; stop it first")
        return self._result

    # The thread.

    def _conduct(self) -> None:
        """Serve requests of other processes and write state.json until the run has ended."""
        written = Stopwatch()
        known: RunState | None = None
        try:
            while (result := self.engine_run.wait(POLL_SECONDS)) is None:
                self._serve()
                if self.status is not known or written.seconds() >= STATE_SECONDS:
                    known, written = self.status, Stopwatch()
                    if (figures := self.engine_run.progress) is not None:
                        self._recent.append(figures)
                    self._write_state()
            self._result = result
        except BaseException as error:  # raised by `await_termination`
            log.error("run %s failed: %s", self.id, error)
            self._error = error
        for thread in self._answering:
            thread.join()
        self._write_state()
        try:
            self._opened.close()
        except BaseException as error:
            log.error("run %s: failed to release resources: %s", self.id, error)
            self._error = self._error or error

    def _serve(self) -> None:
        """Answer each request in a thread of its own: the run must be able to end while it rescales."""
        self._answering = [thread for thread in self._answering if thread.is_alive()]
        try:
            requests = list(self._folder.requests())
        except (OSError, BadInputError) as error:
            log.warning("run %s: its requests could not be read: %s", self.id, error)
            return
        for request in requests:
            thread = threading.Thread(target=self._answer, args=(request,), name=f"answer-{request.ask}", daemon=True)
            self._answering.append(thread)
            thread.start()

    def _answer(self, request: FolderRequest) -> None:
        try:
            seconds = self._answered(request)
        except Exception as error:  # raised by the process that asked
            self._folder.answer_error(request, error)
        else:
            self._folder.answer(request, seconds=seconds)

    def _answered(self, request: FolderRequest) -> float:
        words = [str(word) for word in RunRequest]
        if request.ask not in words:
            raise BadInputError(f"unknown request '{request.ask}'; {nearest(request.ask, words)}")
        word, took = RunRequest(request.ask), Stopwatch()
        arguments: dict[RunRequest, dict[str, Any]] = {
            RunRequest.PAUSE: {"keep_executors": request.keep_executors},
            RunRequest.RESUME: {"plan": request.plan, "slots": request.slots},
            RunRequest.RESCALE: {"plan": request.plan, "slots": request.slots},
        }
        self._do(word, **arguments.get(word, {}))
        if word in {RunRequest.STOP, RunRequest.KILL}:
            self.engine_run.wait()
        self._write_state()
        return took.seconds()

    def _await_start(self) -> None:
        """Wait until a run that is starting runs: it may have rows in its sinks already."""
        while self.status is RunState.STARTING and self.engine_run.wait(POLL_SECONDS) is None:
            pass

    def _write_state(self) -> None:
        """Write state.json. A full disk must neither end what still runs nor hide why it ended."""
        with self._writing:
            self._write_state_now()

    def _write_state_now(self) -> None:
        details: Mapping[str, Any] = self.engine_run.details
        if self._error is not None:
            details = {**details, "reason": _first_line(self._error)}
        try:
            self._folder.write_state(self.status, **details)
        except (OSError, BadInputError) as error:
            log.warning("run %s: its state could not be written: %s", self.id, error)

    # Former names.

    @property
    def progress(self) -> Figures | None:
        report_former_name("Run.progress", "Run.last_progress")
        return self.last_progress

    def await_end(self, timeout: float | None = None) -> Any:
        report_former_name("Run.await_end", "Run.await_termination and Run.report")
        return self.report() if self.await_termination(timeout) else None

    def drain(self) -> Any:
        report_former_name("Run.drain", "Run.stop")
        return self.stop()

    def hold(self) -> None:
        report_former_name("Run.hold", "Run.pause(keep_executors=True)")
        self.pause(keep_executors=True)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def _logged(file: Path) -> Iterator[None]:
    """Write what Penstock logs while the run lives to a file in its folder."""
    logger = logging.getLogger("penstock")
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    file.chmod(0o600)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(before)
