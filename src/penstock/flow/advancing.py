"""What a placed run does next, whatever made it possible: processes are started, generations formed, epochs opened and
written, layouts changed, runs ended. Which state it is in decides; `Run` hears the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.flow import instructions as do
from penstock.flow.epochs import Epochs
from penstock.flow.presence import Presence
from penstock.flow.states import MOVES, OVER, FlowState, ImpossibleError, Patience, WantedState

if TYPE_CHECKING:
    from penstock.cluster.topology import Slot
    from penstock.flow.commit import Commit
    from penstock.flow.layout import Bundle, Layout


@dataclass(slots=True)
class PendingChange:
    """Another layout somebody asked for. Once `previous` is set it has taken over, but has not flowed yet."""

    request: str
    layout: Layout
    until: float
    previous: Layout | None = None


class Advancing:
    """A run without ears. `commit` is what it starts from."""

    def __init__(self, layout: Layout, commit: Commit, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
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

    # Moving on: what can be done next, whatever event made it possible.

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
            self._adopt(self._change)
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
            self._adopt(self._change)
            self._move(FlowState.GATHERING)
            return True
        if self.wanted is WantedState.FLOW:
            self._out.append(do.Go(self.generation))
            self._next_epoch = now + self.patience.epoch
            self._move(FlowState.FLOWING)
            return True
        return False

    def _is_ready(self, change: PendingChange) -> bool:
        return self.presence.has_all(change.layout.names)

    def _adopt(self, change: PendingChange) -> None:
        change.previous, self.layout = self.layout, change.layout
        self.wanted = WantedState.FLOW if self.wanted is WantedState.HOLD and self._drain is None else self.wanted

    # Helpers.

    def _bundles(self) -> dict[str, Bundle]:
        """Of every layout something is awaited for."""
        if self._change is None:
            return self.layout.by_name
        previous = {} if self._change.previous is None else self._change.previous.by_name
        return {**previous, **self._change.layout.by_name, **self.layout.by_name}

    def _want(self, layout: Layout, now: float) -> None:
        for bundle in layout.bundles:
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
