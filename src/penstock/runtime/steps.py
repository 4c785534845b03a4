"""The operators that a slot runs as one: what each reads, which of them share threads, where their output goes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from penstock.base.clock import now
from penstock.dataflow.logic import Per
from penstock.runtime.batch import UNTRACED, Batch
from penstock.runtime.code_calls import Rows, columns, hash_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.dataflow.logic import Logic
    from penstock.runtime.account import Account
    from penstock.runtime.batch import Marks
    from penstock.runtime.code_calls import Piece, SharedRows

ENTRANCE = -1
"""The position of what enters a segment; one with several inputs has entrances -1, -2, ..."""


@dataclass(frozen=True, slots=True)
class Read:
    """One stream into a step."""

    position: int = ENTRANCE
    """The position of the earlier step that sends, or an entrance."""
    stream: int = 0
    """Its number (from 1) if paths must distinguish several streams between two steps; 0 if it is the only one."""
    share: tuple[float, float] = (0.0, 1.0)
    """The part of its sender's output that takes it, on a circle from 0 to 1 on which every row has a place."""

    @property
    def takes_all(self) -> bool:
        return self.share[1] - self.share[0] >= 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One operator."""

    operator: str
    logic: Logic | None = None
    """None for a source or a sink: rows pass unchanged."""
    threads: int = 1
    reads: tuple[Read, ...] = (Read(),)
    schema: pa.Schema | None = None
    """Schema of the output; None: that of the input."""
    leaves: bool = False
    """Its output leaves the segment."""
    delivers: bool = False
    """A sink: latency is measured and ids are audited here."""
    leaves_sight: bool = False
    """Its output continues without ids, to Spark's own operators, which the audit does not follow."""


def shares(weights: Sequence[float]) -> list[tuple[float, float]]:
    """The part of a sender's output each of its streams takes: a weight of 1 takes all; smaller ones lie end to end on
    the circle, so that streams whose weights add up to 1 divide the output among them, each row to one."""
    ranges = []
    reached = 0.0
    for weight in weights:
        if weight >= 1.0:
            ranges.append((0.0, 1.0))
        else:
            ranges.append((reached, reached + weight))
            reached = (reached + weight) % 1.0
    return ranges


def places_on_circle(
    marks: Marks, rows: int, first: int, salt: int, contents: Callable[[], NDArray[np.uint64]]
) -> NDArray[np.float64]:
    """Return the places of rows, from 0 to 1: always the same for the same row and sender (`salt`), and random, so
    that what one sender divides is divided evenly again by the next. Without ids their number counts, from `first`;
    of rows that cannot be traced a number made of their `contents` (`row_hashes`).

    The mix is the finaliser of splitmix64.
    """
    seeds = np.arange(first, first + rows, dtype=np.int64) if marks.ids is None else marks.ids
    if marks.ids is not None and (untraced := marks.ids == UNTRACED).any():
        seeds = np.where(untraced, contents().astype(np.int64), seeds)
    bits = seeds.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt * 0x632BE59B)
    if marks.path is not None:
        bits ^= marks.path.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    places: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return places


