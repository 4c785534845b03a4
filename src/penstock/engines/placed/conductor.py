"""The conductor of a placed run: hears everybody, lets the state machine decide, and does what it says.

One thread turns the machine; others only read connections and put what they hear into its queue.
"""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from penstock.base.clock import now
from penstock.base.errors import PenstockError, RunError
from penstock.connectors.checkpoint import NotWrittenError, ReplacedError
from penstock.connectors.commit import next_commit, of_sources, state_of, taken_in
from penstock.connectors.log_contract import LogError
from penstock.connectors.staged_sinks import PREFIX, TopicPublisher, TopicSink, publish
from penstock.connectors.storage import storage
from penstock.engines.placed import wire
from penstock.engines.placed.accept_loop import AcceptLoop
from penstock.engines.placed.flow import events as ev
from penstock.engines.placed.flow import instructions as do
from penstock.engines.placed.flow.run import FlowRun
from penstock.engines.placed.flow.states import OVER, FlowState
from penstock.engines.placed.messages import (
    BUNDLE_HELLOS,
    ORDERS,
    REPORTS,
    BeatReport,
    BrokenReport,
    EndOrder,
    EpochOrder,
    FirstReport,
    GaveUpReport,
    GenerationOrder,
    GoOrder,
    LimitOrder,
    LinkedReport,
    StagedReport,
    WatchOrder,
)
from penstock.runtime.account import Account, IdBitmaps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from penstock.cluster.topology import Slot
    from penstock.connectors.checkpoint import Checkpoint
    from penstock.connectors.commit import Commit, Output
    from penstock.dataflow.load import Load
    from penstock.engines.placed.bundle.generation import Watched
    from penstock.engines.placed.bundle_plan import LaidOut
    from penstock.engines.placed.flow.instructions import WriteCommit
    from penstock.engines.placed.flow.layout import Bundle
    from penstock.engines.placed.flow.states import Patience
    from penstock.engines.placed.launchers import Launcher
    from penstock.engines.placed.messages import Order, Report, TaskPlace
    from penstock.engines.placed.wire import Address, Connection


# The processes of bundles as the conductor knows them: a connection each, and the usage they reported last.


@dataclass
class Peer:
    bundle: str
    made: Connection
    used: Mapping[str, float] = field(default_factory=dict)
    sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, order: Order) -> None:
        text = ORDERS.encode(order)
        with self.sending, suppress(OSError):  # the thread that reads the connection finds out that it is gone
            wire.send_frame(self.made, 0, text)


# Settings of a conductor, and its record of every epoch.


