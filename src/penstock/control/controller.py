"""The controller: one lock around the core, a store that is written first, executors that are told after.

    monitor ──► analyse ──► decide ──► write ──► tell executors ──► monitor

Whoever reads gets the last state that was written, without waiting. Requests are refused before anything is written;
what executors reported while the store could not be written is told again with the next step.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch
from penstock.control.asking import asked_by, request_event
from penstock.control.core.incoming import ExpectNode, NodesRefused, Readings, ReleaseNode, Request, TimePassed
from penstock.control.core.records import ControllerState
from penstock.control.core.settle import orders
from penstock.control.core.states import NodeState
from penstock.control.core.step import step
from penstock.control.errors import ConflictError
from penstock.control.health import ControllerHealth, late_after
from penstock.control.providers.provisioning import ProvisioningMemory, allowed_more, provision
from penstock.control.statistics import Statistics
from penstock.control.store.history import History
from penstock.control.store.lease import LEASE_SECONDS, LostLeaseError
from penstock.control.store.store import StoreError
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.control.clocks import Clock
    from penstock.control.core.incoming import Incoming, Observation
    from penstock.control.core.outcome import StepOutcome
    from penstock.control.core.sizing import Sizing
    from penstock.control.executors.contract import Executors, Nodes
    from penstock.control.providers.provisioning import ProvisioningOptions
    from penstock.control.store.lease import ControllerLease
    from penstock.control.store.store import Store

log = logging.getLogger("penstock.control")

LOOK_SECONDS = 0.2
"""How often executors and nodes are looked at."""


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
    """What a new store starts with."""
    signals: Callable[[ControllerState, Sequence[Observation]], Sequence[Incoming]] | None = None
    """Adds what the code of triggers says to the readings."""
    look_seconds: float = LOOK_SECONDS
    provisioning: ProvisioningOptions | None = None
    """Nodes come and go by themselves within these bounds; None: only by request."""

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._lease: ControllerLease = self.store.take_lease(self.wall.now())
        self._renewed = self.wall.now()
        known = self.store.load()
        self._state = self.first if known is None else known
        self._unheard: list[Observation] = []
        self._watchers: list[Callable[[StepOutcome], None]] = []
        self.statistics = Statistics(History(self.store))
        self._thread: threading.Thread | None = None
        self._provisioning = ProvisioningMemory()
        self._acquiring: threading.Thread | None = None
        self._asking_for_nodes = threading.Lock()
        self._refused = ""
        self._last_step = Stopwatch()
        self.trouble: str | None = None
        """Why the last step could not be written."""
        if known is not None:
            self.executors.want(orders(self._state), self._lease.number)

    @property
    def state(self) -> ControllerState:
        return self._state

    @property
    def fence(self) -> int:
        return self._lease.number

    def watch(self, watcher: Callable[[StepOutcome], None]) -> Callable[[], None]:
        """`watcher` gets every step that was written; what comes back ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def ask(self, request: Request) -> ControllerState:
        """What a person wants. Raises where it is refused, and then nothing has changed."""
        with self._lock:
            self._step([request], asked_by.get())
            return self._state

    def add_nodes(self, count: int, size: str | None = None, why: str = "") -> list[str]:
        with self._asking_for_nodes:
            self._check_budget(count)
            # outside the lock of the state: whoever gives nodes may take a minute, or hang
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
        """One round: what has happened, what follows from it."""
        with self._lock:
            now = self.clock.now()
            observations = [*self._unheard, *self.nodes.observe(now), *self.executors.observe(now)]
            self._unheard = observations
            self._keep_lease()
            happened = observations if self.signals is None else self.signals(self._state, observations)
            self._step([*happened, TimePassed()])
            self._unheard = []
            self._provision(now)
            state = self._state
        # outside the lock: nobody who asks waits for metrics to be written
        reports = [observation for observation in observations if isinstance(observation, Readings)]
        self.statistics.take(reports, state, now)

    def _provision(self, now: float) -> None:
        """Nodes for what is wanted; what is idle goes. One question at a time, in a thread of its own."""
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
        except PenstockError as error:
            refused = f"{count} nodes were asked for ({why}) and none is to come: {error}"
        if refused:
            with self._lock:
                self._provisioning = replace(self._provisioning, given_up_at=self.clock.now())
                self._step([NodesRefused(refused)])

    def _keep_lease(self) -> None:
        now = self.wall.now()
        if not 0 <= now - self._renewed < LEASE_SECONDS / 3:
            self.store.renew(self._lease, now)
            self._renewed = now

    def _step(self, happened: Sequence[Incoming], by: str = "") -> None:
        """Decide, write, and only then let anybody know. What a person asked for is kept with the name."""
        before, now = self._state, self.clock.now()
        made = step(before, happened, now, self.sizing)
        if by:
            asked = tuple(request_event(event, by, now) for event in happened if isinstance(event, Request))
            made = replace(made, events=(*made.events, *asked))
        self.store.commit(before, made, self._lease, self.wall.now())
        self.trouble = None
        self._last_step = Stopwatch()
        self._state = made.state
        self._release_gone(before, made.state)
        self.executors.want(orders(made.state), self._lease.number)
        for watcher in list(self._watchers):
            watcher(made)

    def _release_gone(self, before: ControllerState, after: ControllerState) -> None:
        if after.nodes is not before.nodes:
            for name, node in after.nodes.items():
                known = before.nodes.get(name)
                if node.state is NodeState.GONE and known is not None and known.state is not NodeState.GONE:
                    self.nodes.release(name)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, name="controller", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.wait(self.look_seconds):
            try:
                self.look()
            except LostLeaseError as error:
                log.error("%s", error)
                self.trouble = str(error)
                return
            except StoreError as error:
                # pipelines flow on; the step is made again when the store can be written
                log.warning("%s", error)
                self.trouble = str(error)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def health(self) -> ControllerHealth:
        """Waits for no lock: it answers while a step hangs."""
        age, alive = self._last_step.seconds(), self.alive or self._thread is None
        trouble = self.trouble
        if trouble is None and not alive:
            trouble = "the loop has ended"
        if trouble is None and self._thread is not None and age > late_after(self.look_seconds):
            trouble = f"no step was completed for {age:.0f} s"
        return ControllerHealth(trouble is None, trouble, age, (), alive)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.executors.close()
        self.store.give_back(self._lease)
        self.store.close()