def on_share(places: NDArray[np.float64], share: tuple[float, float]) -> NDArray[np.bool_]:
    """Return which places lie on a part of the circle; one that ends beyond 1 continues at 0."""
    low, high = share
    within: NDArray[np.bool_] = (places >= low) & (places < high)
    return within | (places < high - 1.0) if high > 1.0 else within


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Steps that the same threads work on."""

    positions: tuple[int, ...]
    threads: int


def plan_pools(steps: Sequence[Step], *, alone: bool = False) -> list[PoolPlan]:
    """Return which steps share threads. Neighbours with one thread each stay in one, so that their
    batches need no queue; an operator with several threads has its own pool, so that others work while it waits. Steps
    without code need no thread. `alone`: one pool for all."""
    pools: list[tuple[list[int], int]] = []
    pool_of: dict[int, set[int]] = {}
    head = ENTRANCE
    """The pool with one thread that takes what enters, as soon as there is one."""
    for position, step in enumerate(steps):
        senders = set[int]().union(*({ENTRANCE} if r.position < 0 else pool_of[r.position] for r in step.reads))
        if step.logic is None:
            pool_of[position] = senders
            continue
        threads = 1 if alone else step.threads
        pool = min({head if sender == ENTRANCE else sender for sender in senders})
        joins = threads == 1 and pool != ENTRANCE and pools[pool][1] == 1 and senders <= {pool, ENTRANCE}
        if joins and (ENTRANCE not in senders or pool == head):
            pools[pool][0].append(position)
        else:
            pools.append(([position], threads))
            pool = len(pools) - 1
            if threads == 1 and senders == {ENTRANCE}:
                head = pool
        pool_of[position] = {pool}
    return [PoolPlan(tuple(positions), threads) for positions, threads in pools]


def pools_entered(steps: Sequence[Step], pool_of: Mapping[int, int]) -> dict[int, set[int]]:
    """Return, per entrance, the pools that its batches are queued in, at once or after steps without code."""
    entered: dict[int, set[int]] = {}
    entrances_of: dict[int, set[int]] = {}
    for position, step in enumerate(steps):
        entrances = set[int]().union(
            *({read.position} if read.position < 0 else entrances_of[read.position] for read in step.reads)
        )
        entrances_of[position] = entrances if step.logic is None else set()
        for entrance in entrances:
            entered.setdefault(entrance, set())
            if step.logic is not None:
                entered[entrance].add(pool_of[position])
    return entered


# Routing the output of a step.


@dataclass(slots=True)
class StepRoute:
    """The destinations of the output of one step, through steps without code too."""

    leaving: list[tuple[str, Batch]] = field(default_factory=list)
    """Batches that leave the segment, with their operator."""
    own_pool: list[tuple[int, Piece]] = field(default_factory=list)
    """Input for steps in the pool of the sender."""
    other_pools: list[tuple[int, Batch]] = field(default_factory=list)
    counts: list[Callable[[Account], None]] = field(default_factory=list)
    """Counts of the rows on their way."""


class Router:
    """`pool_of` has the pool of every step with code."""

    def __init__(self, steps: Sequence[Step], pool_of: Mapping[int, int]) -> None:
        self._steps = steps
        self._pool_of = pool_of
        self._readers: dict[int, list[tuple[int, Read]]] = {}
        for position, step in enumerate(steps):
            for read in step.reads:
                self._readers.setdefault(read.position, []).append((position, read))
        self._divides = frozenset(at for at, reads in self._readers.items() if not all(r.takes_all for _, r in reads))
        self.wants_columns = frozenset(at for at in pool_of if self._must_be_columns(at, pool_of[at]))
        """Steps whose code per row must have its rows made columns: they leave, or go to others than code per row of
        the same pool."""

    def _must_be_columns(self, position: int, pool: int) -> bool:
        for receiver, _ in self._readers.get(position, []):
            logic = self._steps[receiver].logic
            if logic is None:
                if self._must_be_columns(receiver, pool):
                    return True
            elif self._pool_of[receiver] != pool or logic.per is not Per.ROW:
                return True
        return self._steps[position].leaves

    def add(self, route: StepRoute, position: int, piece: Piece, pool: int | None, first: int) -> StepRoute:
        """Add to `route` where `piece` goes, which step `position` made in `pool`, or which entered there (None: in no
        pool). `first` is the number of rows that step made before. Return the route."""
        rows = len(piece)
        if not rows:
            return route
        if position >= 0:
            sender = self._steps[position]
            if sender.logic is None:
                route.counts.append(lambda account: account.passed(sender.operator, rows))
            if sender.leaves:
                route.leaving.append((sender.operator, columns(piece)))
            if sender.delivers:
                route.counts.append(lambda account: account.delivered(sender.operator, piece.marks, now()))
            if sender.leaves_sight:
                route.counts.append(lambda account: account.left_sight(piece.marks))
        readers = self._readers.get(position, ())
        divided = self._divided(position, piece, first, route) if position in self._divides else None
        for at, (receiver, read) in enumerate(readers, 1):
            part = (piece if divided is None else piece.take(divided[at - 1])).along(read.stream)
            if not len(part):
                continue
            if isinstance(part, Rows) and at < len(readers):
                part = part.copy()  # the last has the rows themselves
            if self._steps[receiver].logic is None:
                self.add(route, receiver, part, pool, first)
            elif pool is not None and self._pool_of[receiver] == pool:
                route.own_pool.append((receiver, part))
            else:
                route.other_pools.append((receiver, columns(part)))
        return route

    def _divided(self, position: int, piece: Piece, first: int, route: StepRoute) -> list[NDArray[np.bool_]]:
        """Return which rows each reader gets. Those that take none of the streams count as filtered by their sender."""
        operator = self._steps[position].operator if position >= 0 else str(position)
        salt = crc32(operator.encode())
        places = places_on_circle(piece.marks, len(piece), first, salt, lambda: hash_piece(piece))
        parts = [on_share(places, read.share) for _, read in self._readers[position]]
        taken = np.logical_or.reduce(parts)
        if not taken.all():
            filtered = int((~taken).sum()) if piece.marks.ids is None else piece.marks.ids[~taken]
            route.counts.append(lambda account: account.filtered(operator, filtered))
        return parts


# The queue in front of a pool: bounded, and cut into pieces that suit what a row takes.


PIECE_SECONDS = 0.025
"""Target duration of a piece. The next pool waits this long for its first piece; to hand one over takes a fraction of
a millisecond."""
MAX_PIECE_ROWS = 65_536
MIN_PIECE_PART = 4
"""Pieces shrink to this fraction of `PIECE_SECONDS` if that gives all threads some rows."""
OVERDUE_SECONDS = 0.025
"""Finished rows of a shared piece are sent this long after its last row was begun, even if other rows are slow."""


def next_piece_rows(rows: int, taken: int, seconds: float, wanted: float = PIECE_SECONDS) -> int:
    """Return how many rows to take next time, if `taken` of at most `rows` took `seconds`."""
    if seconds > 2 * wanted:
        return max(1, int(taken * wanted / seconds))
    if taken >= rows and seconds < wanted / 2:
        return min(MAX_PIECE_ROWS, 2 * rows)
    return rows


def rows_to_take(queued: int, threads: int, rows: int) -> int:
    """Return half of an even part for every thread, so that all end at the same time, but at least enough to be worth
    handing over and at most `rows`."""
    half = queued if threads == 1 else -(-queued // (2 * threads))
    return min(rows, max(half, rows // MIN_PIECE_PART, 1))


@dataclass(slots=True)
class _Queued:
    position: int
    batch: Batch
    nbytes: int
    since: float


@dataclass(slots=True)
class Pool:
    """Threads that run the same steps, and the queue in front of them."""

    number: int
    threads: int
    shares_rows: bool
    """Its threads process one piece together: several threads of code per row."""
    has_streams: bool
    """It has code over frames."""
    max_rows: int
    max_bytes: int
    rows: int = 0
    """Rows in the queue."""
    nbytes: int = 0
    at_work: int = 0
    """Items under way."""
    to_end: int = 0
    """Threads that have yet to end their streams."""
    shared: list[SharedRows] = field(default_factory=list)
    """Those of which a part is under way."""
    piece_rows: int = 1
    _queue: deque[_Queued] = field(default_factory=deque)

    @property
    def has_room(self) -> bool:
        return self.rows < self.max_rows and self.nbytes < self.max_bytes

    @property
    def is_idle(self) -> bool:
        return not self.rows and not self.at_work and not self.to_end

    def put(self, position: int, batch: Batch, now: float) -> None:
        nbytes = batch.nbytes
        self._queue.append(_Queued(position, batch, nbytes, now))
        self.rows += len(batch)
        self.nbytes += nbytes

    def take(self, now: float) -> tuple[int, Batch, float]:
        """Return the next piece: its step, its rows, and how long its first row has waited."""
        if self.shares_rows:
            wanted = min(MAX_PIECE_ROWS, self.threads * self.piece_rows)
        else:
            wanted = rows_to_take(self.rows, self.threads, self.piece_rows)
        first = self._queue[0]
        waited = now - first.since
        parts: list[Batch] = []
        while wanted and self._queue and self._queue[0].position == first.position:
            head = self._queue[0]
            size = len(head.batch)
            if parts and not parts[0].joins(head.batch):
                break
            if size <= wanted:
                parts.append(head.batch)
                self._queue.popleft()
                self.nbytes -= head.nbytes
                wanted -= size
            else:
                parts.append(head.batch.slice(0, wanted))
                left = head.nbytes * (size - wanted) // size
                self.nbytes -= head.nbytes - left
                head.batch, head.nbytes = head.batch.slice(wanted, size), left
                wanted = 0
        piece = Batch.concat(parts)
        self.rows -= len(piece)
        return first.position, piece, waited

    def joinable(self, now: float) -> SharedRows | None:
        """Return shared rows for one more thread: those that are overdue, else those with rows left to begin."""
        overdue = (shared for shared in self.shared if shared.since is not None and is_overdue(shared.since, now))
        return next(overdue, None) or next((shared for shared in self.shared if shared.to_begin), None)

    def clear(self) -> None:
        self._queue.clear()
        self.rows = self.nbytes = 0
        for shared in self.shared:
            shared.cut()


def is_overdue(since: float, now: float) -> bool:
    return now - since >= OVERDUE_SECONDS