@dataclass(frozen=True)
class ConductorSetting:
    """What a conductor needs besides the plan."""

    run: str
    checkpoint: Checkpoint
    host: str
    """The address of this machine that bundles reach."""
    load: Load
    began: float
    """When the load did; 0: it begins with the first generation."""
    refuge: Callable[[Collection[Slot]], LaidOut] | None
    """The plan without some slots; raises a PenstockError if there is none. None: a controller orders other plans, and
    a run that lost slots waits for one."""
    on_message: Callable[[str], None] = lambda _: None
    shown: Callable[[str, str], None] = lambda _sink, _row: None
    begun: Callable[[float], None] = lambda _: None
    """Hears when the load began."""
    committed: Callable[[Commit], None] = lambda _: None
    """Hears of every commit of an epoch."""
    patience: Patience | None = None
    limit: int | None = None
    publishers: Sequence[Publisher] = field(default_factory=lambda: (TopicPublisher(),))
    """Of sinks that are no files."""
    identity: str | None = field(default=None, repr=False)
    """A certificate and its key for the links, as PEM; None: no TLS."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one bundle did in an epoch that is committed."""

    bundle: str
    slot: Slot
    account: Account
    hops: Mapping[int, int]
    watched: tuple[tuple[int, int, int], ...] = ()
    """(number, above, total) of the fields that are watched."""
    lag: Mapping[str, int] = field(default_factory=dict)
    """Messages that wait, by source/topic/partition."""
    gone: Mapping[str, int] = field(default_factory=dict)
    """Messages that retention took before they were read."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    epoch: int
    finished: float
    offset: int
    """Tuples of the load, of the furthest source, that are committed with it."""
    parts: tuple[StagedPart, ...]


# Writing a commit: the audit beside it, the commit itself, then its outputs are made visible.


_LOG = logging.getLogger(__name__)

KEPT_AUDITS = 3
TIDIED_EPOCHS = 10
"""State files nobody needs are looked for once in so many epochs."""


class SinkAwayError(OSError, PenstockError):
    """A sink has not taken what a commit names: nothing is committed before it has."""


class Publisher(Protocol):
    """Sends on what commits name, where sinks are no files. Of the outputs of all sinks it takes its own."""

    def add(self, outputs: Iterable[Output]) -> None:
        """Of one epoch, which is committed."""

    def publish(self) -> None:
        """All that was added is where it belongs. Raises an OSError: it waits on, and this may be called again; or a
        RunFailedError: that is no use."""

    def begin(self) -> None:
        """As `publish`, as far as that is possible now; what is not done is done by the next `publish`."""

    @property
    def waits(self) -> bool:
        """Something was added and is not where it belongs."""

    def close(self) -> None: ...


class Committer:
    """`ids` is what was delivered, over all epochs that committed."""

    def __init__(self, checkpoint: Checkpoint, commit: Commit, publishers: Sequence[Publisher]) -> None:
        self._checkpoint = checkpoint
        self._store = storage(checkpoint.place)
        self._number = commit.conductor
        self._publishers = publishers
        for publisher in publishers:
            publisher.add(commit.outputs)
        self.ids = IdBitmaps()
        if commit.audit:
            self.ids = Account.from_bytes(self._store.read(commit.audit)).ids or IdBitmaps()

    def commit(self, asked: WriteCommit, accounts: Sequence[Account]) -> Commit:
        """All or nothing; called again with the same, it does the same. Raises ReplacedError, NotWrittenError,
        SinkAwayError or another OSError; or a RunFailedError where a sink will never take what is committed."""
        # publish all outputs of the last commit before there is another: afterwards nothing would publish them
        for publisher in self._publishers:
            try:
                publisher.publish()
            except OSError as error:
                raise SinkAwayError(_at_sink(error, asked.before.outputs)) from error
        ids = IdBitmaps()
        for known in (self.ids, *(account.ids for account in accounts)):
            if known is not None:
                ids.merge(known)
        audit = f"audit/{self._number}-{asked.before.epoch + 1}.bin"
        commit = next_commit(asked.before, self._number, asked.generation, asked.plan, asked.staged, audit)
        body = Account(ids=ids).to_bytes()
        self._store.write(audit, lambda file: file.write(body))
        self._checkpoint.write(commit)
        publish(commit.outputs)
        for publisher in self._publishers:
            publisher.add(commit.outputs)
            publisher.begin()
        self.ids = ids
        self._tidy(commit)
        return commit

    def close(self) -> None:
        """What is committed is sent, if that is possible; else whoever resumes the run does it (`unsent_note`)."""
        for publisher in self._publishers:
            try:
                publisher.publish()
            except (OSError, PenstockError) as error:
                _LOG.warning("committed, and waits to be sent by whoever resumes the run: %s", error)
            publisher.close()

    def _tidy(self, commit: Commit) -> None:
        """Files nobody will read again; what cannot be deleted is the next time."""
        with suppress(OSError):
            self._checkpoint.forget_old(commit.epoch)
            self._store.delete(f"audit/{self._number}-{commit.epoch - KEPT_AUDITS}.bin")
            if commit.epoch % TIDIED_EPOCHS:
                return
            needed = {where for groups in commit.states.values() for where in groups.values()}
            # files being staged for the next epoch are not named by any commit yet
            recent = tuple(f"-{epoch}.json.z" for epoch in range(commit.epoch - 1, commit.epoch + 3))
            for path in self._store.list("state"):
                if path not in needed and not path.endswith(recent):
                    self._store.delete(path)


def unsent_note(publishers: Iterable[Publisher], folder: str) -> str | None:
    """What the report of a run that is over says where its sinks have not got all that is committed."""
    if not any(publisher.waits for publisher in publishers):
        return None
    return f"the last epoch is committed and not in its sinks yet: resume the run to send it ({folder})"


def _at_sink(error: OSError, waiting: Iterable[Output]) -> str:
    """What a sink that Spark writes says names it; a log knows nothing of sinks, but they send to its topics."""
    if not isinstance(error, LogError):
        return str(error)
    topics = dict.fromkeys(TopicSink.of(output.sink).topic for output in waiting if output.sink.startswith(PREFIX))
    return f"topic sink {', '.join(map(repr, topics))} cannot be written: {error}"


TICK_SECONDS = 0.05
MOST_KNOWN = 8
"""Layouts that are remembered: the one that runs, the one before, one that is asked for."""


class Conductor:
    def __init__(self, setting: ConductorSetting, launcher: Launcher, laid_out: LaidOut, commit: Commit) -> None:
        self.setting = setting
        self._launcher = launcher
        self._known = [laid_out]
        """The newest last."""
        self._credentials = wire.Credentials(uuid.uuid4().bytes + uuid.uuid4().bytes, setting.identity)
        self.run = FlowRun(laid_out.layout, commit, setting.patience, is_led=setting.refuge is None)
        self._number = commit.conductor
        self._events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self._answered: deque[ev.Event] = deque()
        """Events by which this thread answers the instructions that it carries out."""
        self._peers: dict[int, Peer] = {}
        self._staged: dict[tuple[str, int, int], StagedReport] = {}
        self._watched: Watched = {}
        self._answers: dict[str, Future[None]] = {}
        self._committer = Committer(setting.checkpoint, commit, setting.publishers)
        self.done: deque[EpochDone] = deque()
        """Epochs that committed, for whoever observes the run to take."""
        self.places: dict[str, TaskPlace] = {}
        """The process of each bundle, as it described itself."""
        self.flowing_since: float | None = None
        self.formed = 0.0
        """When the generation of now was formed."""
        self.paused_since = 0.0
        """When rows last stopped to flow."""
        self.first_tuple: float | None = None
        """When its first tuple came to its end."""
        self.first_ever: float | None = None
        """When the first tuple of all came to its end."""
        self.stopped: do.Stop | None = None
        self.limit = setting.limit
        self.began = setting.began
        self._server = wire.listen(setting.host)
        self.address: Address = self._server.getsockname()[:2]
        self._connections = 0
        AcceptLoop(self._server, self._credentials, self._listen).start()

    # Turning.

    def turn(self, seconds: float = TICK_SECONDS) -> None:
        """Handle the events that are there, or wait a moment for one."""
        with suppress(queue.Empty):
            self._handle(self._events.get(timeout=seconds))
            while True:
                self._handle(self._events.get_nowait())
        self._handle(ev.Tick())

    @property
    def is_over(self) -> bool:
        return self.run.state in OVER

    def _handle(self, event: ev.Event) -> None:
        """Handle an event, then the answers to the instructions that came of it, before any other event."""
        self._answered.append(event)
        before = self.run.state
        while self._answered:
            for instruction in self.run.handle(self._answered.popleft(), now()):
                self._carry_out(instruction)
        if before is FlowState.FLOWING and self.run.state is not FlowState.FLOWING:
            self.paused_since = now()
        if self.flowing_since is None and self.run.state is FlowState.FLOWING:
            self.flowing_since = now()

    def close(self) -> None:
        """Let go of everything; what is not committed never was."""
        for peer in list(self._peers.values()):
            peer.send(EndOrder())
        self._launcher.close()
        wire.close(self._server)
        for peer in list(self._peers.values()):
            wire.close(peer.made)
        if self.run.state is not FlowState.FENCED:
            self._committer.close()

    # Asking.

    def drain(self, *, end: bool = False) -> Future[None]:
        return self._ask(lambda request: ev.DrainAsked(request, end))

    def resume(self) -> Future[None]:
        return self._ask(ev.ResumeAsked)

    def change(self, laid_out: LaidOut) -> Future[None]:
        self._know(laid_out)
        return self._ask(lambda request: ev.ChangeAsked(request, laid_out.layout))

    def _know(self, laid_out: LaidOut) -> None:
        recent = self._known[1 - MOST_KNOWN :]
        # changes that were refused must not push out the layout that runs
        running = [known for known in self._known[: -len(recent)] if known.layout is self.run.layout]
        self._known = [*running, *recent, laid_out]

    def _ask(self, make: Callable[[str], ev.Event]) -> Future[None]:
        request = uuid.uuid4().hex
        answer: Future[None] = Future()
        self._answers[request] = answer
        self._events.put(make(request))
        return answer

    def be_patient(self, seconds: float) -> None:
        """Wait at least so long for a process that is started anew: as it takes on this cluster."""
        patience = self.run.patience
        self.run.patience = replace(
            patience, start=max(patience.start, seconds), change=max(patience.change, seconds + patience.link)
        )

    def node_gone(self, node: str, reason: str) -> None:
        self._events.put(ev.NodeGone(node, reason))

    def node_back(self, node: str) -> None:
        self._events.put(ev.NodeBack(node))

    def more_tuples(self, limit: int) -> None:
        """There are as many by now."""
        if limit != self.limit:
            self.limit = limit
            for peer in list(self._peers.values()):
                peer.send(LimitOrder(limit))

    @property
    def watched(self) -> Watched:
        return self._watched

    def watch(self, fields: Watched) -> None:
        """From now on these are counted; processes that start later are told too."""
        self._watched = dict(fields)
        for peer in list(self._peers.values()):
            self._tell_watched(peer)

    def _tell_watched(self, peer: Peer) -> None:
        peer.send(WatchOrder(self._watched))

    # Doing.

    def _carry_out(self, instruction: do.Instruction) -> None:  # noqa: PLR0912 - one branch for each
        match instruction:
            case do.StartBundle(bundle, start):
                self._start(bundle, start)
            case do.EndBundle(name):
                self._end(name)
            case do.Dismiss(connection):
                self._dismiss(connection)
            case do.Form():
                self._form(instruction)
            case do.OpenEpoch(generation, epoch, hold):
                self._send_to_sources(EpochOrder(generation, epoch, hold))
            case do.Go(generation):
                self._send_to_sources(GoOrder(generation))
            case do.WriteCommit():
                self._write(instruction)
            case do.SeekRefuge(unusable):
                self._seek_refuge(unusable)
            case do.Answer(request, refused):
                answer = self._answers.pop(request)
                if refused is None:
                    answer.set_result(None)
                else:
                    answer.set_exception(RunError(refused))
            case do.Say(text):
                self.setting.on_message(text)
            case do.Stop():
                self._stop(instruction)

    def _stop(self, stop: do.Stop) -> None:
        self.stopped = stop
        for answer in self._answers.values():
            answer.set_exception(RunError(stop.failed or "the run has ended"))
        self._answers.clear()

    def _start(self, bundle: Bundle, start: int) -> None:
        laid_out = next(known for known in reversed(self._known) if known.layout.by_name.get(bundle.name) == bundle)

        def ended(reason: str) -> None:
            self._events.put(ev.TaskEnded(bundle.name, start, reason))

        self._launcher.start(bundle, laid_out.codes[bundle.name], start, self.address, self._credentials, ended)

    def _end(self, name: str) -> None:
        for peer in list(self._peers.values()):
            if peer.bundle == name:
                peer.send(EndOrder())
                return
        self._launcher.cancel(name)

    def _dismiss(self, connection: int) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            peer.send(EndOrder())
            wire.close(peer.made)

    def _send_to_sources(self, order: Order) -> None:
        for bundle in self.run.layout.emitting:
            connection = self.run.presence.processes[bundle.name].connection
            if connection is not None and connection in self._peers:
                self._peers[connection].send(order)

    def _form(self, form: do.Form) -> None:
        laid_out = next(known for known in self._known if known.layout is form.layout)
        self.formed, self.first_tuple = now(), None
        self._staged.clear()  # nothing of the generations before will be committed
        if not self.began:
            self.began = now()
            self.setting.begun(self.began)
        for name, connection in form.connections.items():
            peer = self._peers.get(connection)
            if peer is None:
                continue
            bundle = form.layout.by_name[name]
            states: dict[int, str] = {}
            for groups in bundle.groups:
                states.update(state_of(form.commit, groups.operator, groups.first, groups.end))
            order = GenerationOrder(
                self.setting.run,
                self._number,
                form.generation,
                form.commit.epoch,
                frozenset(form.layout.into(name)),
                tuple((channel, _address(form.addresses[channel.receiver])) for channel in form.layout.out_of(name)),
                laid_out.routes[name],
                dict(zip(bundle.operators, bundle.threads, strict=True)),
                of_sources(form.commit.offsets, bundle.sources),
                states,
                (bundle.groups[0].first, bundle.groups[0].end) if bundle.groups else (0, 0),
                form.held,
                name in form.careful,
                self.setting.load,
                self.began,
                self.limit,
                self.setting.checkpoint.place,
            )
            if self._watched:
                self._tell_watched(peer)
            peer.send(order)

    def _seek_refuge(self, unusable: Collection[Slot]) -> None:
        if self.setting.refuge is None:
            raise RuntimeError("a run that is led looked for another layout itself")
        try:
            refuge = self.setting.refuge(unusable)
        except PenstockError as error:
            self._answered.append(ev.NoRefuge(str(error)))
            return
        self._know(refuge)
        moved = ", ".join(sorted(refuge.layout.names - self.run.layout.names))
        self.setting.on_message(f"moved: {moved or 'nothing'}")
        self._answered.append(ev.RefugeFound(refuge.layout))

    # Committing.

    def _write(self, asked: do.WriteCommit) -> None:
        parts = tuple(self._part(staged) for staged in asked.staged)
        try:
            commit = self._committer.commit(asked, [part.account for part in parts])
        except ReplacedError:
            lease = self.setting.checkpoint.lease
            by = "another process" if lease is None else f"process {lease.process} on {lease.host}"
            self._answered.append(ev.Fenced(by))
            return
        except (NotWrittenError, OSError) as error:
            self._answered.append(ev.NotCommitted(asked.before.epoch + 1, str(error), isinstance(error, SinkAwayError)))
            return
        self.setting.committed(commit)
        self.done.append(EpochDone(commit.epoch, now(), taken_in(commit.offsets), parts))
        for staged in asked.staged:
            report = self._staged.pop((staged.bundle, staged.generation, staged.epoch))
            for note in report.notes:
                self.setting.on_message(note)
            for sink, row in report.shown:
                self.setting.shown(sink, row)
        self._answered.append(ev.Committed(commit))

    @property
    def ids(self) -> IdBitmaps:
        """What was delivered since the run began."""
        return self._committer.ids

    def _part(self, staged: ev.Staged) -> StagedPart:
        report = self._staged[staged.bundle, staged.generation, staged.epoch]
        laid_out = next(known for known in reversed(self._known) if staged.bundle in known.codes)
        slot = laid_out.layout.by_name[staged.bundle].slot
        account = Account.from_bytes(staged.account)
        return StagedPart(staged.bundle, slot, account, report.hops, report.watched, report.lag, report.gone)

    # Hearing.

    def _listen(self, made: Connection, greeting: bytes) -> None:
        """Read the reports of one bundle until its connection closes."""
        hello = BUNDLE_HELLOS.decode(greeting)
        self._connections += 1
        connection = self._connections
        self._peers[connection] = Peer(hello.bundle, made)
        self.places[hello.bundle] = hello.place
        self._events.put(ev.Hello(hello.bundle, hello.start, connection, "{}:{}".format(*hello.address)))
        reason = "its connection closed"
        try:
            while True:
                _, text, body = wire.receive_frame(made)
                self._take_in(connection, hello.bundle, REPORTS.decode(text), bytes(body))
        except (OSError, ValueError) as error:
            reason = str(error)
        finally:
            wire.close(made)
            self._peers.pop(connection, None)
            self._events.put(ev.Lost(connection, reason))

    def _take_in(self, connection: int, bundle: str, report: Report, body: bytes) -> None:
        match report:
            case BeatReport(used):
                peer = self._peers.get(connection)
                if peer is not None:
                    peer.used = used
                self._events.put(ev.Beat(connection))
            case LinkedReport(generation):
                self._events.put(ev.Linked(bundle, generation))
            case BrokenReport(generation, reason):
                self._events.put(ev.Broken(bundle, generation, reason))
            case FirstReport(generation):
                if generation == self.run.generation and self.first_tuple is None:
                    self.first_tuple = now()
                    self.first_ever = self.first_ever or self.first_tuple
            case GaveUpReport(generation, reason):
                self._events.put(ev.GaveUp(bundle, generation, reason))
            case StagedReport(generation, epoch, offsets, states, outputs):
                self._staged[bundle, generation, epoch] = report
                self._events.put(ev.Staged(bundle, generation, epoch, offsets, states, outputs, body))

    def used(self) -> dict[str, Mapping[str, float]]:
        """By bundle: CPU seconds and memory of its slot, as last heard."""
        return {peer.bundle: peer.used for peer in list(self._peers.values()) if peer.used}


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
