"""Place many pipelines together: the largest number of each priority that fits, the higher priority first.

The pipelines of a priority are first placed one after the other by the placer. If some do not fit, a search follows. It
ends as soon as all fit or the bound is reached:

1. they are inserted, the smallest first, and threads that are there move out of their way (`Inserter.insert`);
2. the whole priority is placed again in other orders, tightly: declared, smallest first, largest threads first;
3. everything so far and the pipeline that does not fit are packed anew from nothing, the largest threads of all first.

The answer with the most pipelines is taken, ties to the earlier attempt. The refusal of a pipeline that stays out lists
the attempts and the bound.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.errors import Refusal
from penstock.base.tolerance import TOLERANCE
from penstock.planning.placement.communication import valued
from penstock.planning.placement.constraints import ask
from penstock.planning.placement.insertion import LEAST_STEPS, STEPS, Effort, Inserter, scarcity
from penstock.planning.placement.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import Placement, PlacementRequest, Placer, Room


# Upper bound on the pipelines that fit, from the total resources of the nodes.


MIXES = (0.0, 0.5, 1.0)
"""Weights tried for every dimension."""


def total_demand(request: PlacementRequest) -> NDArray[np.float64]:
    """Return the total demand of all threads of a pipeline; memory they share is left out, so it is a lower bound."""
    rows = [np.multiply(operator.demand, operator.threads) for operator in request.operators]
    return np.sum(rows, axis=0) if rows else np.zeros(0)


def most_that_fit(sizes: NDArray[np.float64], capacity: NDArray[np.float64]) -> int:
    """The most pipelines whose demands (rows) fit into the capacity taken as one.

    A set that fits in every dimension also fits in any weighted sum of them, and of a sum the smallest go in first.
    The least over several weightings bounds the number: for weights w, the k smallest of w.x sum up to w.capacity.
    """
    most = len(sizes)
    share = sizes / np.where(capacity > 0, capacity, 1e-300)
    if share.shape[1] > 4:
        weights = [tuple(row) for row in np.eye(share.shape[1]).tolist()]
    else:
        weights = [mix for mix in product(MIXES, repeat=share.shape[1]) if any(mix)]
    for mix in weights:
        total = np.cumsum(np.sort(share @ np.array(mix)))
        most = min(most, int(np.count_nonzero(total <= sum(mix) * (1 + TOLERANCE))))
    return most


def greedy_orders(sizes: NDArray[np.float64], capacity: NDArray[np.float64]) -> list[list[int]]:
    """Orders in which to take pipelines so that many fit, the most promising first: by rising share of the capacity,
    the largest, the sum, or that of one dimension. Promising is what fits into the capacity taken as one."""
    share = sizes / np.where(capacity > 0, capacity, 1e-300)
    keys: Sequence[NDArray[np.float64]] = (share.max(axis=1, initial=0.0), share.sum(axis=1), *share.T)
    counts: dict[tuple[int, ...], int] = {}
    for key in keys:
        order = np.argsort(key, kind="stable")
        left = np.ones(share.shape[1])
        count = 0
        for position in order.tolist():
            if (share[position] <= left + TOLERANCE).all():
                left = left - share[position]
                count += 1
        counts.setdefault(tuple(order.tolist()), count)
    return [list(order) for order in sorted(counts, key=lambda order: -counts[order])]


ORDERS = 2
"""Orders of rising size that are placed tightly from the start."""
REBUILDS = 12
"""Times everything is packed anew."""


@dataclass(frozen=True, slots=True)
class Together:
    """The result of a pass."""

    placements: Mapping[str, Placement]
    refused: Mapping[str, Refusal]
    moved: int = 0
    """Threads that were put down and then moved for others."""


def place_together(placer: Placer, leveled: Sequence[tuple[PlacementRequest, object]], room: Room) -> Together:
    """`leveled`: pipelines with their level, in the order of the queue; equal levels stand together."""
    requests = valued([request for request, _ in leveled])
    levels = [list(numbers) for _, numbers in groupby(range(len(leveled)), key=lambda number: leveled[number][1])]
    # Pipelines whose streams are worth the most choose first, if all pipelines fit in that order.
    by_worth = [n for level in levels for n in sorted(level, key=lambda n: -(requests[n].streams_worth or 0.0))]
    placements, refused = one_by_one(placer, [requests[number] for number in by_worth], room)
    if not refused:
        return Together({request.pipeline: placements[request.pipeline] for request in requests}, {})
    search = _Search(placer, requests, room)
    for level in levels:
        search.place(level)
    return search.answer()


def one_by_one(
    placer: Placer, requests: Sequence[PlacementRequest], room: Room
) -> tuple[dict[str, Placement], dict[str, Refusal]]:
    """Each on what the earlier ones left."""
    left = copy(room)
    left.free, left.slots_taken, left.reserved = room.free.copy(), room.slots_taken.copy(), room.reserved.copy()
    placements: dict[str, Placement] = {}
    refused: dict[str, Refusal] = {}
    for request in requests:
        answer = ask(placer, request, left)
        if isinstance(answer, Refusal):
            refused[request.pipeline] = answer
        else:
            left.take(answer, {o.name: o.demand for o in request.operators}, request.constraints)
            placements[request.pipeline] = answer
    return placements, refused


class _Search:
    """The state of a pass that continues after the first refusal."""

    def __init__(self, placer: Placer, requests: Sequence[PlacementRequest], room: Room) -> None:
        self._placer, self._requests = placer, requests
        self._ledger = Ledger(room, requests)
        self._empty = self._ledger.fork()
        self._demand = np.array([total_demand(request) for request in requests]).reshape(len(requests), -1)
        self._capacity = self._ledger.free.sum(axis=0)
        self._weights = scarcity(self._ledger, self._demand.sum(axis=0))
        self._placed: list[int] = []
        self._refusals: dict[int, Refusal] = {}
        self._effort = Effort(STEPS)
        self._rebuilds = REBUILDS

    def place(self, level: list[int]) -> None:
        """Place the largest number of one level that fits."""
        base, before = self._ledger.fork(), list(self._placed)
        left = self._capacity - self._demand[before].sum(axis=0)
        self._one_by_one(level)
        missing = [number for number in level if number not in self._placed]
        if not missing:
            return
        possible = [number for number in level if number not in missing or self._may_ever(number)]
        bound = most_that_fit(self._demand[possible], left)
        self._insert(missing)
        got, best = len(self._placed), (self._ledger, self._placed)
        orders = 1
        for order, tight in self._orders(possible, left):
            if got - len(before) >= bound:
                break
            orders += 1
            self._ledger, self._placed = base.fork(), list(before)
            if not tight:
                self._one_by_one(order)
            self._insert([number for number in order if number not in self._placed], tight=tight)
            if len(self._placed) > got:
                got, best = len(self._placed), (self._ledger, self._placed)
        self._ledger, self._placed = best
        rebuilt = 0
        for number in self._smallest_first([n for n in possible if n not in self._placed]):
            if got - len(before) >= bound or not self._rebuilds:
                break
            if (self._demand[[*self._placed, number]].sum(axis=0) > self._capacity + self._ledger.slack).any():
                continue
            self._rebuilds -= 1
            rebuilt += 1
            if self._rebuild([*self._placed, number]):
                got += 1
        self._explain(level, bound, orders, rebuilt)

    def _one_by_one(self, order: Sequence[int]) -> None:
        """Each on what the earlier ones left, as the placer would have it."""
        for number in order:
            request = self._requests[number]
            answer = ask(self._placer, request, self._ledger.room_left())
            if isinstance(answer, Refusal):
                self._refusals.setdefault(number, answer)
            else:
                self._ledger.enter(number, answer)
                self._placed.append(number)

    def _orders(self, level: list[int], capacity: NDArray[np.float64]) -> Iterator[tuple[list[int], bool]]:
        """Other orders, and whether to place tightly from the start instead of as the placer would have it."""
        if level:
            orders = [[level[k] for k in order] for order in greedy_orders(self._demand[level], capacity)]
            yield orders[0], False
            yield from ((order, True) for order in orders[:ORDERS])
            yield level, True

    def _may_ever(self, number: int) -> bool:
        """Whether it can be placed on the empty cluster: what cannot need not be tried again."""
        if (self._demand[number] > self._capacity + self._ledger.slack).any():
            return False
        return not isinstance(ask(self._placer, self._requests[number], self._empty.room_left()), Refusal) or bool(
            Inserter(self._empty.fork(), self._weights).insert(number, Effort(LEAST_STEPS))
        )

    def _smallest_first(self, numbers: Sequence[int]) -> list[int]:
        share = self._demand / np.maximum(self._capacity, 1e-300)
        return sorted(numbers, key=lambda number: (float(share[number].max(initial=0.0)), number))

    def _insert(self, numbers: Sequence[int], *, tight: bool = False) -> None:
        inserter = Inserter(self._ledger, self._weights)
        for number in numbers if tight else self._smallest_first(numbers):
            if inserter.insert(number, self._effort, close=not tight):
                self._placed.append(number)

    def _rebuild(self, numbers: Sequence[int]) -> bool:
        """Pack all these pipelines anew, the largest threads of all first."""
        ledger = self._empty.fork()
        if not Inserter(ledger, self._weights).pack(numbers, self._effort):
            return False
        self._ledger, self._placed = ledger, list(numbers)
        return True

    def _explain(self, level: Sequence[int], bound: int, orders: int, rebuilt: int) -> None:
        placed = sum(number in self._placed for number in level)
        anew = f", everything packed anew ({_counted(rebuilt, 'time')})" if rebuilt else ""
        moved = _counted(self._effort.moves, "thread")
        tried = f"tried {_counted(orders, 'order')}, {moved} moved out of the way{anew}"
        all_of = _counted(len(level), "pipeline")
        of = f"of {all_of} of this priority {placed} are placed, and no placement holds more than {bound}"
        for number in level:
            if number not in self._placed:
                refusal = self._refusals.get(number)
                if refusal is None:
                    answer = ask(self._placer, self._requests[number], self._ledger.room_left())
                    refusal = answer if isinstance(answer, Refusal) else Refusal(self._placer.name, ())
                self._refusals[number] = replace(refusal, notes=(*refusal.notes, tried, of))

    def answer(self) -> Together:
        order = sorted(self._placed)
        placements = self._ledger.placements(order, self._placer.name)
        names = [request.pipeline for request in self._requests]
        refused = {names[n]: self._refusals[n] for n in range(len(names)) if n not in placements}
        return Together({names[n]: placement for n, placement in placements.items()}, refused, self._effort.moves)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
