"""Local search: move threads between bins, or swap them, while the network cost falls.

Moving w (threads per operator; negative where threads come back) from bin s to bin t changes the overlap by

    sum over levels at which s and t differ of  w' Q (c_t - c_s) + w' Q w

with c the contents of the groups that s and t belong to at that level.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.placement.compact.graph import Talk

WORTHWHILE = 1e-2
"""The least gain, in streams, that is worth a move."""
TARGETS = 3
"""Bins in which a bundle looks for room: those it talks to most."""


class Search:
    """Bins, what they hold, and the groups they belong to at each level (the first level: the bin itself)."""

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
        """What the contents save, over all levels: each bin's pull already sums them up."""
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
        """Move the threads of a on s, all or one, to where they talk more, alone or against others there."""
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
        """Move x threads of a to one of the targets, alone (which gains `alone`) or against all threads of one operator
        there, or one of them where one of a goes; False where nothing gains enough."""
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
