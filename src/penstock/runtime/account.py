"""What happened in a slot while it worked on a batch: counted in place, and sent on as one small record.

Accounts of tasks, batches and slots add up (`merge`). The record is versioned and holds no pickle: a header in JSON,
then the bitmaps of ids, if ids are audited.
"""

from __future__ import annotations

import json
import struct
from array import array
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pyroaring import BitMap64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.runtime.batch import Marks, Numbers
    from penstock.runtime.code_calls import Outcome
    from penstock.runtime.dead_letters import DeadLetter


# Histograms of durations, with the same bins everywhere, so that they can be added up.


_MANTISSA_BITS = 4
_SHIFT = 52 - _MANTISSA_BITS
_LOWEST_SECONDS = 2.0**-14
_HIGHEST_SECONDS = 2.0**18
_LOWEST_BIN = int(np.float64(_LOWEST_SECONDS).view(np.int64)) >> _SHIFT
_BINS = (int(np.float64(_HIGHEST_SECONDS).view(np.int64)) >> _SHIFT) - _LOWEST_BIN

RELATIVE_ERROR = 1 / 32
"""Of a quantile between 61 microseconds and 3 days: a bin is at most 1/16 of its low edge wide, its middle is told."""


def _bins(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    within = np.clip(seconds, _LOWEST_SECONDS, np.nextafter(_HIGHEST_SECONDS, 0))
    numbers: NDArray[np.int64] = (within.view(np.int64) >> _SHIFT) - _LOWEST_BIN
    return numbers


class Histogram:
    """Seconds, counted in 512 bins: every doubling from 2^-14 to 2^18 has 16 of equal width.

    A float's bits, cut after the exponent and 4 bits of the mantissa, ARE the number of its bin: nothing is computed.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)

    def add(self, seconds: NDArray[np.float64]) -> None:
        """NaN, of a row of which nobody knows when it was due, does not count."""
        if not len(seconds):
            return
        edges = np.array([seconds.min(), seconds.max()])
        if np.isnan(edges[0]):
            self.add(seconds[~np.isnan(seconds)])
            return
        # tuples that travel together were due at nearly the same time: most often one bin holds them all
        lowest, highest = _bins(edges).tolist()
        if lowest == highest:
            self._counts[lowest] += len(seconds)
        else:
            self._counts += np.bincount(_bins(seconds), minlength=_BINS)

    def merge(self, other: Histogram) -> None:
        self._counts += other._counts

    def __len__(self) -> int:
        """How many were added."""
        return int(self._counts.sum())

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of what was added does not exceed, within `RELATIVE_ERROR`; None: nothing was."""
        total = len(self)
        if not total:
            return None
        reached = np.cumsum(self._counts)
        bin_ = int(np.searchsorted(reached, max(1.0, share * total)))
        low, high = (np.int64((bin_ + step + _LOWEST_BIN) << _SHIFT).view(np.float64) for step in (0, 1))
        return float((low + high) / 2)

    def counts(self) -> dict[int, int]:
        """By bin, those that hold something."""
        return {int(bin_): int(self._counts[bin_]) for bin_ in np.flatnonzero(self._counts)}

    def seconds(self) -> dict[float, int]:
        """As `counts`, by the middle of each bin."""
        edges = ((bin_ + _LOWEST_BIN) << _SHIFT for bin_ in self.counts())
        middles = [float(np.int64(low).view(np.float64)) * (1 + RELATIVE_ERROR) for low in edges]
        return dict(zip(middles, self.counts().values(), strict=True))

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Self:
        made = cls()
        for number, count in counts.items():
            made._counts[number] = count
        return made


# The audit of ids inside a task: which source tuples came out, at which sink, on which path; which died on the way.
#
# Sets of ids are roaring bitmaps: a stretch of consecutive ids costs a few bytes, whatever its length.


@dataclass(slots=True)
class IdBitmaps:
    """Ids below 0 descend from many tuples, or nobody knows from which: they are counted, not audited."""

    delivered: dict[tuple[str, int], BitMap64] = field(default_factory=dict)
    """Ids by sink and path."""
    filtered: BitMap64 = field(default_factory=BitMap64)
    dead: BitMap64 = field(default_factory=BitMap64)
    untraced: BitMap64 = field(default_factory=BitMap64)
    """Went into code whose results cannot be traced: accounted for, whatever came of them."""
    duplicated: int = 0
    """Came more than once to one sink on one path."""

    def delivered_at(self, sink: str, marks: Marks) -> None:
        ids = marks.ids
        if ids is None or not len(ids):
            return
        if marks.path is None or (marks.path == marks.path[0]).all():
            self._deliver(sink, 0 if marks.path is None else int(marks.path[0]), ids)
            return
        for path in np.unique(marks.path):
            self._deliver(sink, int(path), ids[marks.path == path])

    def _deliver(self, sink: str, path: int, ids: Numbers) -> None:
        delivered, count = bitmap(ids)
        self._add(sink, path, delivered, count)

    def filter(self, ids: Numbers) -> None:
        self.filtered |= bitmap(ids)[0]

    def lose_sight_of(self, ids: Numbers) -> None:
        self.untraced |= bitmap(ids)[0]

    def _add(self, sink: str, path: int, delivered: BitMap64, count: int) -> None:
        before = self.delivered.setdefault((sink, path), BitMap64())
        self.duplicated += count - len(delivered) + delivered.intersection_cardinality(before)
        before |= delivered

    def merge(self, other: IdBitmaps) -> None:
        for (sink, path), ids in other.delivered.items():
            self._add(sink, path, ids, len(ids))
        self.filtered |= other.filtered
        self.dead |= other.dead
        self.untraced |= other.untraced
        self.duplicated += other.duplicated

    def accounted(self) -> BitMap64:
        """Of which something became."""
        return BitMap64.union(self.filtered, self.dead, self.untraced, *self.delivered.values())

    def pack(self, blobs: list[bytes]) -> dict[str, Any]:
        """What can be told in JSON; the bitmaps are appended to `blobs` in this order."""
        for ids in (self.filtered, self.dead, self.untraced, *self.delivered.values()):
            ids.run_optimize()
            blobs.append(ids.serialize())
        return {"delivered": [list(key) for key in self.delivered], "duplicated": self.duplicated}

    @classmethod
    def unpack(cls, header: dict[str, Any], blobs: Sequence[bytes]) -> Self:
        filtered, dead, untraced, *delivered = map(BitMap64.deserialize, blobs)
        keys = [(sink, path) for sink, path in header["delivered"]]
        return cls(dict(zip(keys, delivered, strict=True)), filtered, dead, untraced, header["duplicated"])


def bitmap(ids: Numbers) -> tuple[BitMap64, int]:
    """Those of 0 and above, and how many they were, equal ones too. A stretch of consecutive ids is told as such, and
    others as machine words: number by number it would take many times as long."""
    if not len(ids):
        return BitMap64(), 0
    first, last = int(ids[0]), int(ids[-1])
    if first >= 0 and last - first + 1 == len(ids) and (ids[1:] > ids[:-1]).all():
        return BitMap64(range(first, last + 1)), len(ids)
    known = ids if ids.min() >= 0 else ids[ids >= 0]
    return BitMap64(array("Q", known.astype(np.uint64).tobytes())), len(known)


MAX_ERRORS = 20
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
    sampled_rows: int = 0
    """Rows whose processing was measured (`call_sampler`)."""
    sampled_seconds: float = 0.0
    sampled_cpu_seconds: float = 0.0
    crossed: int = 0
    """Rows received from, or sent to, another process."""

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
    """Set if ids are audited."""
    cpu_seconds: float = 0.0
    """CPU of the whole process, all its threads; 0 if it was not measured."""
    held_bytes: int = 0
    """Memory that the process gained since its first account."""
    sampling_seconds: float = 0.0
    """CPU that measuring calls took."""

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
        self.died(outcome.dead_letters)
        self.filtered(operator, outcome.filtered)
        untraced = outcome.untraced
        if isinstance(untraced, np.ndarray):
            count.untraced += len(untraced)
            if self.ids is not None:
                self.ids.lose_sight_of(untraced)
        else:
            count.untraced += untraced

    def sampled(self, operator: str, rows: int, seconds: float, cpu_seconds: float) -> None:
        """Count rows whose processing was measured."""
        count = self.count(operator)
        count.sampled_rows += rows
        count.sampled_seconds += seconds
        count.sampled_cpu_seconds += cpu_seconds

    def waited(self, operator: str, seconds: float) -> None:
        """A piece was taken from the operator's queue."""
        count = self.count(operator)
        count.waited_seconds += seconds
        count.pieces += 1

    def filtered(self, operator: str, which: Numbers | int) -> None:
        if isinstance(which, np.ndarray):
            self.count(operator).filtered += len(which)
            if self.ids is not None:
                self.ids.filter(which)
        else:
            self.count(operator).filtered += which

    def died(self, dead_letters: list[DeadLetter]) -> None:
        for dead_letter in dead_letters:
            self.count(dead_letter.operator).dead += 1
            if len(self.errors) < MAX_ERRORS:
                self.errors.append((dead_letter.operator, dead_letter.id, dead_letter.error))
            if self.ids is not None and dead_letter.id is not None and dead_letter.id >= 0:
                self.ids.dead.add(dead_letter.id)

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
        self.cpu_seconds += other.cpu_seconds
        self.held_bytes += other.held_bytes
        self.sampling_seconds += other.sampling_seconds
        self.errors = [*self.errors, *other.errors][:MAX_ERRORS]
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
            "cpu_seconds": self.cpu_seconds,
            "held_bytes": self.held_bytes,
            "sampling_seconds": self.sampling_seconds,
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
            # accounts of earlier versions lack these
            header.get("cpu_seconds", 0.0),
            header.get("held_bytes", 0),
            header.get("sampling_seconds", 0.0),
        )
