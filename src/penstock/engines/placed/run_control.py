"""The loop that conducts a placed run for its time and serves requests, and the state that other threads share."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.clock import Stopwatch, now
from penstock.base.errors import PenstockError, RunError
from penstock.engines.placed.flow.states import FlowState, WantedState
from penstock.report.result import PlanChange
from penstock.runs.states import OVER, RunState, StateHistory, move

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.cluster.contract import ExecutorSize
    from penstock.cluster.topology import Slot
    from penstock.engines.placed.bundle_plan import LaidOut
    from penstock.engines.placed.conductor import Conductor
    from penstock.report.figures import Figures


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to the conducting thread: pause, resume, change, rescale or stop. `answered` gets the seconds it took,
    or its error."""

    ask: str
    answered: Future[float]
    plan: Path | None = None
    slots: int | None = None
    places: Mapping[Slot, ExecutorSize] | None = None
    """Executors that a controller ordered for the plan; None leaves their size to the engine."""


@dataclass
class RunControl:
    """Requests to the conducting thread and observations of the run, for other threads."""

    history: StateHistory = field(default_factory=StateHistory)
    figures: Figures | None = None
    places: frozenset[Slot] = frozenset()
    """The slots its bundles are on."""
    last_tuple: float | None = None
    """When tuples last came to their end."""
    watched: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    """Fields and thresholds, by number."""
    shares: Mapping[int, float] = field(default_factory=dict)
    """Share of the rows of the last epoch above each threshold."""
    at_once: bool = False
    """End without draining: rows that are not committed are processed again on resume."""
    ran: float = 0.0
    """Seconds it has run, pauses left out."""
    pause_seconds: float | None = None
    """Seconds in which no row flowed during the last change of plan."""
    _asked: queue.SimpleQueue[ControlRequest] = field(default_factory=queue.SimpleQueue)
    _unanswered: list[ControlRequest] = field(default_factory=list)
    """Requests that are queued or under way."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(
        self,
        ask: str,
        plan: Path | None = None,
        slots: int | None = None,
        places: Mapping[Slot, ExecutorSize] | None = None,
    ) -> Future[float]:
        asked = ControlRequest(ask, Future(), plan, slots, places)
        with self._lock:
            if self.history.state in OVER:
                asked.answered.set_exception(RunError("the run has ended"))
            else:
                self._unanswered = [other for other in self._unanswered if not other.answered.done()] + [asked]
                self._asked.put(asked)
        return asked.answered

    def take(self) -> list[ControlRequest]:
        asked = []
        while True:
            try:
                asked.append(self._asked.get_nowait())
            except queue.Empty:
                return asked

    def to(self, state: RunState) -> None:
        """Move to a state, unless the run is in it. A run that is paused drains first, if only for a moment."""
        if state is RunState.PAUSED and self.history.state in {RunState.STARTING, RunState.RUNNING}:
            move(self.history, RunState.DRAINING)
        if state is not self.history.state:
            move(self.history, state)

    def end(self, state: RunState) -> None:
        """Move to a final state, and answer all open requests with an error."""
        with self._lock:
            self.to(state)
            for asked in self._unanswered:
                if not asked.answered.done():
                    asked.answered.set_exception(RunError("the run has ended"))


@dataclass(frozen=True)
class Plans:
    """Other layouts of the run: of a plan file, and of the same plan on a number of slots."""

    of_file: Callable[[Path, Mapping[Slot, ExecutorSize] | None], LaidOut]
    on_slots: Callable[[int], LaidOut]


@dataclass(frozen=True)
class Conducted:
    """The end of a run: when it was asked to, how long that took, and the changes before."""

    held: float
    drain_seconds: float
    changes: tuple[PlanChange, ...]


@dataclass
class _Pending:
    """Something that was asked, and has not been done yet."""

    asked: ControlRequest
    answer: Future[None]
    since: Stopwatch
    moment: float

    @property
    def is_change(self) -> bool:
        return self.asked.plan is not None or self.asked.slots is not None


class Conducting:
    """`plans` makes other layouts ready; `look` is called often, with the seconds run so far."""

    def __init__(
        self,
        conductor: Conductor,
        control: RunControl,
        plans: Plans,
        look: Callable[[float], None],
    ) -> None:
        self._conductor = conductor
        self._control = control
        self._plans = plans
        self._look = look
        self._pending: list[_Pending] = []
        self._changes: list[PlanChange] = []
        self._ending = False

    def start(self) -> None:
        """Turn until rows flow for the first time, or the run is to end."""
        while self._conductor.flowing_since is None and not self._is_ending:
            self._turn(0.0)
        self._raise_if_failed()

    def change(self, plan: Path) -> None:
        """Change to another plan. Raise the error if that fails."""
        changed = self._control.ask("change", plan)
        while not changed.done() and not self._is_ending:
            self._turn(0.0)
        self._raise_if_failed()
        if changed.done():
            changed.result()

    def run(self, seconds: float | None) -> Conducted:
        """Run for `seconds`, pauses not counted, or until a request to end; then drain and end."""
        ran, watch = self._control.ran, Stopwatch()
        while (seconds is None or ran < seconds) and not self._is_ending:
            self._turn(ran)
            if self._conductor.run.state is not FlowState.HELD:
                ran += watch.seconds()
            watch, self._control.ran = Stopwatch(), ran
        held, since = now(), Stopwatch()
        if not self._conductor.is_over and not self._control.at_once and not self._ending:
            self._conductor.drain(end=True)
            self._ending = True
        while not self._conductor.is_over and not self._control.at_once:
            self._turn(ran)
        self._raise_if_failed()
        self._settle()
        return Conducted(held, since.seconds(), tuple(self._changes))

    @property
    def _is_ending(self) -> bool:
        return self._conductor.is_over or self._control.at_once or self._ending

    def _raise_if_failed(self) -> None:
        stopped = self._conductor.stopped
        if stopped is not None and stopped.failed is not None:
            self._settle()
            raise RunError(stopped.failed)

    def _turn(self, ran: float) -> None:
        self._conductor.turn()
        for asked in self._control.take():
            self._begin(asked)
        self._control.to(self._state())
        self._settle()
        self._control.places = frozenset(bundle.slot for bundle in self._conductor.run.layout.bundles)
        if self._control.watched != self._conductor.watched:
            self._conductor.watch(dict(self._control.watched))
        self._look(ran)

    def _state(self) -> RunState:
        """The state of the run, by that of its flow. While a plan is changed the flow is held for a moment."""
        run = self._conductor.run
        if self._ending:
            return RunState.DRAINING
        if run.wanted is WantedState.FLOW:
            return RunState.STARTING if self._conductor.flowing_since is None else RunState.RUNNING
        is_paused = run.state is FlowState.HELD or self._control.history.state is RunState.PAUSED
        return RunState.PAUSED if is_paused else RunState.DRAINING

    def _begin(self, asked: ControlRequest) -> None:
        try:
            answer = self._done_by(asked)
        except PenstockError as error:
            asked.answered.set_exception(error)
            return
        self._pending.append(_Pending(asked, answer, Stopwatch(), now()))

    def _done_by(self, asked: ControlRequest) -> Future[None]:
        match asked.ask:
            case "pause":
                return self._conductor.drain()
            case "stop":
                self._ending = True
                return self._conductor.drain(end=True)
            case "rescale" if asked.slots is not None:
                return self._conductor.change(self._plans.on_slots(asked.slots))
            case "change" if asked.plan is not None:
                return self._conductor.change(self._plans.of_file(asked.plan, asked.places))
            case "resume":
                return self._conductor.resume()
        raise RunError(f"cannot do '{asked.ask}'; known: pause, stop, resume, change, rescale")

    def _settle(self) -> None:
        """Answer requests that are done. A change of plan is done when the first row has passed the new plan."""
        waiting = []
        for pending in self._pending:
            if not pending.answer.done():
                waiting.append(pending)
                continue
            error = pending.answer.exception()
            if error is not None:
                pending.asked.answered.set_exception(error)
                continue
            seconds = pending.since.seconds()
            if pending.is_change:
                formed, first = self._conductor.formed, self._conductor.first_tuple
                if first is None and seconds < self._conductor.run.patience.change and not self._conductor.is_over:
                    waiting.append(pending)
                    continue
                until = first if first is not None else now()
                self._control.pause_seconds = None if first is None else first - self._conductor.paused_since
                onto = str(pending.asked.plan) if pending.asked.plan is not None else f"{pending.asked.slots} slots"
                self._changes.append(PlanChange(formed - pending.moment, until - formed, onto))
                seconds = until - pending.moment
            pending.asked.answered.set_result(seconds)
        self._pending = waiting
