"""A placement in the making: nodes, their slots, and the threads on each."""

from __future__ import annotations

from collections import deque
from math import floor
from operator import ge, sub
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.tolerance import TOLERANCE
from penstock.planning.placement.communication import Talk, blocks, interleaved
from penstock.planning.placement.slots import bundled, slot_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.planning.placement.contract import PlacedBundle, PlacementRequest, Room


# Fill bins (nodes, or slots) with a pipeline, block by block.


LOOK_BACK = 6
"""Bins behind the current one in which a thread that no longer fits the current one is tried."""


def fill(
    talk: Talk,
    counts: Sequence[int],
    demand: NDArray[np.float64],
    room: NDArray[np.float64],
    together: Sequence[Sequence[int]],
) -> tuple[NDArray[np.float64], list[int]]:
    """Threads of each operator in each bin (bins x operators), and how many found no bin.

    `room` is what each bin offers, bins in the order in which they are to be opened; `demand` is what one
    thread of each operator takes. `together`
    are the blocks of operators to keep together, in order.
    """
    held = np.zeros((len(room), talk.size))
    left = room.copy()
    missing = [0] * talk.size
    opened = 0
    slack = TOLERANCE * room.max(axis=0)
    takes = demand.tolist()
    needs = (demand - slack).tolist()
    for block in together:
        whole = np.zeros(talk.size)
        whole[block] = [counts[operator] for operator in block]
        need = whole @ demand - slack
        reach = min(opened + 1, len(room))
        fits = np.flatnonzero((left[:reach] >= need).all(axis=1))
        if len(fits):
            pull = held[fits] @ (talk.pull @ whole)
            # The bin it talks to most; among equals the fullest open one.
            spare = (left[fits] / np.maximum(room[0], 1e-300)).sum(axis=1)
            bin_ = int(fits[np.lexsort((spare, -pull))[0]])
            held[bin_] += whole
            left[bin_] -= whole @ demand
            opened = max(opened, bin_ + 1)
        else:
            sequence = interleaved(block, counts)
            opened = _spread(sequence, needs, takes, held, left, opened, missing)
    return held, missing


def _spread(
    sequence: Sequence[int],
    needs: list[list[float]],
    takes: list[list[float]],
    held: NDArray[np.float64],
    left: NDArray[np.float64],
    opened: int,
    missing: list[int],
) -> int:
    """Thread by thread, in the order of `sequence`; returns how many bins are open afterwards."""
    recent: deque[tuple[int, list[float], list[int]]] = deque(maxlen=LOOK_BACK)
    if opened:
        recent.append((opened - 1, left[opened - 1].tolist(), [0] * len(needs)))
    closed: list[tuple[int, list[float], list[int]]] = []
    full = [False] * len(needs)
    for operator in sequence:
        need = needs[operator]
        if full[operator]:
            missing[operator] += 1
            continue
        for current in reversed(recent):
            free = current[1]
            if all(map(ge, free, need)):
                break
        else:
            while opened < len(left):
                current = (opened, left[opened].tolist(), [0] * len(needs))
                opened += 1
                if len(recent) == recent.maxlen:
                    closed.append(recent[0])
                recent.append(current)
                free = current[1]
                if all(map(ge, free, need)):
                    break
            else:
                full[operator] = True
                missing[operator] += 1
                continue
        current[2][operator] += 1
        free[:] = map(sub, free, takes[operator])
    for bin_, free, row in [*closed, *recent]:
        left[bin_] = free
        held[bin_] += row
    return opened


# Local search: move threads between bins, or swap them, while the network cost falls.
#
# Moving w (threads per operator; negative where threads come back) from bin s to bin t changes the overlap by
#
# sum over levels at which s and t differ of  w' Q (c_t - c_s) + w' Q w
#
# with c the contents of the groups that s and t belong to at that level.


WORTHWHILE = 1e-2
"""The least gain, in streams, that is worth a move."""
TARGETS = 3
"""Bins in which a bundle looks for room: those it talks to most."""


