"""The controller: one lock around the core, a store that is written first, executors that get orders after.

    monitor ──► analyse ──► decide ──► write ──► order executors ──► monitor

Readers get the last state that was written, without waiting. Requests are refused before anything is written;
reports that arrive while the store cannot be written are repeated with the next step.

Nothing ends the loop but the loss of the lease. A culprit that makes a step raise is set aside and the step is
taken without it (`core.guarded`); the same is done if its values cannot be stored (`unstorable`). Everything
around the step (nodes, executors, code of triggers, orders, watchers, statistics, provisioning) is a part of its own:
one that raises is reported as trouble, and the others continue. So is a step without a known culprit: the next look
takes another one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import OperationalError

from penstock.base.clock import Stopwatch
from penstock.base.errors import PenstockError
from penstock.control.core.messages import (
    Event,
    ExpectNode,
    NodesRefused,
    Quarantine,
    Readings,
    ReleaseNode,
    Request,
    StepOutcome,
    TimePassed,
    asked_by,
    request_event,
)
from penstock.control.core.orders import orders
from penstock.control.core.records import ControllerState, NodePhase
from penstock.control.core.step import guarded_step
from penstock.control.core.step import pipeline_of as pipeline_of_event
from penstock.control.core.turn import LARGEST_INTEGER, Blamable, reason_of
from penstock.control.errors import ConflictError, StoreError, UnknownOutcomeError
from penstock.control.health import ControllerHealth, Quarantined, Troubles, late_after
from penstock.control.provisioning import ProvisioningMemory, allowed_more, provision
from penstock.control.store import rows
from penstock.control.store.lease import LEASE_SECONDS, LostLeaseError
from penstock.control.store.metric_history import History, Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.control.clocks import Clock
    from penstock.control.contracts import Executors, Nodes, Sizing
    from penstock.control.core.messages import Incoming, Observation
    from penstock.control.provisioning import ProvisioningOptions
    from penstock.control.store.lease import ControllerLease
    from penstock.control.store.store import Store


# Whose values a store cannot take: numbers beyond its integers, NaN, text that is no Unicode. Asked only
# after a step could not be written for another reason than the store itself.


def is_of_the_store(error: Exception) -> bool:
    """Full, locked or gone: no value is to blame."""
    return isinstance(error, StoreError) and isinstance(error.__cause__, OperationalError)


def unstorable(before: ControllerState, made: StepOutcome) -> dict[str, str]:
    """Return the fault of each pipeline whose values this step could not write."""
    faults: dict[str, str] = {}
    for pipeline, value in _written(before, made):
        fault = fault_of(value)
        if fault is not None:
            faults.setdefault(pipeline, f"it cannot be stored: {fault}")
    return faults


def _written(before: ControllerState, made: StepOutcome) -> Iterator[tuple[str, Any]]:
    for name, record in made.state.pipelines.items():
        if before.pipelines.get(name) is not record:
            yield name, rows.pipeline_row(record)
            yield name, rows.submission_row(record)
            yield name, rows.holding_rows(record)
            yield name, [rows.trigger_row(name, trigger) for trigger in record.triggers]
    for decision in made.decisions:
        if decision.pipeline in made.state.pipelines:
            yield decision.pipeline, rows.decision_row(decision)
    for event in made.events:
        if event.subject in made.state.pipelines:
            yield event.subject, rows.event_row(event)


def fault_of(value: Any, where: str = "") -> str | None:
    """Describe the part of a plain value that cannot be stored and read again; None if all can."""
    fault: str | None = f"{where}: {type(value).__name__}"
    match value:
        case bool() | None:
            fault = None
        case int():
            fault = None if abs(value) <= LARGEST_INTEGER else f"{where}: a number of {value.bit_length()} bits"
        case float():
            fault = None if isfinite(value) else f"{where}: {value}"
        case str():
            fault = None if value.isascii() or _is_unicode(value) else f"{where}: text that is no Unicode"
        case dict():
            faults = (fault_of(part, str(name)) or fault_of(name, "a name") for name, part in value.items())
            fault = next(filter(None, faults), None)
        case list() | tuple():
            fault = next(filter(None, (fault_of(part, where) for part in value)), None)
    return fault


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


LOOK_SECONDS = 0.2
"""Seconds between two looks at executors and nodes."""
CLOSE_SECONDS = 30.0
"""A look that hangs is not waited for any longer when the controller goes away."""
MAX_NODES = 20_000
"""Nodes a controller keeps at most: a pass over so many takes some seconds, in which nobody else is answered."""


@dataclass(frozen=True, slots=True)
class _UnknownStep:
    """A step that may have been written, or not."""

    id: str
    made: StepOutcome
    observed: bool
    """Whether it took what executors and nodes had reported."""


@dataclass
class Controller:
    store: Store
    executors: Executors
    nodes: Nodes
    sizing: Sizing
    clock: Clock
    """The time pipelines live in."""
    wall: Clock
    """The time leases live in: that of the machine."""
    first: ControllerState = field(default_factory=ControllerState)
    """The initial state of a new store."""
    signals: Callable[[ControllerState, Sequence[Observation]], Sequence[Incoming]] | None = None
    """Adds the answers of trigger code to the readings."""
    look_seconds: float = LOOK_SECONDS
    provisioning: ProvisioningOptions | None = None
    """Nodes come and go by themselves within these bounds; None: only by request."""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._lease: ControllerLease = self.store.take_lease(self.wall.now())
        self._renewed, self._since_renewal = self.wall.now(), Stopwatch()
        self._lost: LostLeaseError | None = None
        known = self.store.load()
        self._state = self.first if known is None else known
        self._unheard: list[Observation] = []
        self._unknown: _UnknownStep | None = None
        self._watchers: list[Callable[[StepOutcome], None]] = []
        self.statistics = Statistics(History(self.store))
        self._thread: threading.Thread | None = None
        self._provisioning = ProvisioningMemory()
        self._acquiring: threading.Thread | None = None
        self._asking_for_nodes = threading.Lock()
        self._refused = ""
        self._troubles = Troubles()
        self._quarantined = Quarantined()
        self._last_look = Stopwatch()
        if known is not None:
            with self._troubles.of("orders"):
                self.executors.want(orders(self._state), self._lease.number)

    @property
    def state(self) -> ControllerState:
        return self._state

    @property
    def fence(self) -> int:
        return self._lease.number

    @property
    def trouble(self) -> str | None:
        """Why not everything that should be is decided or done; None: it is."""
        return self.health().trouble

    def health(self) -> ControllerHealth:
        """Waits for no lock: it answers while a step hangs."""
        age, thread = self._last_look.seconds(), self._thread
        alive = thread is None or thread.is_alive()
        trouble, hangs = self._troubles.line, False
        if trouble is None and not alive:
            trouble = "the loop has ended"
        if trouble is None and thread is not None and age > late_after(self.look_seconds):
            trouble, hangs = f"no step was completed for {age:.0f} s", True
        quarantined = self._quarantined.present(self._state)
        return ControllerHealth(trouble is None, trouble, age, quarantined, alive, hangs)

    def watch(self, watcher: Callable[[StepOutcome], None]) -> Callable[[], None]:
        """Call `watcher` with every step that was written. Return a function that ends this."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def ask(self, request: Request) -> ControllerState:
        """Apply a person's request. Raise if it is refused; then nothing has changed."""
        with self._lock:
            self._keep_lease()
            self._step([request], asked_by.get())
            return self._state

    def add_nodes(self, count: int, size: str | None = None, why: str = "") -> list[str]:
        with self._asking_for_nodes:
            has = sum(node.state is not NodePhase.GONE for node in self._state.nodes.values())
            if has + count > MAX_NODES:
                raise ConflictError(f"{count} more nodes: a controller keeps at most {MAX_NODES:,}, and has {has:,}")
            self._check_budget(count)
            with self._lock:
                self._renew_lease()
            # outside the lock of the state: a node provider may take a minute, or hang
            made = self.nodes.acquire(count, size)
            with self._lock:
                self._step([ExpectNode(node, why) for node in made], asked_by.get())
        return [node.name for node in made]

    def _check_budget(self, count: int) -> None:
        if self.provisioning is None:
            return
        allowed = allowed_more(self._state, self.provisioning, count, self.nodes.lingering())
        if allowed < count:
            raise ConflictError(f"{count} more nodes: the budget allows {allowed}")

    def release_node(self, name: str) -> None:
        self.ask(ReleaseNode(name))

    def look(self) -> None:
        """Make one round: read what happened and decide. Without the lease, do not even look: executors start whatever
        is wanted and missing."""
        with self._lock:
            since, now = self._last_look, self.clock.now()
            self._keep_lease()
            self._settle_unknown_step()
            observations = list(self._unheard)
            with self._troubles.of("nodes"):
                observations += self.nodes.observe(now)
            with self._troubles.of("executors"):
                observations += self.executors.observe(now)
            self._unheard = without_old_readings(observations)
            happened: Sequence[Incoming] = observations
            if self.signals is not None:
                with self._troubles.of("code of triggers"):
                    happened = self.signals(self._state, observations)
            self._step([*happened, TimePassed()])
            self._unheard = []
            with self._troubles.of("provisioning"):
                self._provision(now)
            state = self._state
        # outside the lock: requests do not wait for metrics to be written
        reports = [observation for observation in observations if isinstance(observation, Readings)]
        with self._troubles.of("statistics"):
            self.statistics.take(reports, state, now)
        self._last_look = Stopwatch()
        self._say_trouble(since.seconds())

    def _say_trouble(self, seconds: float) -> None:
        """Events when trouble begins and ends; of steps that were late, when they go on."""
        now = self.clock.now()
        events = [
            Event(now, "controller", "trouble", None if why else "trouble", "trouble" if why else None, why)
            for why in self._troubles.to_say()
        ]
        if self._thread is not None and seconds > late_after(self.look_seconds):
            why = f"no step was completed for {seconds:.0f} s"
            events.append(Event(now, "controller", "trouble", "trouble", None, why))
        if events:
            with self._lock:
                self.store.commit(self._state, StepOutcome(self._state, tuple(events)), self._lease, self.wall.now())
            self._troubles.was_said()

    def _provision(self, now: float) -> None:
        """Acquire missing nodes and release idle ones. One request at a time, in a thread of its own."""
        if self.provisioning is None or (self._acquiring is not None and self._acquiring.is_alive()):
            return
        self._provisioning, todo = provision(
            self._provisioning, self._state, self.provisioning, now, self.nodes.lingering()
        )
        if todo.refused != self._refused:
            self._refused = todo.refused
            if todo.refused:
                self._step([NodesRefused(todo.refused)])
        if todo.release:
            self._step([ReleaseNode(name, todo.why) for name in todo.release])
        if todo.acquire:
            self._acquiring = threading.Thread(
                target=self._acquire, args=(todo.acquire, todo.why), name="acquire", daemon=True
            )
            self._acquiring.start()

    def _acquire(self, count: int, why: str) -> None:
        try:
            made = self.add_nodes(count, why=why)
            refused = "" if len(made) == count else f"{count} nodes were asked for and {len(made)} are to come"
        except Exception as error:
            refused = f"{count} nodes were asked for ({why}) and none is to come: {reason_of(error)}"
        if refused:
            with self._lock, self._troubles.of("nodes that did not come"):
                self._provisioning = replace(self._provisioning, given_up_at=self.clock.now())
                self._step([NodesRefused(refused)])

    def _keep_lease(self) -> None:
        """Check the lease by the machine's clock and by a stopwatch: one may be set, the other may have stood still."""
        if self._lost is not None:
            raise self._lost
        third = LEASE_SECONDS / 3
        if not 0 <= self.wall.now() - self._renewed < third or self._since_renewal.seconds() >= third:
            self._renew_lease()

    def _renew_lease(self) -> None:
        now = self.wall.now()
        self.store.renew(self._lease, now)
        self._renewed, self._since_renewal = now, Stopwatch()

    def _step(self, happened: Sequence[Incoming], by: str = "") -> None:
        """Decide, write, and only then publish. A person's request is stored with their name."""
        self._settle_unknown_step()
        before, now = self._state, self.clock.now()
        made = self._decided(before, happened, now, by)
        made = self._written(before, made, happened, now, by)
        self._take(made)

    def _settle_unknown_step(self) -> None:
        """Continue from the step whose commit failed if it was written after all. Its observations were in it."""
        unknown = self._unknown
        if unknown is not None:
            was_written = self.store.was_written(unknown.id)
            self._unknown = None
            if was_written:
                self._unheard = [] if unknown.observed else self._unheard
                self._take(unknown.made)

    def _take(self, made: StepOutcome) -> None:
        before = self._state
        self._state = made.state
        self._release_gone(before, made.state)
        with self._troubles.of("orders"):
            self.executors.want(orders(made.state), self._lease.number)
        for watcher in list(self._watchers):
            with self._troubles.of("a watcher"):
                watcher(made)

    def _written(
        self, before: ControllerState, made: StepOutcome, happened: Sequence[Incoming], now: float, by: str
    ) -> StepOutcome:
        """The step, without those whose values cannot be written."""
        remedies: dict[str, Incoming] = {}
        while True:
            try:
                self.store.commit(before, made, self._lease, self.wall.now())
            except LostLeaseError:
                raise
            except UnknownOutcomeError as error:
                observed = any(isinstance(event, TimePassed) for event in happened)
                self._unknown = _UnknownStep(error.step, made, observed=observed)
                raise
            except Exception as error:
                faults = self._storable_without(before, made, happened, error)
                if not faults.keys() - remedies.keys():
                    raise StoreError(f"a step cannot be written: {reason_of(error)}") from error
                remedies |= {name: Quarantine(name, why) for name, why in faults.items()}
                made = self._decided(before, happened, now, by, list(remedies.values()))
            else:
                return made

    def _decided(
        self, before: ControllerState, happened: Sequence[Incoming], now: float, by: str, first: Sequence[Incoming] = ()
    ) -> StepOutcome:
        guarded = guarded_step(before, happened, now, self.sizing, first=first)
        made = guarded.outcome
        policy = [aside.why for aside in guarded.aside if aside.culprit.kind is Blamable.POLICY]
        if policy:
            self._troubles.begin("policy", f"{policy[0]}: everybody keeps what it has")
        elif made.state.last_pass != before.last_pass:
            self._troubles.end("policy")
        events = [*made.events, *self._quarantined.after(guarded.aside, now)]
        if by:
            events += [request_event(event, by, now) for event in happened if isinstance(event, Request)]
        return replace(made, events=tuple(events))

    def _storable_without(
        self, before: ControllerState, made: StepOutcome, happened: Sequence[Incoming], error: Exception
    ) -> dict[str, str]:
        """Return pipelines to set aside so that a step can be written, with reasons. Raise if that would not help."""
        faults = {} if is_of_the_store(error) else unstorable(before, made)
        for name in faults:
            if any(isinstance(event, Request) and pipeline_of_event(event) == name for event in happened):
                raise ConflictError(f"pipeline '{name}': {faults[name]}") from error
        if not faults and isinstance(error, PenstockError):
            raise error
        return faults

    def _release_gone(self, before: ControllerState, after: ControllerState) -> None:
        if after.nodes is not before.nodes:
            for name, node in after.nodes.items():
                known = before.nodes.get(name)
                if node.state is NodePhase.GONE and known is not None and known.state is not NodePhase.GONE:
                    with self._troubles.of(f"releasing node '{name}'"):
                        self.nodes.release(name)

    def start(self) -> None:
        self._last_look = Stopwatch()
        self._thread = threading.Thread(target=self._loop, name="controller", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        """Nothing that a look raises ends this but the loss of the lease."""
        while not self._stop.wait(self.look_seconds):
            try:
                self.look()
            except LostLeaseError as error:
                self._lost = error
                self._troubles.begin("lease", str(error))
                return
            except StoreError as error:
                # pipelines flow on; the step is made again when the store can be written
                self._troubles.begin("store", str(error))
            except BaseException as error:
                self._troubles.begin("step", f"a step failed: {reason_of(error)}", error)
            else:
                self._troubles.end("store")
                self._troubles.end("step")

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        try:
            self.executors.close()
            self.store.give_back(self._lease)
        finally:
            self.store.close()


def without_old_readings(observations: Sequence[Observation]) -> list[Observation]:
    """Keep only the last readings of each pipeline: they would pile up while the store cannot be written."""
    last = {observation.pipeline: observation for observation in observations if isinstance(observation, Readings)}
    return [
        observation
        for observation in observations
        if not isinstance(observation, Readings) or last[observation.pipeline] is observation
    ]
