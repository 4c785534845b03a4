"""Dealing of a stream's tuples. Deterministic: by fixed patterns, or by keys drawn from a seeded generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.pipeline import KEYED, Grouping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.simulation.scenario import SimulatedRoute, Station

    Ints = NDArray[np.int64]

PATTERN = 4096
"""Length of a pattern whose weights are not whole numbers: the precision of a share."""

NOWHERE = -1


def pattern(counts: Sequence[int] | Ints) -> Ints:
    """Return targets in an order that gives target i `counts[i]` turns, evenly spread: turn j of target i comes at `(j
    + 1/2) / counts[i]` of the round, ties to the target declared first. No target is ever more than a turn from its
    share."""
    amounts = np.asarray(counts, dtype=np.int64)
    divisor = int(np.gcd.reduce(amounts)) or 1
    amounts = amounts // divisor
    targets = np.repeat(np.arange(len(amounts)), amounts)
    turns = np.arange(len(targets)) - np.repeat(np.cumsum(amounts) - amounts, amounts)
    due = (turns + 0.5) / amounts[targets]
    return targets[np.lexsort((targets, due))]


def whole_counts(weights: Sequence[float], length: int = PATTERN) -> Ints:
    """Whole numbers with the sum `length` in proportion to `weights`: rounded down, then up where most is missing."""
    exact = np.asarray(weights, dtype=float) * (length / sum(weights))
    counts = np.floor(exact).astype(np.int64)
    missing = length - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def zipf_shares(keys: int, skew: float) -> NDArray[np.float64]:
    """`p_n = n ** -skew / sum over m of m ** -skew` for n = 1, ..., keys."""
    weights = np.arange(1, keys + 1, dtype=float) ** -skew
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def hashed(keys: int, threads: int, salt: int) -> Ints:
    """A thread for every key 0, ..., keys - 1: SplitMix64 of the key, modulo the number of threads."""
    mixed = np.arange(keys, dtype=np.uint64) + np.uint64(salt * keys + 1)
    with np.errstate(over="ignore"):
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(threads)).astype(np.int64)


def slot_weights(stations: Sequence[Station]) -> Ints:
    """Return the turns of every station for slot-aware dealing: in proportion to its rate, or to its threads if one of
    them has no limit."""
    rates = [station.rate for station in stations]
    if not all(np.isfinite(rates)):
        return np.array([station.threads for station in stations], dtype=np.int64)
    if len(set(rates)) == 1:
        return np.ones(len(rates), dtype=np.int64)
    return whole_counts(rates, max(PATTERN, 16 * len(rates)))


class StreamDealer:
    """Deals the tuples of one route, in their order, to targets: stations of the receiver, or its threads.

    Threads are numbered through, station by station.
    """

    def __init__(
        self,
        route: SimulatedRoute,
        senders: Sequence[Station],
        receivers: Sequence[Station],
        *,
        by_thread: bool,
        draws: np.random.Generator,
    ) -> None:
        threads = np.array([station.threads for station in receivers], dtype=np.int64)
        self.every = route.grouping is Grouping.ALL
        self._bases = np.cumsum(threads) - threads if by_thread else np.arange(len(threads))
        self._threads = threads if by_thread else np.ones_like(threads)
        self._turn = 0
        self._local_turn = 0
        counts = slot_weights(receivers) if route.grouping is Grouping.SLOT_AWARE else threads
        total = int(threads.sum())
        self._order = _over_threads(counts, threads) if by_thread else pattern(counts)
        if self.every:
            self._order = np.arange(total) if by_thread else np.repeat(np.arange(len(threads)), threads)
        elif route.grouping is Grouping.GLOBAL:
            self._order = np.zeros(1, dtype=np.int64)
        self._listed: list[int] = self._order.tolist()
        self._locals: Ints | None = None
        if route.grouping is Grouping.LOCAL_OR_SHUFFLE:
            there = {station.slot: position for position, station in enumerate(receivers)}
            beside = [there.get(station.slot, NOWHERE) for station in senders]
            if any(position != NOWHERE for position in beside):
                self._locals = np.array(beside, dtype=np.int64)
        self._cumulative: NDArray[np.float64] | None = None
        self._choices: tuple[Ints, ...] = ()
        self._given = np.zeros(total, dtype=np.int64)
        self._draws = draws
        if route.grouping in KEYED and route.skew > 0:
            self._cumulative = np.cumsum(zipf_shares(route.keys, route.skew))
            self._cumulative[-1] = 1.0
            ways = 2 if route.grouping is Grouping.PARTIAL_KEY else 1
            self._choices = tuple(hashed(route.keys, total, salt) for salt in range(ways))

    @property
    def copies(self) -> int:
        """Targets that each tuple goes to."""
        return len(self._order) if self.every else 1

    def shares(self) -> NDArray[np.float64] | None:
        """Return the tuples every target gets for one tuple of the stream; None if that depends on senders, or on
        chance."""
        if self._locals is not None or len(self._choices) > 1:
            return None
        size = int(self._bases[-1] + self._threads[-1])
        if self._cumulative is not None:
            parts = np.diff(self._cumulative, prepend=0.0)
            return np.bincount(self._choices[0], weights=parts, minlength=size).astype(float)
        counts = np.bincount(self._order, minlength=size).astype(float)
        return counts if self.every else counts / len(self._order)

    @property
    def needs_senders(self) -> bool:
        return self._locals is not None

    def many(self, amount: int, senders: Ints | None = None) -> Ints:
        """Targets of the next tuples, `copies` of each; `senders` are the stations they come from."""
        if self.every:
            return np.tile(self._order, amount)
        if self._cumulative is not None:
            keys = np.searchsorted(self._cumulative, self._draws.random(amount), side="right")
            return self._choices[0][keys] if len(self._choices) == 1 else self._less_loaded(keys)
        if self._locals is None or senders is None:
            return self._turns(amount)
        beside = self._locals[senders]
        away = beside == NOWHERE
        targets = np.empty(amount, dtype=np.int64)
        targets[away] = self._turns(int(np.count_nonzero(away)))
        here = beside[~away]
        turns = self._local_turn + np.arange(len(here))
        targets[~away] = self._bases[here] + turns % self._threads[here]
        self._local_turn += len(here)
        return targets

    def next_target(self, sender: int) -> int:
        """Return the target of a single tuple; see `many`."""
        if self._cumulative is not None or self._locals is not None:
            return int(self.many(1, np.array([sender]))[0])
        turn = self._turn
        self._turn = turn + 1 if turn + 1 < len(self._listed) else 0
        return self._listed[turn]

    def all_targets(self) -> list[int]:
        """Return the targets of a route to every thread."""
        return self._listed

    def _turns(self, amount: int) -> Ints:
        length = len(self._order)
        if length == 1:
            return np.full(amount, self._order[0])
        rounds = -(-(self._turn + amount) // length)
        targets = np.tile(self._order, rounds)[self._turn : self._turn + amount]
        self._turn = (self._turn + amount) % length
        return targets

    def _less_loaded(self, keys: Ints) -> Ints:
        """Return, of the two threads of every key, the one that got less so far; ties to the first."""
        first, second = (choice[keys].tolist() for choice in self._choices)
        given = self._given.tolist()
        chosen = []
        for a, b in zip(first, second, strict=True):
            thread = a if given[a] <= given[b] else b
            given[thread] += 1
            chosen.append(thread)
        self._given = np.array(given, dtype=np.int64)
        return np.array(chosen, dtype=np.int64)


def _over_threads(counts: Ints, threads: Ints) -> Ints:
    """Turns of stations as turns of their threads: each thread of station i has `counts[i] / threads[i]`."""
    scale = np.lcm.reduce(threads // np.gcd(threads, counts))
    if int(scale) * int(counts.sum()) <= 16 * PATTERN * len(threads):
        return pattern(np.repeat(counts * scale // threads, threads))
    return pattern(whole_counts(np.repeat(counts / threads, threads).tolist(), max(PATTERN, 16 * int(threads.sum()))))