class Search:
    """Bins, their contents, and the groups they belong to at each level (the first level: the bin itself)."""

    def __init__(
        self,
        talk: Talk,
        demand: NDArray[np.float64],
        room: NDArray[np.float64],
        held: NDArray[np.float64],
        levels: Sequence[NDArray[np.int64]],
    ) -> None:
        self.talk = talk
        self.demand = demand
        self.held = held
        self.free = room - held @ demand
        self.slack = TOLERANCE * room.max(axis=0, initial=0.0)
        self.levels = levels
        self._demand_rows, self._slack_row = demand.tolist(), self.slack.tolist()
        self._group_of = [level.tolist() for level in levels]
        self._members: list[dict[int, NDArray[np.int64]]] = [{} for _ in levels]
        self._loops = np.diag(talk.pull).copy()
        self._looped = bool(self._loops.any())
        self.pull = np.zeros_like(held)
        for level in levels:
            group = np.zeros((int(level.max(initial=0)) + 1, talk.size))
            np.add.at(group, level, held)
            self.pull += (group @ talk.pull)[level]

    def overlap(self) -> float:
        """Return the saving of the contents over all levels: each bin's pull already sums them up."""
        return 0.5 * float((self.held * self.pull).sum())

    def run(self, tries: int) -> None:
        """Try bundles, those with the most to gain first, round after round until nothing helps or `tries` are
        spent."""
        better = len(self.held) > 1
        while better and tries > 0:
            better = False
            hope = self.held * (self.pull.max(axis=0) - self.pull + len(self.levels) * self.held * self._loops)
            bins, operators = np.nonzero(hope > WORTHWHILE)
            order = np.argsort(-hope[bins, operators], kind="stable")[:tries]
            tries -= len(order)
            for bin_, operator in zip(bins[order].tolist(), operators[order].tolist(), strict=True):
                better |= self._improve(bin_, operator)

    def _improve(self, s: int, a: int) -> bool:
        """Move the threads of a on s, all or one, to a bin with more exchange, alone or in a swap."""
        count = self.held.item(s, a)
        loop = self._loops.item(a)
        pull = self.pull[:, a]
        wish = pull - pull[s]
        if loop:
            wish += self._apart(s) * (count * loop)
        wish *= count
        wish[s] = -np.inf
        t = int(wish.argmax())
        most = wish.item(t)
        if most <= WORTHWHILE:
            return False
        free, demand = self.free[t].tolist(), self._demand_rows[a]
        if self._covers(free, demand, count):
            self._shift(s, t, a, count)
            return True
        if self._covers(free, demand, 1.0):
            part = floor(
                min((f + slack) / d for f, d, slack in zip(free, demand, self._slack_row, strict=True) if d > 0)
            )
            gain = part * (pull.item(t) - pull.item(s) + self._levels_apart(s, t) * part * loop)
            if gain > WORTHWHILE:
                self._shift(s, t, a, part)
                return True
        targets: list[int] = []
        alone: list[float] = []
        while len(targets) < TARGETS and most > 0:
            targets.append(t)
            alone.append(most)
            wish[t] = -np.inf
            t = int(wish.argmax())
            most = wish.item(t)
        exchange = _Exchange(self, s, a, targets)
        if exchange.try_out(count, alone):
            return True
        if count <= 1:
            return False
        return exchange.try_out(
            1.0,
            [
                gain / count - apart * ((count - 1) * loop)
                for gain, apart in zip(alone, exchange.levels_apart, strict=True)
            ],
        )

    def _covers(self, free: list[float], demand: list[float], times: float) -> bool:
        return all(f >= times * d - slack for f, d, slack in zip(free, demand, self._slack_row, strict=True))

    def _apart(self, s: int) -> NDArray[np.float64]:
        """At how many levels each bin is in another group than s."""
        apart: NDArray[np.float64] = np.sum([level != level[s] for level in self.levels], axis=0, dtype=float)
        return apart

    def _levels_apart(self, s: int, t: int) -> int:
        return sum(group_of[s] != group_of[t] for group_of in self._group_of)

    def _shift(self, s: int, t: int, a: int, x: float) -> None:
        self.held[s, a] -= x
        self.held[t, a] += x
        self.free[s] += x * self.demand[a]
        self.free[t] -= x * self.demand[a]
        change = x * self.talk.pull[a]
        for level, group_of in enumerate(self._group_of):
            if group_of[s] != group_of[t]:
                self.pull[self._in_group(level, group_of[s])] -= change
                self.pull[self._in_group(level, group_of[t])] += change

    def _in_group(self, level: int, group: int) -> NDArray[np.int64]:
        members = self._members[level].get(group)
        if members is None:
            members = self._members[level][group] = np.flatnonzero(self.levels[level] == group)
        return members


