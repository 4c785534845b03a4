"""Local search: move threads between bins, or swap them, while the network cost falls.

Moving w (threads per operator; negative where threads come back) from bin s to bin t changes the overlap by

    sum over levels at which s and t differ of  w' Q (c_t - c_s) + w' Q w

with c the contents of the groups that s and t belong to at that level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.placement.slots import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.placement.compact_graph import Talk

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
        self._loops = np.diag(talk.pull).copy()
        self._looped = bool(self._loops.any())
        self.apart = np.zeros((len(held), len(held)))
        self.pull = np.zeros_like(held)
        for level in levels:
            self.apart += level[:, None] != level[None, :]
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
        wish = count * (pull - pull[s] + self.apart[s] * (count * loop))
        wish[s] = -np.inf
        t = int(wish.argmax())
        if wish[t] <= WORTHWHILE:
            return False
        demand = self.demand[a]
        if (self.free[t] >= count * demand - self.slack).all():
            self._shift(s, t, a, count)
            return True
        if (self.free[t] >= demand - self.slack).all():
            needed = demand > 0
            part = float(np.floor(((self.free[t] + self.slack)[needed] / demand[needed]).min()))
            gain = part * (pull.item(t) - pull.item(s) + self.apart.item(s, t) * part * loop)
            if gain > WORTHWHILE:
                self._shift(s, t, a, part)
                return True
        targets = np.argsort(-wish, kind="stable")[:TARGETS]
        targets = targets[wish[targets] > 0]
        wish = wish[targets]
        held, pull = self.held[targets], self.pull[targets]
        if self._best(s, a, count, targets, wish, held, pull):
            return True
        if count <= 1:
            return False
        one = wish / count - self.apart[s, targets] * ((count - 1) * loop)
        return self._best(s, a, 1.0, targets, one, np.minimum(held, 1.0), pull)

    def _best(
        self,
        s: int,
        a: int,
        x: float,
        targets: NDArray[np.int64],
        alone: NDArray[np.float64],
        y: NDArray[np.float64],
        pull: NDArray[np.float64],
    ) -> bool:
        """Move x threads of a from s to one of `targets`, alone (which gains `alone`) or against the y[t, b] threads
        of some b there."""
        demand, apart = self.demand, self.apart[s, targets][:, None]
        swap = self.pull[s] - pull - (2.0 * x) * apart * self.talk.pull[a]
        if self._looped:
            swap += apart * y * self._loops
        swap = y * swap + alone[:, None]
        swap[:, a] = -np.inf
        take, free = x * demand[a], self.free[targets]
        fits = (free >= take - self.slack).all(axis=1)
        gain, t, b = WORTHWHILE, -1, -1
        if fits.any():
            feasible = np.where(fits, alone, -np.inf)
            first = int(feasible.argmax())
            if feasible[first] > gain:
                gain, t = float(feasible[first]), first
        ts, bs = np.nonzero((swap > gain) & (y > 0))
        if len(ts):
            more = take - y[ts, bs][:, None] * demand[bs]
            fits = ((free[ts] - more >= -self.slack) & (self.free[s] + more >= -self.slack)).all(axis=1)
            if fits.any():
                best = int(np.where(fits, swap[ts, bs], -np.inf).argmax())
                t, b = int(ts[best]), int(bs[best])
        if t < 0:
            return False
        self._shift(s, int(targets[t]), a, x)
        if b >= 0:
            self._shift(int(targets[t]), s, b, float(y[t, b]))
        return True

    def _shift(self, s: int, t: int, a: int, x: float) -> None:
        self.held[s, a] -= x
        self.held[t, a] += x
        self.free[s] += x * self.demand[a]
        self.free[t] -= x * self.demand[a]
        change = x * self.talk.pull[a]
        for level in self.levels:
            if level[s] != level[t]:
                self.pull[level == level[s]] -= change
                self.pull[level == level[t]] += change
