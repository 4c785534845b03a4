"""Local search: move threads between bins, or swap them, while the network cost falls.

Moving w (threads per operator; negative where threads come back) from bin s to bin t changes the overlap by

    sum over levels at which s and t differ of  w' Q (c_t - c_s) + w' Q w

with c the contents of the groups that s and t belong to at that level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.place.compact_graph import Talk

EPSILON = 1e-9


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
        self.slack = EPSILON * room.max(axis=0, initial=0.0)
        self.levels = levels
        self.apart = np.zeros((len(held), len(held)))
        self.pull = np.zeros_like(held)
        for level in levels:
            self.apart += level[:, None] != level[None, :]
            group = np.zeros((int(level.max(initial=0)) + 1, talk.size))
            np.add.at(group, level, held)
            self.pull += (group @ talk.pull)[level]

    def run(self, tries: int) -> int:
        """Try every bundle in turn, round after round, until nothing helps or `tries` are spent; returns what is
        left of them."""
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
        count = self.held[s, a]
        if not count:
            return False
        done = self._best(s, a, count, self.held)
        if not done and count > 1:
            done = self._best(s, a, 1.0, np.minimum(self.held, 1.0))
        return done

    def _best(self, s: int, a: int, x: float, y: NDArray[np.float64]) -> bool:
        """Move x threads of a from s to the best bin, alone or against the y[t, b] threads of some b there."""
        q, demand = self.talk.pull, self.demand
        apart = self.apart[s]
        alone = x * (self.pull[:, a] - self.pull[s, a]) + apart * (x * x * q[a, a])
        take = x * demand[a]
        fits = (self.free >= take - self.slack).all(axis=1)
        alone[~fits] = -np.inf
        alone[s] = -np.inf
        t = int(np.argmax(alone))
        gain, b = float(alone[t]), -1
        # Upper limit of what a swap can bring, before the dear part.
        swap = y * (self.pull[s] - self.pull)
        swap += (x * (self.pull[:, a] - self.pull[s, a]))[:, None]
        swap += apart[:, None] * (x * x * q[a, a] + y * y * np.diag(q) - 2 * x * y * q[a])
        swap[s] = -np.inf
        swap[:, a] = -np.inf
        floor = max(gain, EPSILON)
        ts, bs = np.nonzero((swap > floor) & (y > 0))
        if len(ts):
            back = y[ts, bs][:, None] * demand[bs]
            fits = (self.free[ts] + back - take >= -self.slack).all(axis=1)
            fits &= (self.free[s] + take - back >= -self.slack).all(axis=1)
            ts, bs = ts[fits], bs[fits]
            if len(ts):
                best = int(np.argmax(swap[ts, bs]))
                t, b = int(ts[best]), int(bs[best])
                gain = float(swap[t, b])
        if gain <= EPSILON:
            return False
        amount = y[t, b] if b >= 0 else 0.0
        self._shift(s, t, a, x)
        if b >= 0:
            self._shift(t, s, b, amount)
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