class _Exchange:
    """Threads of a on bin s against those of other operators on a few target bins: what an exchange gains, so far as
    it does not depend on how many threads of a go."""

    def __init__(self, search: Search, s: int, a: int, targets: list[int]) -> None:
        self._search, self._s, self._a, self._targets = search, s, a, targets
        self.levels_apart = [search._levels_apart(s, t) for t in targets]
        held = search.held[targets]
        held[:, a] = 0.0
        self._at, self._others = at, others = np.nonzero(held)
        self._there = held[at, others]
        apart = np.array(self.levels_apart, dtype=float)[at]
        rows = np.array(targets)[at]
        self._pulled = search.pull[s, others] - search.pull[rows, others]
        self._between = apart * search.talk.pull[a, others]
        self._loops = apart * search._loops[others] if search._looped else None

    def try_out(self, x: float, alone: list[float]) -> bool:
        """Move x threads of a to one of the targets, alone (which gains `alone`) or in a swap with all threads of one
        operator there, or with one if one of a moves. Return False if no move gains enough."""
        search, s, a = self._search, self._s, self._a
        gain, target, other, back = WORTHWHILE, -1, -1, 0.0
        for position, t in enumerate(self._targets):
            fits = alone[position] > gain and search._covers(search.free[t].tolist(), search._demand_rows[a], x)
            if fits:
                gain, target = alone[position], t
        there = self._there if x > 1 else np.minimum(self._there, 1.0)
        swap = self._pulled - (2.0 * x) * self._between
        if self._loops is not None:
            swap += there * self._loops
        swap = there * swap + np.array(alone)[self._at]
        better = np.flatnonzero(swap > gain)
        if len(better):
            at, others = self._at[better], self._others[better]
            more = x * search.demand[a] - there[better][:, None] * search.demand[others]
            free = search.free[self._targets][at]
            fits_both = ((free - more >= -search.slack) & (search.free[s] + more >= -search.slack)).all(axis=1)
            if fits_both.any():
                best = int(np.where(fits_both, swap[better], -np.inf).argmax())
                target, other, back = self._targets[int(at[best])], int(others[best]), there.item(int(better[best]))
        if target < 0:
            return False
        search._shift(s, target, a, x)
        if other >= 0:
            search._shift(target, s, other, back)
        return True


# The best of several fills, each improved by local search: used for nodes, and for the slots of each
# node.


SCALES = (1.0, 0.8, 0.5)
"""Bin sizes, as parts of the real one, for which blocks are formed: smaller blocks leave fewer gaps, larger
ones keep more streams inside. None is best everywhere."""
TRIES, THOROUGH_TRIES = 2, 6
"""Bundles tried per stream: a try costs the same in every pipeline, and its possible gain is proportional to its
streams."""
SEARCHED = 0.3
"""Streams per bin from which local search runs: below, the share of an operator in one bin is small, and so
is what could be gained."""
MOST_BINS = 2000
"""Beyond this many no search: every try looks at all of them."""
THOROUGH = 2.5
"""Streams per bin from which every scale is tried."""


