"""Local search: move threads between bins, or swap them, while the network cost falls.

Moving w (threads per operator; negative where threads come back) from bin s to bin t changes the overlap by

    sum over levels at which s and t differ of  w' Q (c_t - c_s) + w' Q w

with c the contents of the groups that s and t belong to at that level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.place.slots import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.place.compact_graph import Talk

WORTHWHILE = 1e-3
"""The least gain, in streams, that is worth a move."""
TARGETS = 4
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

    def run(self, tries: int) -> int:
        """Try every bundle in turn, round after round, until nothing helps or `tries` are spent; returns what
        is left of them."""
        better = True
        while better and tries > 0:
            better = False
            for bin_, operator in np.argwhere(self.held > 0).tolist():
                if tries <= 0:
                    break
                tries -= 1
                better |= self._improve(bin_, operator)
        return tries

    def _improve(self, s: int, a: int) -> bool:
        """Move the threads of a on s, all or one, to where they talk more, alone or against others there."""
        count = float(self.held[s, a])
        if not count:
            return False
        pull = self.pull[:, a]
        wish = pull - pull[s]
        best = float(wish.max())
        loop = self._loops[a]
        if count * (best + len(self.levels) * count * loop) <= WORTHWHILE:
            return False
        wish[s] = -np.inf
        targets = np.flatnonzero(wish + count * loop > 0)
        if len(targets) > TARGETS:
            targets = targets[np.argsort(-wish[targets], kind="stable")[:TARGETS]]
        if not len(targets):
            return False
        held = self.held[targets]
        if self._best(s, a, count, targets, held):
            return True
        return count > 1 and self._best(s, a, 1.0, targets, np.minimum(held, 1.0))

    def _best(self, s: int, a: int, x: float, targets: NDArray[np.int64], y: NDArray[np.float64]) -> bool:
        """Move x threads of a from s to one of `targets`, alone or against the y[t, b] threads of some b
        there."""
        loops, demand = self._loops, self.demand
        pull, free = self.pull[targets], self.free[targets]
        apart = self.apart[s, targets]
        alone = x * (pull[:, a] - self.pull[s, a]) + apart * (x * x * loops[a])
        take = x * demand[a]
        swap = y * (self.pull[s] - pull - (2.0 * x * apart)[:, None] * self.talk.pull[a])
        if self._looped:
            swap += apart[:, None] * y * y * loops
        swap += alone[:, None]
        swap[:, a] = -np.inf
        alone[(free < take - self.slack).any(axis=1)] = -np.inf
        t = int(alone.argmax())
        gain, b = float(alone[t]), -1
        ts, bs = np.nonzero((swap > max(gain, WORTHWHILE)) & (y > 0))
        if len(ts):
            more = take - y[ts, bs][:, None] * demand[bs]
            fits = ((free[ts] - more >= -self.slack) & (self.free[s] + more >= -self.slack)).all(axis=1)
            if fits.any():
                ts, bs = ts[fits], bs[fits]
                best = int(swap[ts, bs].argmax())
                t, b = int(ts[best]), int(bs[best])
                gain = float(swap[t, b])
        if gain <= WORTHWHILE:
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
