"""What happened in a slot while it worked on a batch: counted in place, and sent on as one small record.

Accounts of tasks, batches and slots add up (`merge`). The record is versioned and holds no pickle: a header in JSON,
then the bitmaps of ids, if ids are audited.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.runtime.histogram import Histogram
from penstock.runtime.id_bitmaps import IdBitmaps

if TYPE_CHECKING:
    from penstock.runtime.batch import Marks, Numbers
    from penstock.runtime.dead_letters import DeadLetter
    from penstock.runtime.pieces import Outcome

MOST_ERRORS = 20
"""As many first errors are told; all are counted."""

_MAGIC = b"PnsA"
_VERSION = 1


class AccountError(ValueError):
    """Bytes that are no account, or one of a version that is not known here."""


@dataclass(slots=True)
class OperatorCount:
    """Of one operator. Everything adds up."""

    rows_in: int = 0
    rows_out: int = 0
    filtered: int = 0
    """Of what came in: nothing came of it."""
    dead: int = 0
    untraced: int = 0
    """Of what came in: code gave other rows and did not keep the index, so that what came of it is not known."""
    calls: int = 0
    busy_seconds: float = 0.0
    """Of all its threads, inside its code and what surrounds it."""
    cpu_seconds: float = 0.0
    waited_seconds: float = 0.0
    """What was taken from its queue had waited there, seconds times pieces."""
    pieces: int = 0
    """Taken from its queue."""

    def add(self, other: OperatorCount) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass(slots=True)
class Account:
    operators: dict[str, OperatorCount] = field(default_factory=dict)
    latency: dict[str, Histogram] = field(default_factory=dict)
    """By sink: seconds from when a row was due until it was there."""
    rows_in: int = 0
    bytes_in: int = 0
    memory_bytes: int = 0
    """Of the process, the most that was seen."""
    pieces_of_work: int = 0
    pieces_seconds: float = 0.0
    """Of CPU that pieces of work of fixed size took (`cpu_speed`)."""
    errors: list[tuple[str, int | None, str]] = field(default_factory=list)
    """The first ones: operator, id, error."""
    ids: IdBitmaps | None = None
    """Where ids are audited."""

    def count(self, operator: str) -> OperatorCount:
        counted = self.operators.get(operator)
        if counted is None:
            counted = self.operators[operator] = OperatorCount()
        return counted

    def entered(self, rows: int, size: int) -> None:
        self.rows_in += rows
        self.bytes_in += size

    def worked(self, operator: str, rows_in: int, outcome: Outcome, busy_seconds: float, cpu_seconds: float) -> None:
        count = self.count(operator)
        count.rows_in += rows_in
        count.rows_out += len(outcome.made)
        count.calls += outcome.calls
        count.busy_seconds += busy_seconds
        count.cpu_seconds += cpu_seconds
        self.died(outcome.letters)
        self.filtered(operator, outcome.filtered)
        untraced = outcome.untraced
        if isinstance(untraced, np.ndarray):
            count.untraced += len(untraced)
            if self.ids is not None:
                self.ids.lose_sight_of(untraced)
        else:
            count.untraced += untraced

    def filtered(self, operator: str, which: Numbers | int) -> None:
        if isinstance(which, np.ndarray):
            self.count(operator).filtered += len(which)
            if self.ids is not None:
                self.ids.filter(which)
        else:
            self.count(operator).filtered += which

    def died(self, letters: list[DeadLetter]) -> None:
        for letter in letters:
            self.count(letter.operator).dead += 1
            if len(self.errors) < MOST_ERRORS:
                self.errors.append((letter.operator, letter.id, letter.error))
            if self.ids is not None and letter.id is not None and letter.id >= 0:
                self.ids.dead.add(letter.id)

    def passed(self, operator: str, rows: int) -> None:
        """A step without code."""
        count = self.count(operator)
        count.rows_in += rows
        count.rows_out += rows

    def left_sight(self, marks: Marks) -> None:
        if self.ids is not None and marks.ids is not None:
            self.ids.lose_sight_of(marks.ids)

    def delivered(self, sink: str, marks: Marks, now: float) -> None:
        if marks.due is not None:
            self.latency.setdefault(sink, Histogram()).add(now - marks.due)
        if self.ids is not None and marks.ids is not None:
            self.ids.delivered_at(sink, marks)

    @property
    def dead(self) -> int:
        return sum(count.dead for count in self.operators.values())

    def merge(self, other: Account) -> None:
        for operator, count in other.operators.items():
            self.count(operator).add(count)
        for sink, histogram in other.latency.items():
            self.latency.setdefault(sink, Histogram()).merge(histogram)
        self.rows_in += other.rows_in
        self.bytes_in += other.bytes_in
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.pieces_of_work += other.pieces_of_work
        self.pieces_seconds += other.pieces_seconds
        self.errors = [*self.errors, *other.errors][:MOST_ERRORS]
        if other.ids is not None:
            self.ids = self.ids or IdBitmaps()
            self.ids.merge(other.ids)

    def to_bytes(self) -> bytes:
        blobs: list[bytes] = []
        header: dict[str, Any] = {
            "operators": {name: list(asdict(count).values()) for name, count in self.operators.items()},
            "latency": {sink: list(h.counts().items()) for sink, h in self.latency.items()},
            "rows_in": self.rows_in,
            "bytes_in": self.bytes_in,
            "memory_bytes": self.memory_bytes,
            "pieces_of_work": self.pieces_of_work,
            "pieces_seconds": self.pieces_seconds,
            "errors": self.errors,
            "ids": None if self.ids is None else self.ids.pack(blobs),
            "blobs": [len(blob) for blob in blobs],
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        return b"".join([_MAGIC, struct.pack("<BI", _VERSION, len(text)), text, *blobs])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        start = len(_MAGIC) + 5
        if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
            raise AccountError("no account of a slot")
        version, size = struct.unpack_from("<BI", data, len(_MAGIC))
        if version != _VERSION:
            raise AccountError(f"account of version {version}, expected {_VERSION}")
        header = json.loads(data[start : start + size])
        blobs, at = [], start + size
        for length in header["blobs"]:
            blobs.append(data[at : at + length])
            at += length
        if at != len(data):
            raise AccountError("account cut short")
        return cls(
            {name: OperatorCount(*values) for name, values in header["operators"].items()},
            {sink: Histogram.of(dict(counts)) for sink, counts in header["latency"].items()},
            header["rows_in"],
            header["bytes_in"],
            header["memory_bytes"],
            header["pieces_of_work"],
            header["pieces_seconds"],
            [(operator, number, error) for operator, number, error in header["errors"]],
            None if header["ids"] is None else IdBitmaps.unpack(header["ids"], blobs),
        )