def arrange(
    talk: Talk,
    counts: Sequence[int],
    demand: NDArray[np.float64],
    room: NDArray[np.float64],
    groups: Sequence[NDArray[np.int64]],
    *,
    spare: int,
) -> tuple[NDArray[np.float64], list[int]]:
    """Return the threads of each operator in each bin (bins x operators), and the number without a bin.

    `groups`: the group of each bin, per level above the bin; `spare`: the number of unused bins the search may open.
    """
    if not len(room):
        return np.zeros((0, talk.size)), list(counts)
    streams = talk.overlap(np.array([counts], dtype=float))
    present = [operator for operator, count in enumerate(counts) if count]
    best: tuple[tuple[float, float], NDArray[np.float64], list[int]] | None = None
    for scale in SCALES:
        together = [present] if streams < SEARCHED else blocks(talk, counts, scale * room[0], demand)
        held, missing = fill(talk, counts, demand, room, together)
        full = held.any(axis=1)
        bins = int(full.sum())
        if (bins <= 1 and not any(missing)) or not _searchable(streams, bins):
            return held, missing
        saved = improve(talk, demand, room, held, groups, spare=spare)
        rank = (-float(sum(missing)), saved)
        if best is None or rank > best[0]:
            best = (rank, held, missing)
        if streams < THOROUGH * bins:
            break
    return best[1:] if best else (np.zeros((len(room), talk.size)), list(counts))


def improve(
    talk: Talk,
    demand: NDArray[np.float64],
    room: NDArray[np.float64],
    held: NDArray[np.float64],
    groups: Sequence[NDArray[np.int64]],
    *,
    spare: int = 0,
) -> float:
    """Local search over the used bins and `spare` unused ones, in place; returns what their contents save."""
    full = held.any(axis=1)
    streams = talk.overlap(held.sum(axis=0, keepdims=True))
    if not _searchable(streams, int(full.sum())):
        return 0.0
    used = np.concatenate([np.flatnonzero(full), np.flatnonzero(~full)[:spare]])
    levels = [np.arange(len(used)), *(np.unique(group[used], return_inverse=True)[1] for group in groups)]
    search = Search(talk, demand, room[used], held[used], levels)
    search.run(1 + int(streams * (THOROUGH_TRIES if streams >= THOROUGH * full.sum() else TRIES)))
    held[used] = search.held
    return search.overlap()


def _searchable(streams: float, bins: int) -> bool:
    return streams >= SEARCHED * bins and bins <= MOST_BINS


