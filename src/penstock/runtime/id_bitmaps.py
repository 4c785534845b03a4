"""The audit of ids inside a task: which source tuples came out, at which sink, on which path; which died on the way.

Sets of ids are roaring bitmaps: a stretch of consecutive ids costs a few bytes, whatever its length.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pyroaring import BitMap64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.runtime.batch import Marks, Numbers


@dataclass(slots=True)
class IdBitmaps:
    """Ids below 0 descend from many tuples, or nobody knows from which: they are counted, not audited."""

    delivered: dict[tuple[str, int], BitMap64] = field(default_factory=dict)
    """By sink and path."""
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
