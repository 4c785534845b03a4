"""The conductor of a placed run: hears everybody, lets the state machine decide, and does what it says.

One thread turns the machine; others only read connections and put what they hear into its queue.
"""

from __future__ import annotations

import json
import queue
import uuid
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.clock import now
from penstock.errors import PenstockError, RunError
from penstock.flow import events as ev
from penstock.flow import instructions as do
from penstock.flow.checkpoint import NotWrittenError, ReplacedError
from penstock.flow.commit import Output, state_of
from penstock.flow.offsets import of_sources, taken_in
from penstock.flow.run import FlowRun
from penstock.flow.states import OVER, FlowState
from penstock.runtime.account import Account
from penstock.spark.placed import wire
from penstock.spark.placed.accept_loop import AcceptLoop
from penstock.spark.placed.committing import Committer, SinkAwayError
from penstock.spark.placed.orders import GenerationOrder
from penstock.spark.placed.peers import Peer, StagedDetails
from penstock.spark.placed.setting import EpochDone, StagedPart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.cluster.topology import Slot
    from penstock.flow.commit import Commit
    from penstock.runtime.id_bitmaps import IdBitmaps
    from penstock.spark.placed.launcher import Launcher
    from penstock.spark.placed.laying_out import LaidOut
    from penstock.spark.placed.setting import ConductorSetting
    from penstock.spark.placed.watched import Watched
    from penstock.spark.placed.wire import Address, Connection

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
        self.run = FlowRun(laid_out.layout, commit, setting.patience)
        self._number = commit.conductor
        self._events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
        self._peers: dict[int, Peer] = {}
        self._details: dict[tuple[str, int, int], StagedDetails] = {}
        self._watched: Watched = {}
        self._answers: dict[str, Future[None]] = {}
        self._committer = Committer(setting.checkpoint, commit, setting.publishers)
        self.done: deque[EpochDone] = deque()
        """Epochs that committed, for whoever observes the run to take."""
        self.places: dict[str, dict[str, Any]] = {}
        """By bundle: what was said of where it runs."""
        self.flowing_since: float | None = None
        self.formed = 0.0
        """When the generation of now was formed."""
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
        """Hear what there is, or wait for something for a moment."""
        with suppress(queue.Empty):
            event = self._events.get(timeout=seconds)
            self._handle(event)
            while True:
                self._handle(self._events.get_nowait())
        self._handle(ev.Tick())

    @property
    def is_over(self) -> bool:
        return self.run.state in OVER

    def _handle(self, event: ev.Event) -> None:
        for instruction in self.run.handle(event, now()):
            self._carry_out(instruction)
        if self.flowing_since is None and self.run.state is FlowState.FLOWING:
            self.flowing_since = now()

    def close(self) -> None:
        """Let go of everything; what is not committed never was."""
        for peer in list(self._peers.values()):
            peer.tell({"do": "end"})
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
        self._known = [*self._known[1 - MOST_KNOWN :], laid_out]

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
                peer.tell({"do": "limit", "limit": limit})

    @property
    def watched(self) -> Watched:
        return self._watched

    def watch(self, fields: Watched) -> None:
        """From now on these are counted; processes that start later are told too."""
        self._watched = dict(fields)
        for peer in list(self._peers.values()):
            self._tell_watched(peer)

    def _tell_watched(self, peer: Peer) -> None:
        peer.tell({"do": "watch", "fields": [[number, *watched] for number, watched in self._watched.items()]})

    # Doing.

    def _carry_out(self, instruction: do.Instruction) -> None:  # noqa: PLR0912 - one branch for each
        match instruction:
            case do.StartBundle(bundle, start):
                self._start(bundle.name, start)
            case do.EndBundle(name):
                self._end(name)
            case do.Dismiss(connection):
                self._dismiss(connection)
            case do.Form():
                self._form(instruction)
            case do.OpenEpoch(generation, epoch, hold):
                message = {"do": "epoch", "generation": generation, "epoch": epoch, "hold": hold}
                self._tell_sources(message)
            case do.Go(generation):
                self._tell_sources({"do": "go", "generation": generation})
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

    def _start(self, name: str, start: int) -> None:
        laid_out = next(known for known in reversed(self._known) if name in known.codes)
        bundle = laid_out.layout.by_name[name]

        def ended(reason: str) -> None:
            self._events.put(ev.TaskEnded(name, start, reason))

        self._launcher.start(bundle, laid_out.codes[name], start, self.address, self._credentials, ended)

    def _end(self, name: str) -> None:
        for peer in list(self._peers.values()):
            if peer.bundle == name:
                peer.tell({"do": "end"})
                return
        self._launcher.cancel(name)

    def _dismiss(self, connection: int) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None:
            peer.tell({"do": "end"})
            wire.close(peer.made)

    def _tell_sources(self, message: dict[str, Any]) -> None:
        for bundle in self.run.layout.emitting:
            connection = self.run.presence.processes[bundle.name].connection
            if connection is not None and connection in self._peers:
                self._peers[connection].tell(message)

    def _form(self, form: do.Form) -> None:
        laid_out = next(known for known in self._known if known.layout is form.layout)
        self.formed, self.first_tuple = now(), None
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
                {channel: _address(form.addresses[channel.receiver]) for channel in form.layout.out_of(name)},
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
            peer.tell({"do": "form", **order.document()})

    def _seek_refuge(self, unusable: Collection[Slot]) -> None:
        try:
            refuge = self.setting.refuge(unusable)
        except PenstockError as error:
            self._events.put(ev.NoRefuge(str(error)))
            return
        self._know(refuge)
        moved = ", ".join(sorted(refuge.layout.names - self.run.layout.names))
        self.setting.on_message(f"moved: {moved or 'nothing'}")
        self._events.put(ev.RefugeFound(refuge.layout))

    # Committing.

    def _write(self, asked: do.WriteCommit) -> None:
        parts = tuple(self._part(staged) for staged in asked.staged)
        try:
            commit = self._committer.commit(asked, [part.account for part in parts])
        except ReplacedError:
            lease = self.setting.checkpoint.lease
            by = "another process" if lease is None else f"process {lease.process} on {lease.host}"
            self._events.put(ev.Fenced(by))
            return
        except (NotWrittenError, OSError) as error:
            self._events.put(ev.NotCommitted(asked.before.epoch + 1, str(error), isinstance(error, SinkAwayError)))
            return
        self.setting.committed(commit)
        self.done.append(EpochDone(commit.epoch, now(), taken_in(commit.offsets), parts))
        for staged in asked.staged:
            details = self._details.pop((staged.bundle, staged.generation, staged.epoch), StagedDetails())
            for note in details.notes:
                self.setting.on_message(note)
            for sink, row in details.shown:
                self.setting.shown(sink, row)
        self._handle(ev.Committed(commit))

    @property
    def ids(self) -> IdBitmaps:
        """What was delivered since the run began."""
        return self._committer.ids

    def _part(self, staged: ev.Staged) -> StagedPart:
        details = self._details.get((staged.bundle, staged.generation, staged.epoch), StagedDetails())
        laid_out = next(known for known in reversed(self._known) if staged.bundle in known.codes)
        slot = laid_out.layout.by_name[staged.bundle].slot
        account = Account.from_bytes(staged.account)
        return StagedPart(staged.bundle, slot, account, details.hops, details.watched, details.lag, details.gone)

    # Hearing.

    def _listen(self, made: Connection, hello: dict[str, Any]) -> None:
        """The life of one bundle's connection."""
        bundle, start, where = str(hello["bundle"]), int(hello["start"]), dict(hello["where"])
        address = "{}:{}".format(*hello["address"])
        self._connections += 1
        connection = self._connections
        self._peers[connection] = Peer(bundle, made, where)
        self.places[bundle] = where
        self._events.put(ev.Hello(bundle, start, connection, address))
        reason = "its connection closed"
        try:
            while True:
                _, text, body = wire.receive_frame(made)
                self._hear(connection, bundle, json.loads(text), bytes(body))
        except (OSError, ValueError, KeyError) as error:
            reason = str(error)
        finally:
            wire.close(made)
            self._peers.pop(connection, None)
            self._events.put(ev.Lost(connection, reason))

    def _hear(self, connection: int, bundle: str, message: dict[str, Any], body: bytes) -> None:
        match message["say"]:
            case "beat":
                peer = self._peers.get(connection)
                if peer is not None:
                    peer.used = message["used"]
                self._events.put(ev.Beat(connection))
            case "linked":
                self._events.put(ev.Linked(bundle, message["generation"]))
            case "broken":
                self._events.put(ev.Broken(bundle, message["generation"], message["reason"]))
            case "first":
                if message["generation"] == self.run.generation and self.first_tuple is None:
                    self.first_tuple = now()
                    self.first_ever = self.first_ever or self.first_tuple
            case "gave up":
                self._events.put(ev.GaveUp(bundle, message["generation"], message["reason"]))
            case "staged":
                self._details[bundle, message["generation"], message["epoch"]] = StagedDetails.of(message)
                self._events.put(
                    ev.Staged(
                        bundle,
                        message["generation"],
                        message["epoch"],
                        message["offsets"],
                        message["states"],
                        tuple(Output(**output) for output in message["outputs"]),
                        body,
                    )
                )

    def used(self) -> dict[str, dict[str, float]]:
        """By bundle: CPU seconds and memory of its slot, as last heard."""
        return {peer.bundle: peer.used for peer in list(self._peers.values()) if peer.used}


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
