"""Which bundle of the receiving operator gets a row: one rule per grouping.

Shuffle and slot-aware deal by the patterns of the simulation, so that nobody is ever more than a turn from its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from penstock.dataflow.pipeline import Grouping
from penstock.engines.placed.flow.layout import KEY_GROUPS, group_of, ranges
from penstock.runtime.batch import Batch, Marks, mixed
from penstock.runtime.dead_letters import StoppedError
from penstock.runtime.row_values import hash_contents, hash_rows
from penstock.runtime.steps import on_share, places_on_circle
from penstock.simulation.dealing import pattern, whole_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

THREAD_FIELD = "thread"
"""With grouping direct, the column that names the thread (from 0)."""


@dataclass(frozen=True, slots=True)
class ReceivingBundle:
    """One bundle of the receiving operator."""

    bundle: str
    threads: int
    capacity: float
    """Tuples/s it supports; any unit that is the same for all targets of a route."""
    local: bool
    """On the sender's slot."""


@dataclass(frozen=True, slots=True)
class Route:
    """One stream out of a bundle. `path` numbers it where paths must tell it apart, else 0; `share` is the part of its
    sender's output that takes it (`runtime.steps.shares`)."""

    stream: int
    sender: str
    path: int
    share: tuple[float, float]
    grouping: Grouping
    key: tuple[str, ...]
    targets: tuple[ReceivingBundle, ...]


class Dealer:
    """Deals the rows of one route; called by one thread at a time."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._salt = crc32(route.sender.encode())
        self._seen = 0
        targets = route.targets
        if route.grouping is Grouping.LOCAL_OR_SHUFFLE and any(target.local for target in targets):
            weights = [target.threads if target.local else 0 for target in targets]
        elif route.grouping is Grouping.SLOT_AWARE:
            weights = [int(count) for count in whole_counts([target.capacity for target in targets])]
        else:
            weights = [target.threads for target in targets]
        kept = [number for number, weight in enumerate(weights) if weight]
        self._pattern = np.array(kept)[pattern([weights[number] for number in kept])]
        self._turn = 0
        threads = [target.threads for target in targets]
        self._owner = np.repeat(np.arange(len(targets)), threads)
        """The target of every thread of the receiver."""
        edges = ranges(threads, KEY_GROUPS)
        self._owner_of_group = np.repeat(np.arange(len(targets)), [end - first for first, end in edges])
        self._load = np.zeros(len(self._owner), np.int64)

    def deal(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """For every target that gets some, its number and its rows."""
        batch = self._share(batch)
        if not len(batch):
            return
        grouping = self.route.grouping
        if grouping is Grouping.ALL:
            yield from self._to_all(batch)
        elif len(self.route.targets) == 1 or grouping is Grouping.GLOBAL:
            yield 0, batch
        else:
            chosen = self._choose(batch.rows, grouping)
            for target in np.unique(chosen):
                yield int(target), batch.take(np.flatnonzero(chosen == target))

    def _share(self, batch: Batch) -> Batch:
        if self.route.share[1] - self.route.share[0] < 1.0:
            places = places_on_circle(
                batch.marks, len(batch), self._seen, self._salt, lambda: hash_contents(batch.rows)
            )
            self._seen += len(batch)
            batch = batch.take(on_share(places, self.route.share))
        return batch.along(self.route.path)

    def _choose(self, rows: pa.RecordBatch, grouping: Grouping) -> Ints:
        if grouping is Grouping.FIELDS:
            hashes = self._hashes(rows)
            if len(self._owner) > KEY_GROUPS:
                return self._owner[(hashes % np.uint64(len(self._owner))).astype(np.int64)]
            return self._owner_of_group[group_of(hashes)]
        if grouping is Grouping.PARTIAL_KEY:
            return self._owner[self._less_loaded_of_two(self._hashes(rows))]
        if grouping is Grouping.DIRECT:
            return self._owner[named_threads(rows) % len(self._owner)]
        turns = (self._turn + np.arange(rows.num_rows)) % len(self._pattern)
        self._turn = (self._turn + rows.num_rows) % len(self._pattern)
        dealt: Ints = self._pattern[turns]
        return dealt

    def _hashes(self, rows: pa.RecordBatch) -> NDArray[np.uint64]:
        return hash_rows(rows, self.route.key)

    def _less_loaded_of_two(self, hashes: NDArray[np.uint64]) -> Ints:
        """Every key has two threads; each of its rows goes to the one that got fewer so far."""
        threads = np.uint64(len(self._owner))
        first = (hashes % threads).astype(np.int64)
        second = ((hashes // threads) % threads).astype(np.int64)
        load, chosen = self._load, np.empty(len(hashes), np.int64)
        for row, (first_choice, second_choice) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            taken = first_choice if load[first_choice] <= load[second_choice] else second_choice
            load[taken] += 1
            chosen[row] = taken
        return chosen

    def _to_all(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        """A copy for every thread; copies get paths of their own."""
        if len(self._owner) == 1:
            yield 0, batch
            return
        for thread, target in enumerate(self._owner):
            marks = batch.marks
            if marks.ids is not None:
                before = np.zeros(len(batch), np.int64) if marks.path is None else marks.path
                marks = Marks(marks.ids, marks.due, mixed(before, -1 - thread))
            yield int(target), Batch(batch.rows, marks)


def named_threads(rows: pa.RecordBatch) -> Ints:
    position = rows.schema.get_field_index(THREAD_FIELD)
    if position < 0:
        raise StoppedError(f"grouping direct: expected column '{THREAD_FIELD}' with threads from 0, found none")
    threads = rows.column(position)
    if threads.null_count:
        raise StoppedError(f"grouping direct: column '{THREAD_FIELD}' holds null")
    numbers: Ints = np.asarray(threads).astype(np.int64)
    if (numbers < 0).any():
        raise StoppedError(f"grouping direct: expected threads from 0, found {int(numbers.min())}")
    return numbers
