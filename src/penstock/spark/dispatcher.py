"""The dispatcher of a run: it decides what every bundle does next, and hears what became of it.

It reads manifests, writes tickets, and deletes what every receiver has read. All it knows is in the run's folder, so
one that starts anew goes on where another stopped. Tickets are bounded: an overload shows as a backlog at the source,
because a bundle gets no ticket while one of its receivers has too much to read.
"""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.clock import Stopwatch, now
from penstock.errors import BadInputError
from penstock.files import write_text
from penstock.spark.channels import BundleFolder, Emission, Manifest, Position, Rows, Ticket
from penstock.spark.id_audit import IdAudit
from penstock.spark.tuple_files import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.report.report import Audit
    from penstock.spark.bundles import Bundle

UNREAD_TICKETS = 3
"""A receiver with so many tickets' worth of rows to read stops its senders."""
LARGEST_STEP = 20.0
"""The first tickets tell little: no ticket is more than so many times the one before."""
TIDY_SECONDS = 2.0
FEWEST_ROWS = 4
RESERVE_BYTES = 1_000_000
"""Room for the audit, and a little more, in a folder that is full."""


@dataclass
class _State:
    """One bundle as the dispatcher sees it."""

    bundle: Bundle
    folder: BundleFolder
    most_rows: int
    next_ticket: int = 0
    next_manifest: int = 0
    issued: dict[str, Position] = field(default_factory=dict)
    """How far it will have read when all its tickets are done."""
    read: dict[str, Position] = field(default_factory=dict)
    """How far it has read."""
    unread: dict[str, deque[tuple[int, str, int]]] = field(default_factory=dict)
    """By sender: manifest, file and rows that no ticket has named in full."""
    emitted: int = 0
    """Of a source: tuples its tickets have named."""
    emitted_done: int = 0
    kept_from: int = 0
    tickets: dict[int, Ticket] = field(default_factory=dict)
    """Of an aggregation: those without a manifest."""
    absorbed: Ticket | None = None
    """Of an aggregation: the one that is done, but that Spark may still run again."""
    last_seen: float | None = None

    @property
    def pending(self) -> int:
        return self.next_ticket - self.next_manifest

    def unread_rows(self) -> int:
        return sum(
            rows - (self.issued[sender].row if number == self.issued[sender].manifest else 0)
            for sender, waiting in self.unread.items()
            for number, _, rows in waiting
        )


@dataclass(frozen=True)
class Finished:
    """A ticket that was worked off: its manifest, and what left the pipeline there (None: nothing did)."""

    bundle: Bundle
    manifest: Manifest
    outcome: pa.Table | None


