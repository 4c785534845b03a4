"""A placed run as a state machine: events in, instructions out. It knows no Spark, no sockets, no files and no clock.

    GATHERING ── every bundle's process is there ──► LINKING ── every link is up ──► FLOWING ◄──► HELD
        ▲                                                │                              │          │
        └──────────────── a process, a link or a node is lost, or another plan ◄────────┴──────────┘

Work flows in epochs: the conductor opens one, sources put markers into their streams, bundles align them and stage what
must last, and when all have, one commit is written. At most one epoch is open. Whatever happens, a new generation
starts from the last commit, and what was staged for an epoch that never committed is never seen.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engines.placed.flow import events as ev
from penstock.engines.placed.flow import instructions as do
from penstock.engines.placed.flow.epochs import Epochs
from penstock.engines.placed.flow.layout import bundles_on_resized_slots
from penstock.engines.placed.flow.states import MOVES, OVER, FlowState, ImpossibleError, Patience, WantedState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from penstock.cluster.topology import Slot
    from penstock.connectors.commit import Commit
    from penstock.engines.placed.flow.events import Hello
    from penstock.engines.placed.flow.layout import Bundle, Layout


# Which bundles' processes are there, which are awaited since when, and how often each has failed lately.


@dataclass(slots=True)
class BundleProcess:
    """One start of a bundle."""

    start: int
    asked: float
    connection: int | None = None
    address: str = ""
    last_heard: float = 0.0


@dataclass(slots=True)
class Presence:
    window_seconds: float
    """Failures longer ago than this are forgotten."""
    processes: dict[str, BundleProcess] = field(default_factory=dict)
    _starts: dict[str, int] = field(default_factory=dict)
    _failures: dict[str, deque[float]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    @property
    def known(self) -> frozenset[str]:
        """Bundles that have a process, await one, or will be started."""
        return frozenset(self.processes) | frozenset(self._due)

    # Starting.

    def want(self, bundle: str, at: float) -> None:
        """A process is to be started at `at`, unless there is one or one is on its way."""
        if bundle not in self.processes:
            self._due.setdefault(bundle, at)

    def due(self, now: float) -> list[str]:
        return [bundle for bundle, at in self._due.items() if at <= now]

    def started(self, bundle: str, now: float) -> int:
        del self._due[bundle]
        number = self._starts[bundle] = self._starts.get(bundle, 0) + 1
        self.processes[bundle] = BundleProcess(number, now)
        return number

    def forget(self, bundle: str) -> None:
        self.processes.pop(bundle, None)
        self._due.pop(bundle, None)

    # Being there.

    def arrived(self, hello: Hello, now: float) -> None:
        process = self.processes[hello.bundle]
        process.connection, process.address, process.last_heard = hello.connection, hello.address, now

    def is_awaited(self, hello: Hello) -> bool:
        process = self.processes.get(hello.bundle)
        return process is not None and process.start == hello.start

    def bundle_at(self, connection: int) -> str | None:
        return next((name for name, process in self.processes.items() if process.connection == connection), None)

    def has_all(self, bundles: Collection[str]) -> bool:
        return all(name in self.processes and self.processes[name].connection is not None for name in bundles)

    def overdue(self, bundles: Collection[str], before: float) -> list[str]:
        """Those asked for before `before` that are not there."""
        return [
            name
            for name in sorted(bundles)
            if (process := self.processes.get(name)) is not None
            and process.connection is None
            and process.asked < before
        ]

    def silent(self, before: float) -> Iterator[tuple[str, BundleProcess]]:
        """Those that are there and were last heard before `before`."""
        for name, process in list(self.processes.items()):
            if process.connection is not None and process.last_heard < before:
                yield name, process

    # Failing.

    def failed(self, bundle: str, now: float) -> int:
        """Note a failure; how many there were lately."""
        times = self._failures.setdefault(bundle, deque())
        times.append(now)
        return self.failures(bundle, now)

    def failures(self, bundle: str, now: float) -> int:
        times = self._failures.get(bundle, deque())
        while times and times[0] < now - self.window_seconds:
            times.popleft()
        return len(times)


# The state machine. Handlers of events come last; what to do next is decided by the state, whatever event made it
# possible.


@dataclass(slots=True)
class PendingChange:
    """Another layout somebody asked for. Once `previous` is set it has taken over, but has not flowed yet."""

    request: str
    layout: Layout
    until: float
    previous: Layout | None = None


class FlowRun:
    """`commit` is what the run starts from. `handle` is the only way in; processes are asked for by the first event,
    which may be a Tick."""

    def __init__(
        self, layout: Layout, commit: Commit, patience: Patience | None = None, *, is_led: bool = False
    ) -> None:
        """`is_led`: layouts are ordered from outside. If slots are lost the run waits for another layout, and looks for
        none itself."""
        self.patience = patience or Patience()
        self._is_led = is_led
        self.layout = layout
        self.epochs = Epochs(commit)
        self._began_at = commit.generation
        self.generation = commit.generation
        self.state = FlowState.GATHERING
        self.wanted = WantedState.FLOW
        self.presence = Presence(self.patience.window)
        self._unusable: set[Slot] = set()
        self._seeking = False
        self._linked: set[str] = set()
        self._linking_until = 0.0
        self._form_at = 0.0
        self._next_epoch = 0.0
        self._change: PendingChange | None = None
        self._drain: str | None = None
        self._out: list[do.Instruction] = []
        self._begun = False

    @property
    def commit(self) -> Commit:
        """The last one."""
        return self.epochs.commit

    @property
    def unusable(self) -> frozenset[Slot]:
        return frozenset(self._unusable)

    @property
    def changing(self) -> bool:
        return self._change is not None

    def handle(self, event: ev.Event, now: float) -> list[do.Instruction]:
        if self.state in OVER:
            # processes still end and connections still close
            return []
        self._out = []
        if not self._begun:
            self._begun = True
            self._want(self.layout, now)
        _HANDLERS[type(event)](self, event, now)
        while self.state not in OVER and self._advance(now):
            pass
        return self._out

    # Advancing: start processes, form generations, open and write epochs, change layouts, end.

    def _advance(self, now: float) -> bool:
        for name in self.presence.due(now):
            bundle = self._bundles()[name]
            self._out.append(do.StartBundle(bundle, self.presence.started(name, now)))
        match self.state:
            case FlowState.GATHERING:
                return self._gather(now)
            case FlowState.LINKING:
                return self._link(now)
            case FlowState.FLOWING:
                return self._flow(now)
            case FlowState.HELD:
                return self._held(now)
        return False

    def _gather(self, now: float) -> bool:
        if self.epochs.is_writing or now < self._form_at:
            # where to start from is not known before the commit is, or is not
            return False
        if self._change is not None and self._change.previous is None and self._is_ready(self._change):
            self._adopt(self._change, now)
        if not self.presence.has_all(self.layout.names):
            return False
        self.generation += 1
        processes = {name: self.presence.processes[name] for name in self.layout.names}
        self._out.append(
            do.Form(
                self.generation,
                self.layout,
                self.commit,
                {name: process.address for name, process in processes.items()},
                {name: process.connection for name, process in processes.items() if process.connection is not None},
                held=self.wanted is not WantedState.FLOW,
                careful=frozenset(
                    name for name in processes if self.presence.failures(name, now) >= self.patience.careful_after
                ),
            )
        )
        self._linked = set()
        self._linking_until = now + self.patience.link
        self._move(FlowState.LINKING)
        return True

    def _link(self, now: float) -> bool:
        if self._linked != self.layout.names:
            return False
        self._next_epoch = now + self.patience.epoch
        if self._change is not None and self._change.previous is not None:
            self._end(self._change.previous.names - self.layout.names)
            self._out.append(do.Answer(self._change.request))
            self._change = None
        self._move(FlowState.FLOWING if self.wanted is WantedState.FLOW else FlowState.HELD)
        return True

    def _flow(self, now: float) -> bool:
        if self.epochs.is_writing:
            return False
        if self.epochs.is_open:
            writing = self.epochs.write_if_complete(self.layout.names, self.generation, self.layout.plan)
            if writing is not None:
                self._out.append(writing)
            return False
        ready = self._change is not None and self._is_ready(self._change)
        hold = self.wanted is not WantedState.FLOW or ready
        if hold or now >= self._next_epoch:
            self._out.append(self.epochs.open(self.generation, hold=hold))
        return False

    def _held(self, now: float) -> bool:
        if self._drain is not None:
            self._out.append(do.Answer(self._drain))
            self._drain = None
        if self.wanted is WantedState.END:
            self._end(self.presence.known)
            self._out.append(do.Stop())
            self._move(FlowState.ENDED)
            return False
        if self._change is not None and self._is_ready(self._change):
            self._adopt(self._change, now)
            self._move(FlowState.GATHERING)
            return True
        if self.wanted is WantedState.FLOW:
            self._out.append(do.Go(self.generation))
            self._next_epoch = now + self.patience.epoch
            self._move(FlowState.FLOWING)
            return True
        return False

    def _is_ready(self, change: PendingChange) -> bool:
        """Whether all processes are there that can start beside those of the present layout."""
        return self.presence.has_all(change.layout.names - bundles_on_resized_slots(self.layout, change.layout))

    def _adopt(self, change: PendingChange, now: float) -> None:
        replaced = bundles_on_resized_slots(self.layout, change.layout)
        change.previous, self.layout = self.layout, change.layout
        if replaced:
            change.until = now + self.patience.change
        self._end(replaced)
        self._want(self.layout, now)
        self.wanted = WantedState.FLOW if self.wanted is WantedState.HOLD and self._drain is None else self.wanted

    # Helpers.

    def _bundles(self) -> dict[str, Bundle]:
        """Of every layout something is awaited for."""
        if self._change is None:
            return self.layout.by_name
        previous = {} if self._change.previous is None else self._change.previous.by_name
        return {**previous, **self._change.layout.by_name, **self.layout.by_name}

    def _want(self, layout: Layout, now: float, without: frozenset[str] = frozenset()) -> None:
        for bundle in layout.bundles:
            if bundle.name not in without:
                self.presence.want(bundle.name, now)

    def _end(self, names: frozenset[str]) -> None:
        for name in sorted(names & self.presence.processes.keys()):
            self._out.append(do.EndBundle(name))
        for name in names:
            self.presence.forget(name)

    def _fail(self, reason: str) -> None:
        if self.state in OVER:
            return
        self._out.append(do.Stop(f"{reason}; nothing is lost: the run can be resumed"))
        self._move(FlowState.FAILED)

    def _move(self, state: FlowState) -> None:
        if state not in MOVES[self.state]:
            raise ImpossibleError(f"from {self.state} to {state}")
        self.state = state

    # Events of bundles.

    def _hello(self, event: ev.Hello, now: float) -> None:
        if self.presence.bundle_at(event.connection) is not None:
            raise ImpossibleError(f"connection {event.connection} said hello twice")
        if not self.presence.is_awaited(event):
            self._out.append(do.Dismiss(event.connection))
            return
        known = self.presence.processes[event.bundle].connection
        self.presence.arrived(event, now)
        if known is not None:
            # Spark started the task a second time: the first may still be there, and is dismissed
            self._out.append(do.Dismiss(known))
            self._disturbed(event.bundle, now)

    def _beat(self, event: ev.Beat, now: float) -> None:
        name = self.presence.bundle_at(event.connection)
        if name is not None:
            self.presence.processes[name].last_heard = now

    def _lost(self, event: ev.Lost, now: float) -> None:
        name = self.presence.bundle_at(event.connection)
        if name is not None:
            self._died(name, event.reason, now)

    def _task_ended(self, event: ev.TaskEnded, now: float) -> None:
        process = self.presence.processes.get(event.bundle)
        if process is not None and process.start == event.start:
            self._died(event.bundle, event.reason, now)

    def _died(self, name: str, reason: str, now: float) -> None:
        """A process is gone: another is started at once, later if it keeps dying."""
        process = self.presence.processes[name]
        if process.connection is not None:
            self._out.append(do.Dismiss(process.connection))
        self.presence.forget(name)
        count = self.presence.failed(name, now)
        if name not in self._bundles():
            return
        if count > self.patience.most_failures:
            self._fail(
                f"bundle '{name}' failed {count} times within {self.patience.window:g} s; the last time: {reason}"
            )
            return
        self._out.append(do.Say(f"bundle '{name}' was lost: {reason}"))
        self.presence.want(name, now + self.patience.retry * (count - 1))
        self._disturbed(name, now)

    def _disturbed(self, name: str, now: float) -> None:
        """One of the generation's bundles is not what it was: the generation is over."""
        if name in self.layout.names:
            self._regather(now)

    def _regather(self, now: float, settle: float = 0.0) -> None:
        self._form_at = now + settle
        self.epochs.drop()
        if self.state is not FlowState.GATHERING:
            self._move(FlowState.GATHERING)

    def _linked_up(self, event: ev.Linked, _now: float) -> None:
        if self._is_now(event.generation, event.bundle) and self.state is FlowState.LINKING:
            self._linked.add(event.bundle)

    def _broken(self, event: ev.Broken, now: float) -> None:
        if self._is_now(event.generation, event.bundle) and self.state is not FlowState.GATHERING:
            self._out.append(do.Say(f"bundle '{event.bundle}' lost a link: {event.reason}"))
            self._regather(now, self.patience.settle)

    def _staged(self, event: ev.Staged, _now: float) -> None:
        if self._is_now(event.generation, event.bundle) and self.state is FlowState.FLOWING:
            self.epochs.staged(event)

    def _is_now(self, generation: int, bundle: str) -> bool:
        """Said by a bundle of this generation; what those of older ones say does not count."""
        if generation > self.generation:
            raise ImpossibleError(f"bundle '{bundle}' speaks of generation {generation}; it is {self.generation} now")
        return generation == self.generation and bundle in self.layout.names

    def _gave_up(self, event: ev.GaveUp, _now: float) -> None:
        if self._is_now(event.generation, event.bundle):
            self._fail(f"the pipeline was stopped by its own code in bundle '{event.bundle}': {event.reason}")

    # Committing.

    def _committed(self, event: ev.Committed, now: float) -> None:
        held, trouble = self.epochs.committed(event.commit, now)
        if trouble is not None:
            self._out.append(do.Say(f"epochs can be written again, after {trouble:.1f} s"))
        self._next_epoch = now + self.patience.epoch
        if held and self.state is FlowState.FLOWING:
            self._move(FlowState.HELD)

    def _not_committed(self, event: ev.NotCommitted, now: float) -> None:
        trouble = self.epochs.not_committed(event.epoch, now, self.patience.retry, at_sink=event.at_sink)
        if trouble == 0:
            until = "" if event.at_sink else " until the checkpoint can be written"
            self._out.append(do.Say(f"{event.reason}; waiting{until}"))
        if event.at_sink and trouble > self.patience.publish:
            self._fail(f"{event.reason} for {self.patience.publish:g} s")
        if not event.at_sink and trouble > self.patience.write:
            self._fail(f"{event.reason} for {self.patience.write:g} s: make room, and resume the run")

    def _fenced(self, event: ev.Fenced, _now: float) -> None:
        self._out.append(do.Stop(f"the run is conducted by {event.by} now; this process has let go of it"))
        self._move(FlowState.FENCED)

    # Nodes.

    def _node_gone(self, event: ev.NodeGone, now: float) -> None:
        hit = [bundle for bundle in self._bundles().values() if bundle.slot.node == event.node]
        slots = {bundle.slot for bundle in hit}
        if not slots or slots <= self._unusable:
            return
        self._out.append(do.Say(f"node '{event.node}' is gone: {event.reason}"))
        if self._change is not None and any(bundle.slot.node == event.node for bundle in self._change.layout.bundles):
            self._refuse_change(f"node '{event.node}' is gone", now)
        self._leave(slots, now)

    def _node_back(self, event: ev.NodeBack, now: float) -> None:
        self._unusable = {slot for slot in self._unusable if slot.node != event.node}
        if self._is_led:
            self._want(self.layout, now)

    def _leave(self, slots: set[Slot], now: float) -> None:
        """Nothing can run on these slots: look for another layout, if any of it does. A run that is led waits for one,
        or for the node."""
        self._unusable |= slots
        there = [bundle.name for bundle in self.layout.bundles if bundle.slot in slots]
        for name in there:
            self._end(frozenset({name}))
        if there:
            self._regather(now)
            if not self._seeking and not self._is_led:
                self._seeking = True
                self._out.append(do.SeekRefuge(self.unusable))

    def _refuge_found(self, event: ev.RefugeFound, now: float) -> None:
        self._seeking = False
        taken = {bundle.slot for bundle in event.layout.bundles} & self._unusable
        if taken:
            # more was lost while it was looked for
            self._seeking = True
            self._out.append(do.SeekRefuge(self.unusable))
            return
        if self._change is not None:
            self._refuse_change("slots were lost meanwhile", now)
        self._end(self.presence.known - event.layout.names)
        self._end(bundles_on_resized_slots(self.layout, event.layout))
        self.layout = event.layout
        self._want(self.layout, now)
        self._regather(now)

    def _no_refuge(self, event: ev.NoRefuge, _now: float) -> None:
        lost = ", ".join(sorted(map(str, self._unusable)))
        self._fail(f"slots that cannot be used: {lost}; nowhere else to go: {event.reason}")

    # Requests.

    def _change_asked(self, event: ev.ChangeAsked, now: float) -> None:
        if self._change is not None:
            self._out.append(do.Answer(event.request, "another change of plan is under way"))
            return
        if self.wanted is WantedState.END:
            self._out.append(do.Answer(event.request, "the run is ending"))
            return
        self._change = PendingChange(event.request, event.layout, now + self.patience.change)
        self._want(event.layout, now, bundles_on_resized_slots(self.layout, event.layout))

    def _refuse_change(self, reason: str, now: float) -> None:
        """The old layout goes on."""
        change = self._change
        if change is None:
            return
        self._change = None
        self._out.append(do.Answer(change.request, reason))
        if change.previous is not None:
            self.layout = change.previous
            self._end(bundles_on_resized_slots(change.layout, self.layout))
            self._want(self.layout, now)
            self._regather(now)
        self._end(change.layout.names - self.layout.names)

    def _drain_asked(self, event: ev.DrainAsked, _now: float) -> None:
        if self._drain is not None:
            self._out.append(do.Answer(event.request, "the run is being drained already"))
            return
        self.wanted = WantedState.END if event.end or self.wanted is WantedState.END else WantedState.HOLD
        self._drain = event.request

    def _resume_asked(self, event: ev.ResumeAsked, _now: float) -> None:
        if self.wanted is not WantedState.HOLD or self._drain is not None:
            self._out.append(do.Answer(event.request, "the run is not drained; drain it first"))
            return
        self.wanted = WantedState.FLOW
        self._out.append(do.Answer(event.request))

    # Time.

    def _tick(self, _event: ev.Tick, now: float) -> None:
        for name, process in self.presence.silent(now - self.patience.silence):
            self._died(name, f"nothing was heard of it for {now - process.last_heard:.1f} s", now)
        if self.state is FlowState.LINKING and now > self._linking_until:
            missing = ", ".join(sorted(self.layout.names - self._linked))
            self._out.append(do.Say(f"no links within {self.patience.link:g} s: {missing}"))
            self._regather(now)
        if self._change is not None and now > self._change.until:
            missing = ", ".join(self.presence.overdue(self._change.layout.names, now)) or "it did not flow"
            self._refuse_change(f"the new plan did not start within {self.patience.change:g} s: {missing}", now)
        self._mind_overdue(now)
        again = self.epochs.write_again(now)
        if again is not None:
            self._out.append(again)

    def _mind_overdue(self, now: float) -> None:
        never_flowed = self.generation == self._began_at
        patience = self.patience.first_start if never_flowed else self.patience.start
        late = self.presence.overdue(self.layout.names, now - patience)
        if not late or self._seeking or (self._change is not None and self._change.previous is not None):
            return
        if never_flowed:
            names = ", ".join(f"'{name}'" for name in late)
            self._fail(
                f"no slot for {names} within {patience:g} s; does the cluster have these nodes, and free slots on "
                "them? penstock cluster status"
            )
            return
        slots = {self.layout.by_name[name].slot for name in late}
        names = ", ".join(sorted(map(str, slots)))
        self._out.append(do.Say(f"nothing starts on {names} within {patience:g} s"))
        if self._is_led:
            self._end(frozenset(late))
            self._want(self.layout, now)
            return
        self._leave(slots, now)


_HANDLERS: dict[type, Callable[[FlowRun, Any, float], None]] = {
    ev.Hello: FlowRun._hello,
    ev.Beat: FlowRun._beat,
    ev.Lost: FlowRun._lost,
    ev.TaskEnded: FlowRun._task_ended,
    ev.Linked: FlowRun._linked_up,
    ev.Broken: FlowRun._broken,
    ev.Staged: FlowRun._staged,
    ev.GaveUp: FlowRun._gave_up,
    ev.Committed: FlowRun._committed,
    ev.NotCommitted: FlowRun._not_committed,
    ev.Fenced: FlowRun._fenced,
    ev.NodeGone: FlowRun._node_gone,
    ev.NodeBack: FlowRun._node_back,
    ev.RefugeFound: FlowRun._refuge_found,
    ev.NoRefuge: FlowRun._no_refuge,
    ev.ChangeAsked: FlowRun._change_asked,
    ev.DrainAsked: FlowRun._drain_asked,
    ev.ResumeAsked: FlowRun._resume_asked,
    ev.Tick: FlowRun._tick,
}
