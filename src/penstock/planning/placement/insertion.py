"""Insert a pipeline that does not fit: threads that are placed are moved out of its way.

Every thread that finds no room looks for a node on which it would fit if some threads of one operator there went: to
other nodes, if those have room for them, else into the queue of threads to place, which only smaller ones may join (so
the queue ends). The fewest threads are displaced. A pipeline that cannot be inserted leaves everything as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE, covers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.ledger import Ledger

CANDIDATES = 12
"""Displacements looked at for one thread, those of the least size first."""
NODES = 64
"""Nodes looked at for one thread, those that miss the least first."""
STEPS_PER_THREAD, LEAST_STEPS = 4, 400


STEPS = 20_000
"""Displacements of one whole search."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A thread that found no room, and how things stood then. `operator` is counted within its pipeline."""

    operator: int
    free: NDArray[np.float64]
    free_slots: NDArray[np.int64]
    may_enter: NDArray[np.bool_]


@dataclass
class Effort:
    """Max and present cost of a search. One step is one thread, or a few alike, that displaces others."""

    steps_left: int
    moves: int = 0
    """Threads that were picked up again and put elsewhere."""


def scarcity(ledger: Ledger, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weight of each dimension: the wanted share of its capacity, relative to the size of a node.

    weight_d = (wanted_d / capacity_d) / capacity of the average node_d
    """
    capacity = ledger.room.capacity.sum(axis=0)
    share = np.where(capacity > 0, wanted / np.maximum(capacity, 1e-300), 0.0)
    top = share.max(initial=0.0)
    share = share / top if top > 0 else np.ones_like(share)
    per_node = capacity / max(len(ledger.room.capacity), 1)
    return np.where(per_node > 0, share / np.maximum(per_node, 1e-300), 0.0)


class Inserter:
    """Places pipelines of a ledger one after the other; `weights` turn amounts into sizes (`scarcity`)."""

    def __init__(self, ledger: Ledger, weights: NDArray[np.float64]) -> None:
        self._ledger = ledger
        self._weights = weights
        self._size = ledger.demand @ weights
        self.stuck: Stuck | None = None
        """Details of the last pipeline that was not inserted; None if it needs more than the whole cluster has."""

    def plain(self, number: int, *, close: bool = False) -> dict[int, int]:
        """Place the threads that fit, those with the fewest possible nodes and the largest first, each on the node it
        fills best (or, `close`, near those it exchanges tuples with). Return the threads that did not fit, by
        operator."""
        ledger = self._ledger
        tenant = ledger.tenants[number]
        left = {}
        for operator in sorted(tenant.operators, key=lambda o: (ledger.nodes_allowed(o), -self._size[o], o)):
            threads = tenant.request.operators[operator - tenant.first].threads
            threads -= self.spread(operator, threads, close=close)
            if threads:
                left[operator] = threads
        return left

    def spread(self, operator: int, threads: int, *, but: int | None = None, close: bool = False) -> int:
        """Place up to `threads` threads of one operator; return how many fitted."""
        ledger = self._ledger
        done = 0
        while done < threads:
            fits = np.flatnonzero(ledger.fits(operator, but=but))
            if not len(fits):
                break
            before = done
            for node in self._order(operator, fits, close=close).tolist():
                done += ledger.put(node, operator, threads - done)
                if done == threads or (close and done > before):
                    break
            if done == before:
                break
        return done

    def _order(self, operator: int, nodes: NDArray[np.int64], *, close: bool) -> NDArray[np.int64]:
        """Return nodes by their remaining resources, the least first: sum over dimensions of (weight x left)^2."""
        ledger = self._ledger
        gap = (ledger.free[nodes] - ledger.demand[operator]) * self._weights
        keys = [nodes, (gap**2).sum(axis=1)]
        if close:
            keys.append(-self._pull(operator)[nodes])
        preferred = ledger.preferred[operator]
        if preferred is not None:
            keys.append(-preferred[nodes])
        return nodes[np.lexsort(keys)]

    def _pull(self, operator: int) -> NDArray[np.float64]:
        """Return the part of the operator's exchange with others that would stay on every node and rack."""
        ledger = self._ledger
        tenant = ledger.tenants[ledger.tenant_of[operator]]
        size = len(tenant.request.operators)
        here = ledger.counts[:, tenant.first : tenant.first + size] @ tenant.weights[operator - tenant.first]
        rack = ledger.room.rack
        near = np.bincount(rack, weights=here)[rack]
        # If nothing pulls yet: the rack with the most room.
        room = (ledger.free * self._weights).sum(axis=1)
        roomy = np.bincount(rack, weights=room)[rack] / max(float(room.sum()), 1e-300)
        pull: NDArray[np.float64] = np.round(here + near, 9) + 1e-6 * np.round(roomy, 9)
        return pull

    def insert(self, number: int, effort: Effort, *, close: bool = False) -> bool:
        """Place a whole pipeline, moving others if needed. Return False if it does not fit; then nothing has
        changed."""
        ledger = self._ledger
        tenant = ledger.tenants[number]
        threads = np.array([operator.threads for operator in tenant.request.operators], dtype=float)
        if (threads @ ledger.demand[list(tenant.operators)] > ledger.free.sum(axis=0) + ledger.slack).any():
            self.stuck = None
            return False
        ledger.mark()
        queue = self.plain(number, close=close)
        done = self._settle(queue, effort)
        if not done:
            own = [operator for operator in queue if ledger.tenant_of[operator] == number]
            operator = max(own or tenant.operators, key=lambda o: (self._size[o], -o))
            free, slots = ledger.free.copy(), ledger.free_slots.copy()
            self.stuck = Stuck(operator - tenant.first, free, slots, ledger.may_enter(operator))
            ledger.undo()
        return done

    def pack(self, numbers: Sequence[int], effort: Effort) -> bool:
        """Place several pipelines whole, the largest threads of all first."""
        ledger = self._ledger
        queue = {
            operator: wanted.threads
            for number in numbers
            for operator, wanted in zip(
                ledger.tenants[number].operators, ledger.tenants[number].request.operators, strict=True
            )
        }
        return self._settle(queue, effort)

    def _settle(self, queue: dict[int, int], effort: Effort) -> bool:
        """Place the threads of a queue, the largest first, until it is empty or the search gives up."""
        budget = min(effort.steps_left, LEAST_STEPS + STEPS_PER_THREAD * sum(queue.values()))
        while queue and budget > 0:
            operator = max(queue, key=lambda o: (self._size[o], -o))
            threads = queue.pop(operator)
            threads -= self.spread(operator, threads)
            if not threads:
                continue
            budget -= 1
            effort.steps_left -= 1
            put = self._displace(operator, threads, queue, effort)
            if not put:
                queue[operator] = threads
                break
            if threads > put:
                queue[operator] = threads - put
        return not queue

    def _displace(self, operator: int, threads: int, queue: dict[int, int], effort: Effort) -> int:
        """Make room for one thread of an operator, or a few on the same node; returns how many were put down."""
        ledger = self._ledger
        for node, other, count in self._candidates(operator):
            if covers(self._size[other], self._size[operator]) and not self._room_for(other, count, but=node):
                continue
            picked = ledger.pick(node, other, count)
            put = ledger.put(node, operator, threads)
            back = ledger.put(node, other, picked)
            if not put:
                continue
            moved = self.spread(other, picked - back, but=node)
            effort.moves += picked - back
            if picked > back + moved:
                queue[other] = queue.get(other, 0) + picked - back - moved
            return put
        return 0

    def _candidates(self, operator: int) -> list[tuple[int, int, int]]:
        """(node, other operator, its threads) whose going would make room for a thread, the least displaced first."""
        ledger = self._ledger
        nodes = np.flatnonzero(ledger.may_enter(operator))
        if not len(nodes):
            return []
        short = np.maximum(ledger.demand[operator] - ledger.slack - ledger.free[nodes], 0.0)
        nearest = np.argsort(short @ self._weights, kind="stable")[:NODES]
        nodes, short = nodes[nearest], short[nearest]
        at, others = np.nonzero(ledger.counts[nodes])
        there = ledger.counts[nodes[at], others]
        demand = ledger.demand[others]
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(short[at] > 0, short[at] / demand, 0.0).max(axis=1, initial=0.0)
        # Nothing short, and still no room: the slots are full, and all of an operator must go to empty one.
        count = np.where(needed > 0, np.ceil(needed - TOLERANCE), there)
        good = (count <= there) & (others != operator)
        at, others, count = at[good], others[good], count[good].astype(int)
        order = np.argsort(count * self._size[others], kind="stable")[:CANDIDATES]
        return [(int(nodes[at[k]]), int(others[k]), int(count[k])) for k in order.tolist()]

    def _room_for(self, operator: int, count: int, *, but: int) -> bool:
        """Return whether that number of threads fits on other nodes, by their free resources."""
        ledger = self._ledger
        fits = ledger.fits(operator, but=but)
        demand = ledger.demand[operator]
        asked = demand > 0
        if not asked.any():
            return bool(fits.any())
        per_node = np.floor(((ledger.free[fits] + ledger.slack)[:, asked] / demand[asked]).min(axis=1, initial=np.inf))
        return bool(per_node.sum() >= count)
