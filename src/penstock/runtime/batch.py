"""What travels through a slot: rows as an Arrow record batch, and marks beside them that no code of a user's sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Seconds = NDArray[np.float64]

UNTRACED = -1
"""The id of a row of which nobody knows which source tuple it came from."""

_PRIME = 1_000_003
_MASK = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Marks:
    """Beside every row: `ids`, the number of the source tuple it descends from; `due`, when that was due (seconds since
    the epoch); `path`, which way it took since. No two rows at one operator share id and path.

    None: not tracked, as with a source of the user's own without audit. A path of None is 0 for all.
    """

    ids: Numbers | None = None
    due: Seconds | None = None
    path: Numbers | None = None

    @property
    def are_kept(self) -> bool:
        return self.ids is not None or self.due is not None

    def slice(self, start: int, stop: int) -> Marks:
        return self._each(np.s_[start:stop])

    def take(self, positions: NDArray[np.bool_] | Numbers) -> Marks:
        """Those at `positions`, or where a mask says so."""
        return self._each(positions)

    def _each(self, which: Any) -> Marks:
        return Marks(
            None if self.ids is None else self.ids[which],
            None if self.due is None else self.due[which],
            None if self.path is None else self.path[which],
        )

    def along(self, stream: int) -> Marks:
        """After taking stream `stream`; 0 is the only way between two operators, which paths need not tell apart."""
        if not stream or self.ids is None:
            return self
        path = np.zeros(len(self.ids), np.int64) if self.path is None else self.path
        return Marks(self.ids, self.due, mixed(path, stream))

    def of_children(self, parents: Numbers) -> Marks:
        """Of rows that code made of these: `parents` says at which position the parent of each stands, or UNTRACED.

        Several rows of one parent get paths of their own, in their order. What cannot be traced is due when the
        earliest that went in was, so that latency is never told too well.
        """
        if not self.are_kept:
            return self
        traced = parents >= 0
        ids = due = path = None
        if self.due is not None:
            earliest = self.due.min() if len(self.due) else 0.0
            due = np.where(traced, self.due[parents], earliest) if len(self.due) else np.zeros(len(parents))
        if self.ids is not None:
            if not len(self.ids):
                return Marks(np.full(len(parents), UNTRACED), due, None)
            ids = np.where(traced, self.ids[parents], UNTRACED)
            path = None if self.path is None else np.where(traced, self.path[parents], 0)
            path = _told_apart(parents, traced, path)
        return Marks(ids, due, path)

    def are_like(self, other: Marks) -> bool:
        """Both have ids, or neither, and so with when rows were due. Others do not join: what has no due time is of no
        latency, and no number stands for that."""
        return (self.ids is None, self.due is None) == (other.ids is None, other.due is None)

    @staticmethod
    def concat(parts: Sequence[tuple[Marks, int]]) -> Marks:
        """One after the other, all alike; each with its number of rows."""
        if len(parts) == 1:
            return parts[0][0]
        ids = [marks.ids for marks, _ in parts if marks.ids is not None]
        due = [marks.due for marks, _ in parts if marks.due is not None]
        path = None
        if any(marks.path is not None for marks, _ in parts):
            path = np.concatenate([np.zeros(rows, np.int64) if m.path is None else m.path for m, rows in parts])
        return Marks(np.concatenate(ids) if ids else None, np.concatenate(due) if due else None, path)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in (self.ids, self.due, self.path) if column is not None)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with the user's columns only, and their marks."""

    rows: pa.RecordBatch
    marks: Marks = Marks()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def ids(self) -> Numbers | None:
        return self.marks.ids

    @property
    def due(self) -> Seconds | None:
        return self.marks.due

    @property
    def path(self) -> Numbers | None:
        return self.marks.path

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) + self.marks.nbytes

    def slice(self, start: int, stop: int) -> Batch:
        """Rows from `start` to before `stop`, without a copy."""
        return Batch(self.rows.slice(start, max(0, stop - start)), self.marks.slice(start, stop))

    def take(self, which: NDArray[np.bool_] | Numbers) -> Batch:
        rows = self.rows.filter(pa.array(which)) if which.dtype == np.bool_ else self.rows.take(pa.array(which))
        return Batch(rows, self.marks.take(which))

    def along(self, stream: int) -> Batch:
        return Batch(self.rows, self.marks.along(stream))

    def joins(self, other: Batch) -> bool:
        """Whether they can be one: by their columns and by what is known of their rows."""
        return self.marks.are_like(other.marks) and bool(self.rows.schema.equals(other.rows.schema))

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        """One after the other; each joins the first."""
        if len(batches) == 1:
            return batches[0]
        return Batch(
            pa.concat_batches([batch.rows for batch in batches]),
            Marks.concat([(batch.marks, len(batch)) for batch in batches]),
        )


def joined_by_schema(batches: Sequence[Batch]) -> list[Batch]:
    """As few as there are changes of schema or of marks: senders of one sink need not have the same columns, nor all be
    the load generator."""
    joined: list[Batch] = []
    run: list[Batch] = []
    for batch in batches:
        if run and not run[0].joins(batch):
            joined.append(Batch.concat(run))
            run = []
        run.append(batch)
    return [*joined, Batch.concat(run)] if run else joined


def mixed(path: Numbers, step: Numbers | int) -> Numbers:
    """A 62-bit mix of the way so far and the next step; the same steps always give the same path.

    `((path + 1) * prime + step * 8191 + 7) mod 2**62`: 64-bit numbers that wrap have the same lowest 62 bits.
    """
    made: Numbers = ((path + 1) * _PRIME + step * 8_191 + 7) & _MASK
    return made


def _told_apart(parents: Numbers, traced: NDArray[np.bool_], path: Numbers | None) -> Numbers | None:
    """Paths in which the children of one parent differ: the k-th of several takes step `-1 - k`."""
    if len(parents) < 2 or (parents[1:] > parents[:-1]).all():
        return path
    order = np.argsort(parents, kind="stable")
    ordered = parents[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(first, len(ordered)))
    number = np.empty(len(parents), np.int64)
    number[order] = np.arange(len(parents)) - np.repeat(first, sizes)
    of_several = np.empty(len(parents), np.bool_)
    of_several[order] = np.repeat(sizes > 1, sizes)
    before = np.zeros(len(parents), np.int64) if path is None else path
    return np.where(of_several & traced, mixed(before, -1 - number), before)