class NodeLayout:
    """Threads per operator on each slot the pipeline has opened so far. The room itself is not changed."""

    def __init__(self, request: PlacementRequest, room: Room, talk: Talk) -> None:
        self.room = room
        self.talk = talk
        self.free = room.free.copy()
        self.slack = TOLERANCE * room.capacity.max(axis=0, initial=0.0)
        axis = room.memory_axis
        off_heap = np.array([operator.constraints.off_heap_mb for operator in request.operators])
        self.memory = (talk.demand[:, axis] - off_heap).clip(min=0.0) if axis is not None else np.zeros(talk.size)
        """Heap of its slot that one thread takes."""
        self.limit = slot_limit(request, room)
        self.slots: dict[int, list[NDArray[np.float64]]] = {}
        self._known: dict[tuple[object, ...], tuple[NDArray[np.float64], list[int]]] = {}

    def node_demand(self) -> NDArray[np.float64]:
        return np.column_stack([self.talk.demand, self.memory])

    def node_room(self, nodes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the offer of nodes: their free resources and the memory of all their slots together."""
        slots = self.room.slots[nodes] - self.room.slots_taken[nodes]
        limit = self.limit[nodes]
        total = np.where(np.isinf(limit), 1e18, limit) * slots
        return np.column_stack([np.maximum(self.free[nodes], 0.0), total])

    def deal(self, node: int, counts: NDArray[np.float64]) -> list[int]:
        """Deal threads to fresh slots of a node; returns those that found none."""
        limit = min(float(self.limit[node]), 1e18)
        slots = int(self.room.slots[node] - self.room.slots_taken[node])
        key = (counts.tobytes(), limit, slots)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._dealt(counts, limit, slots)
        rows, missing = known
        self.slots[node] = list(rows.copy())
        self.free[node] -= rows.sum(axis=0) @ self.talk.demand
        return missing

    def _dealt(self, counts: NDArray[np.float64], limit: float, slots: int) -> tuple[NDArray[np.float64], list[int]]:
        demand = self.memory[:, None]
        whole = counts.astype(int).tolist()
        offer = np.full((slots, 1), limit)
        held, missing = arrange(self.talk, whole, demand, offer, (), spare=1)
        return held[held.any(axis=1)], missing

    def first_fit(self, missing: Sequence[int], nodes: NDArray[np.int64]) -> int | None:
        """Place threads that found no room yet on the first of `nodes` that has some; the largest first.
        Returns the operator that finds no room, if one does not."""
        for operator in largest_first(self.talk, self.free[nodes], missing):
            count = missing[operator]
            need = self.talk.demand[operator] - self.slack
            for node in nodes[(self.free[nodes] >= need).all(axis=1)].tolist():
                count -= self._put(node, operator, count)
                if not count:
                    break
            if count:
                return operator
        return None

    def _put(self, node: int, operator: int, count: int) -> int:
        """Put up to `count` threads on a node, into open slots first; returns how many it took."""
        demand, memory = self.talk.demand[operator], float(self.memory[operator])
        with np.errstate(divide="ignore", invalid="ignore"):
            per_axis = np.where(demand > 0, (self.free[node] + self.slack) / demand, np.inf)
        count = wanted = int(min(count, np.floor(per_axis.min(initial=np.inf))))
        rows = self.slots.setdefault(node, [])
        limit = float(self.limit[node]) * (1 + TOLERANCE)
        most = int(self.room.slots[node] - self.room.slots_taken[node])
        position = 0
        while count and position < most:
            if position == len(rows):
                rows.append(np.zeros(self.talk.size))
            left = limit - float(rows[position] @ self.memory)
            fits = count if memory <= 0 else min(count, int(left / memory))
            rows[position][operator] += fits
            count -= fits
            position += 1
        while rows and not rows[-1].any():
            rows.pop()
        self.free[node] -= (wanted - count) * demand
        return wanted - count

    def largest(self) -> NDArray[np.float64]:
        """The most memory a slot of each node can still take (-inf: no slot left)."""
        largest = np.where(self.room.slots > self.room.slots_taken, self.limit, -np.inf)
        for node, rows in self.slots.items():
            if rows and len(rows) == self.room.slots[node] - self.room.slots_taken[node]:
                largest[node] = self.limit[node] - (np.array(rows) @ self.memory).min()
        return largest

    def bundles(self, request: PlacementRequest) -> tuple[PlacedBundle, ...]:
        rows = [row for rows in self.slots.values() for row in rows]
        if not rows:
            return ()
        node = np.repeat(list(self.slots), [len(rows) for rows in self.slots.values()])
        index = np.concatenate([np.arange(len(rows)) for rows in self.slots.values()]) + self.room.slots_taken[node]
        held = np.array(rows)
        slots, operators = np.nonzero(held)
        counts = held[slots, operators].astype(np.int64)
        slots = np.repeat(slots, counts)
        return bundled(request, self.room, np.repeat(operators, counts), node[slots], index[slots])


def largest_first(talk: Talk, free: NDArray[np.float64], counts: Sequence[int]) -> list[int]:
    """Return operators with threads to place, by falling demand of one thread for the scarcest dimension."""
    scarcity = talk.total / np.maximum(free.clip(min=0.0).sum(axis=0), 1e-300)
    size = talk.demand[:, int(np.argmax(scarcity))] if len(scarcity) else np.zeros(talk.size)
    return sorted((o for o in range(talk.size) if counts[o]), key=lambda o: (-size[o], o))