class Dispatcher:
    def __init__(
        self,
        folder: Path,
        bundles: Sequence[Bundle],
        most_rows: Callable[[Bundle], int],
        ticket_seconds: float,
        emitted: Mapping[str, int] | None = None,
        clock: Callable[[], float] = now,
        there_are: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`emitted`: how many tuples each source operator has emitted before this set of bundles took over.
        `there_are`: how many tuples a source can emit by now (None: there is no end).
        """
        self._folder = folder
        self._ticket_seconds = ticket_seconds
        self._clock = clock
        self._there_are = there_are
        self._start: float | None = None
        self._holding = False
        self._tidied = Stopwatch()
        self._no_ticket: str | None = None
        self._no_audit: str | None = None
        self._audit, self._folded = _saved(folder)
        self._states = {
            bundle.name: _State(
                bundle,
                BundleFolder(folder, bundle.name),
                max(FEWEST_ROWS, most_rows(bundle)),
                issued={sender: Position() for sender in bundle.senders},
                read={sender: Position() for sender in bundle.senders},
                unread={sender: deque() for sender in bundle.senders},
            )
            for bundle in bundles
        }
        for state in self._states.values():
            state.folder.create()
            if state.bundle.load is not None:
                state.emitted = state.emitted_done = (emitted or {}).get(state.bundle.operators[0], 0)
            self._recover(state)
        for state in self._states.values():
            self._recover_unread(state)

    # What the run asks and tells.

    def begin(self) -> None:
        """From now on sources emit, from where they are in their load."""
        self._holding = False
        reached = max((state.emitted for state in self._sources()), default=0)
        load = next(state.bundle.load for state in self._sources() if state.bundle.load is not None)
        behind = float(load.due_seconds(reached - 1, reached)[0]) if reached else 0.0
        self._start = self._clock() - behind

    def wake(self) -> None:
        """A ticket with nothing to do for every bundle that has none: its slot starts, its code is loaded."""
        for state in self._states.values():
            if not state.pending:
                self._issue(state, Ticket(state.next_ticket, ends=dict(state.issued)))

    @property
    def asleep(self) -> list[str]:
        """Bundles that have not worked off anything for this dispatcher."""
        return [name for name, state in self._states.items() if state.last_seen is None]

    def hold(self) -> None:
        """Sources emit nothing more."""
        self._holding = True

    @property
    def idle(self) -> bool:
        """Nothing is under way, and nothing will come while sources hold."""
        return all(not state.pending and not state.unread_rows() for state in self._states.values())

    @property
    def emitted(self) -> dict[str, int]:
        """Tuples of every source operator whose tickets are done."""
        return {state.bundle.operators[0]: state.emitted_done for state in self._sources()}

    @property
    def backlog(self) -> int:
        """Source tuples that are due but in no ticket yet."""
        return sum(max(0, self._due(state) - state.emitted) for state in self._sources())

    def waiting(self, bundle: str) -> tuple[int, float | None]:
        """Tickets the bundle has not worked off, and since when it has worked nothing off (None: it never has)."""
        state = self._states[bundle]
        return state.pending, state.last_seen

    @property
    def trouble(self) -> str | None:
        """Why something could not be written."""
        return self._no_ticket or self._no_audit

    def audit(self) -> Audit:
        unread = sum(state.unread_rows() for state in self._states.values())
        emitted = max(self.emitted.values(), default=0)
        return self._audit.audit(emitted, unread)

    def step(self) -> list[Finished]:
        """Hear what was done, order what is to be done; call often. What cannot be written (`trouble`) is tried again
        at the next turn."""
        finished = [one for state in self._states.values() for one in self._hear(state)]
        try:
            for state in self._states.values():
                while (ticket := self._next(state)) is not None:
                    self._issue(state, ticket)
            self._no_ticket = None
        except OSError as error:
            self._no_ticket = f"{self._folder}: {error.strerror or error}"
        if self._tidied.seconds() > TIDY_SECONDS:
            self.tidy()
        return finished

    def tidy(self) -> None:
        """Write down what was audited, then delete what everybody has read. Where the first fails the second waits: a
        folder that is full of what everybody has read gets room from its reserve."""
        self._tidied = Stopwatch()
        reserve = self._folder / "reserve"
        try:
            try:
                self._write_audit()
            except BadInputError:
                reserve.unlink(missing_ok=True)
                self._write_audit()
        except BadInputError as error:
            self._no_audit = str(error)
            return
        self._no_audit = None
        self._delete_what_was_read()
        if not reserve.exists():
            with suppress(OSError):
                reserve.write_bytes(bytes(RESERVE_BYTES))

    def _write_audit(self) -> None:
        document = {"folded": self._folded, "audit": self._audit.document()}
        write_text(self._folder / "audit.json", json.dumps(document))

    def _delete_what_was_read(self) -> None:
        for state in self._states.values():
            readers = [self._states[name] for name in state.bundle.receivers]
            everybody = min(
                (reader.read[state.bundle.name].manifest for reader in readers), default=state.next_manifest
            )
            if state.absorbed is not None:
                for number in state.folder.ticket_numbers():
                    if number < state.absorbed.number:
                        state.folder.forget_ticket(number)
            for number in range(state.kept_from, min(everybody, state.next_manifest - 1)):
                state.folder.forget_manifest(number)
                state.kept_from = number + 1

    # Hearing.

    def _hear(self, state: _State) -> list[Finished]:
        heard = []
        while state.pending and (manifest := state.folder.read_manifest(state.next_manifest)) is not None:
            heard.append(self._take_in(state, manifest))
        return heard

    def _take_in(self, state: _State, manifest: Manifest) -> Finished:
        outcome = self._fold(state, manifest)
        state.next_manifest = manifest.number + 1
        if state.bundle.aggregate is None:
            state.folder.forget_ticket(manifest.number)
            state.read.update(manifest.ends)
        else:
            manifest = self._absorb(state, manifest)
        state.last_seen = self._clock()
        if manifest.emitted_until is not None:
            state.emitted_done = manifest.emitted_until
        self._announce(state, manifest)
        self._resize(state, manifest)
        return Finished(state.bundle, manifest, outcome)

    def _absorb(self, state: _State, manifest: Manifest) -> Manifest:
        """What an aggregation took in stays with it. Spark may run its last batch again, with the same ticket: only
        when the next is done is the one before it safe, and what it read can go."""
        ticket = state.tickets.pop(manifest.number)
        if state.absorbed is not None:
            state.read.update(state.absorbed.ends)
        state.absorbed = ticket
        self._audit_absorbed(ticket)
        received, sent = ticket.size, int(manifest.used["groups"])
        counts = {"received": received, "sent": sent, "filtered": 0, "dead": 0}
        busy = manifest.used["wall_seconds"]
        return replace(
            manifest,
            counts={state.bundle.operators[0]: {**counts, "busy_seconds": busy}},
            used={**manifest.used, "rows": received},
        )

    def _audit_absorbed(self, ticket: Ticket) -> None:
        for part in ticket.rows:
            ids = read_table(self._folder / part.file)["id"].slice(part.first, part.last - part.first)
            self._audit.absorb(ids.to_numpy())

    def _fold(self, state: _State, manifest: Manifest) -> pa.Table | None:
        """Audit what left the pipeline with this ticket, once."""
        if manifest.number <= self._folded.get(state.bundle.name, -1):
            return None
        outcome = None if manifest.outcome is None else read_table(self._folder / manifest.outcome)
        if outcome is not None:
            self._audit.fold(outcome)
        self._folded[state.bundle.name] = manifest.number
        return outcome

    def _announce(self, state: _State, manifest: Manifest) -> None:
        for receiver, sent in manifest.sent.items():
            if sent.rows:
                self._states[receiver].unread[state.bundle.name].append((manifest.number, sent.file, sent.rows))

    def _resize(self, state: _State, manifest: Manifest) -> None:
        """So that a ticket holds about so many seconds of work."""
        wall = manifest.used["wall_seconds"]
        if manifest.size and wall > 0:
            factor = min(self._ticket_seconds / wall, LARGEST_STEP)
            wanted = max(FEWEST_ROWS, int(manifest.size * factor))
            if factor < 1 or wanted > state.most_rows:
                state.most_rows = wanted

    # Ordering.

    def _next(self, state: _State) -> Ticket | None:
        most = min(state.most_rows, self._room(state))
        if state.pending > 1 or most <= 0:
            return None
        ticket = self._emission(state, most) if state.bundle.load is not None else self._reading(state, most)
        # a second ticket behind the one under way only if it is full: what arrives meanwhile can still join it
        if ticket is None or (state.pending and ticket.size < state.most_rows):
            return None
        return ticket

    def _room(self, state: _State) -> int:
        """Rows the receivers still take, on the stream that takes the fewest."""
        room = state.most_rows
        for route in state.bundle.routes:
            readers = [self._states[target.bundle] for target in route.targets]
            room = min(
                room, sum(max(0, UNREAD_TICKETS * reader.most_rows - reader.unread_rows()) for reader in readers)
            )
        return room

    def _emission(self, state: _State, most: int) -> Ticket | None:
        due = self._due(state)
        if self._holding or self._start is None or due <= state.emitted:
            return None
        last = min(due, state.emitted + most)
        return Ticket(state.next_ticket, emission=Emission(state.emitted, last, self._start))

    def _reading(self, state: _State, most: int) -> Ticket | None:
        parts: list[Rows] = []
        ends = dict(state.issued)
        left = most
        for sender, waiting in state.unread.items():
            for number, file, rows in waiting:
                if left <= 0:
                    break
                first = ends[sender].row if number == ends[sender].manifest else 0
                last = min(rows, first + left)
                parts.append(Rows(file, first, last))
                left -= last - first
                ends[sender] = Position(number + 1, 0) if last == rows else Position(number, last)
        return Ticket(state.next_ticket, tuple(parts), ends=ends) if parts else None

    def _issue(self, state: _State, ticket: Ticket) -> None:
        state.folder.write_ticket(ticket)
        state.next_ticket = ticket.number + 1
        self._count_in(state, ticket)

    def _count_in(self, state: _State, ticket: Ticket) -> None:
        """A ticket that exists: what it names is no longer unread."""
        state.issued.update(ticket.ends)
        if state.bundle.aggregate is not None:
            state.tickets[ticket.number] = ticket
        if ticket.emission is not None:
            state.emitted = ticket.emission.last
        for sender, waiting in state.unread.items():
            while waiting and waiting[0][0] < state.issued[sender].manifest:
                waiting.popleft()

    def _due(self, state: _State) -> int:
        if self._start is None or state.bundle.load is None:
            return 0
        due = state.bundle.load.due(self._clock() - self._start)
        there_are = self._there_are()
        return due if there_are is None else min(due, there_are)

    def _sources(self) -> list[_State]:
        return [state for state in self._states.values() if state.bundle.load is not None]

    # Starting anew from what the folder holds.

    def _recover(self, state: _State) -> None:
        audited = self._folded.get(state.bundle.name, -1)
        numbers = state.folder.manifest_numbers()
        for number in numbers:
            manifest = state.folder.read_manifest(number)
            if manifest is None:
                continue
            self._fold(state, manifest)
            state.read.update(manifest.ends)
            if manifest.emitted_until is not None:
                state.emitted = state.emitted_done = manifest.emitted_until
        state.issued.update(state.read)
        if numbers:
            state.kept_from, state.next_manifest = numbers[0], numbers[-1] + 1
        state.next_ticket = state.next_manifest
        for number in state.folder.ticket_numbers():
            if number >= state.next_manifest:
                self._count_in(state, state.folder.read_ticket(number))
                state.next_ticket = number + 1
            elif state.bundle.aggregate is None:
                state.folder.forget_ticket(number)
            else:
                state.absorbed = state.folder.read_ticket(number)
                state.issued.update(state.absorbed.ends)
                if number > audited:
                    self._audit_absorbed(state.absorbed)

    def _recover_unread(self, state: _State) -> None:
        for sender, waiting in state.unread.items():
            folder = BundleFolder(self._folder, sender)
            for number in folder.manifest_numbers():
                manifest = folder.read_manifest(number)
                sent = None if manifest is None else manifest.sent.get(state.bundle.name)
                if sent is not None and sent.rows and number >= state.issued[sender].manifest:
                    waiting.append((number, sent.file, sent.rows))


def _saved(folder: Path) -> tuple[IdAudit, dict[str, int]]:
    """The audit so far, and up to which manifest of every bundle it goes."""
    path = folder / "audit.json"
    if not path.exists():
        return IdAudit(), {}
    document = json.loads(path.read_text("utf-8"))
    return IdAudit.of(document["audit"]), dict(document["folded"])
