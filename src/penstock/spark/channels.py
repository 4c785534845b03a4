"""Channels: how bundles hand tuples to each other, exactly once, through a folder all machines share.

A **ticket** is a work order for a bundle: which rows of which files to process. The dispatcher writes tickets; Spark's
file source hands them, one per micro-batch, to the slot where the bundle runs. Whoever has worked one off writes the
rows it sends to files of its own and then publishes a **manifest**: one file that says where those rows are, for all
receivers at once. A manifest is published by creating a hard link, which fails if the name exists: of all attempts at
one ticket (Spark tried again, a slot thought dead came back) exactly one counts, and nothing is seen half written.

    RUN/bundles/<bundle>/tickets/<number>.json
    RUN/bundles/<bundle>/manifests/<number>.json
    RUN/bundles/<bundle>/data/<number>/<attempt>/<receiver>.arrow
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FIRST_TICKET_TIME = 1_000_000_000
"""Spark's file source takes files oldest first, by whole milliseconds: tickets get times that rise by their number."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a bundle has read one sender: all of the manifests before `manifest`, and `row` rows of that one."""

    manifest: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `first` to `last` (exclusive) of a file, relative to the run's folder."""

    file: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Emission:
    """Tuples `first` to `last` (exclusive) of a load that began at `start` (seconds since the epoch)."""

    first: int
    last: int
    start: float


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a bundle is to do next, and how far it will have read when that is done."""

    number: int
    rows: tuple[Rows, ...] = ()
    emission: Emission | None = None
    ends: Mapping[str, Position] = field(default_factory=dict)

    @property
    def size(self) -> int:
        if self.emission is not None:
            return self.emission.last - self.emission.first
        return sum(part.last - part.first for part in self.rows)

    def text(self) -> str:
        document: dict[str, Any] = {"number": self.number, "ends": _ends_document(self.ends)}
        if self.rows:
            document["rows"] = [[part.file, part.first, part.last] for part in self.rows]
        if self.emission is not None:
            document["emission"] = [self.emission.first, self.emission.last, self.emission.start]
        return json.dumps(document)

    @classmethod
    def of(cls, text: str) -> Self:
        document = json.loads(text)
        emission = document.get("emission")
        return cls(
            document["number"],
            tuple(Rows(*part) for part in document.get("rows", ())),
            None if emission is None else Emission(*emission),
            _ends(document["ends"]),
        )


@dataclass(frozen=True, slots=True)
class Sent:
    """Rows for one receiver, and the file they are in."""

    file: str
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What became of one ticket."""

    bundle: str
    number: int
    ends: Mapping[str, Position]
    emitted_until: int | None
    """Of a source: the tuples it has emitted so far."""
    sent: Mapping[str, Sent]
    outcome: str | None
    """The file with what was delivered, filtered or became a dead letter here."""
    counts: Mapping[str, Mapping[str, float]]
    """By operator: received, sent, filtered, dead, busy_seconds."""
    used: Mapping[str, float]
    """cpu_seconds and wall_seconds of the ticket; slot_cpu_seconds and slot_memory_mb of the slot's process tree."""
    where: Mapping[str, Any]
    """What Spark and the operating system say about where this ran."""
    begun: float
    finished: float
    shown: tuple[tuple[str, str], ...] = ()
    """(sink, tuple as text): a sample for the console."""

    @property
    def size(self) -> int:
        """Tuples taken in."""
        return int(self.used["rows"])

    def text(self) -> str:
        return json.dumps(
            {
                "bundle": self.bundle,
                "number": self.number,
                "ends": _ends_document(self.ends),
                "emitted_until": self.emitted_until,
                "sent": {name: [sent.file, sent.rows] for name, sent in self.sent.items()},
                "outcome": self.outcome,
                "counts": self.counts,
                "used": self.used,
                "where": self.where,
                "begun": self.begun,
                "finished": self.finished,
                "shown": self.shown,
            }
        )

    @classmethod
    def of(cls, text: str) -> Self:
        document = json.loads(text)
        document["ends"] = _ends(document["ends"])
        document["shown"] = tuple((sink, text) for sink, text in document["shown"])
        document["sent"] = {name: Sent(*sent) for name, sent in document["sent"].items()}
        return cls(**document)


def _ends_document(ends: Mapping[str, Position]) -> dict[str, list[int]]:
    return {sender: [position.manifest, position.row] for sender, position in ends.items()}


def _ends(document: Mapping[str, list[int]]) -> dict[str, Position]:
    return {sender: Position(*position) for sender, position in document.items()}


class BundleFolder:
    """The part of a run's folder that belongs to one bundle."""

    def __init__(self, run: Path, bundle: str) -> None:
        self.run = run
        self._folder = run / "bundles" / bundle
        self.tickets = self._folder / "tickets"
        self.manifests = self._folder / "manifests"
        self.data = self._folder / "data"

    def create(self) -> None:
        for folder in (self.tickets, self.manifests, self.data):
            folder.mkdir(parents=True, exist_ok=True)

    def write_ticket(self, ticket: Ticket) -> None:
        """Written beside the folder Spark watches, then moved into it."""
        temporary = self._folder / f"{_name(ticket.number)}.writing"
        temporary.write_text(ticket.text() + "\n", encoding="utf-8")
        moment = FIRST_TICKET_TIME + ticket.number
        os.utime(temporary, (moment, moment))
        temporary.replace(self.tickets / _name(ticket.number))

    def ticket_numbers(self) -> list[int]:
        return _numbers(self.tickets)

    def read_ticket(self, number: int) -> Ticket:
        return Ticket.of((self.tickets / _name(number)).read_text("utf-8"))

    def is_published(self, number: int) -> bool:
        return (self.manifests / _name(number)).exists()

    def publish(self, manifest: Manifest) -> bool:
        """False: another attempt was first, and stands."""
        temporary = self._folder / f"{uuid.uuid4().hex}.writing"
        temporary.write_text(manifest.text(), encoding="utf-8")
        try:
            os.link(temporary, self.manifests / _name(manifest.number))
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def manifest_numbers(self) -> list[int]:
        return _numbers(self.manifests)

    def read_manifest(self, number: int) -> Manifest | None:
        try:
            return Manifest.of((self.manifests / _name(number)).read_text("utf-8"))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def attempt(self, number: int) -> Iterator[Path]:
        """A folder for the files of one attempt at a ticket; gone again if the block fails."""
        folder = self.data / f"{number:09d}" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.run))

    def forget_ticket(self, number: int) -> None:
        (self.tickets / _name(number)).unlink(missing_ok=True)

    def forget_manifest(self, number: int) -> None:
        """And everything any attempt at that ticket wrote."""
        shutil.rmtree(self.data / f"{number:09d}", ignore_errors=True)
        (self.manifests / _name(number)).unlink(missing_ok=True)


def _name(number: int) -> str:
    return f"{number:09d}.json"


def _numbers(folder: Path) -> list[int]:
    return sorted(int(entry.name[:9]) for entry in folder.iterdir() if entry.name.endswith(".json"))
