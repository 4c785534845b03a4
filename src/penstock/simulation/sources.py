"""When the tuples of a source are due, block by block, however often and for however long somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock.simulation.layout import nanoseconds
from penstock.simulation.system import NANOSECONDS, Arrivals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.dataflow.load import Load
    from penstock.simulation.system import Scenario, SimulatedPipeline

    Ints = NDArray[np.int64]

BLOCK = 8192


class Emission:
    """Due times of one source in nanoseconds, rising, taken from the front."""

    def __init__(self, load: Load, arrivals: Arrivals, draws: np.random.Generator, until: int) -> None:
        """`until`: nothing later is ever asked for."""
        self._load = load
        self._draws = draws if arrivals is Arrivals.POISSON else None
        self._made = 0
        self._position = 0.0
        self._most = load.expected(until / NANOSECONDS)
        self._ready: Ints = np.empty(0, dtype=np.int64)
        self._ended = False
        self.taken = 0

    def take(self, before: int, most: int) -> Ints:
        """The next tuples due before a time, at most so many."""
        blocks = [self._ready]
        amount = len(self._ready)
        while not self._ended and amount < most and (not len(blocks[-1]) or blocks[-1][-1] < before):
            blocks.append(self._block())
            amount += len(blocks[-1])
        ready = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        cut = min(int(np.searchsorted(ready, before, side="left")), max(most, 0))
        self._ready = ready[cut:]
        self.taken += cut
        return ready[:cut]

    def _block(self) -> Ints:
        """The next BLOCK tuples; blocks are the same whoever asks, so random ones are too."""
        if self._draws is not None:
            wanted = self._position + np.cumsum(self._draws.exponential(size=BLOCK))
            self._position = float(wanted[-1])
        else:
            wanted = np.arange(self._made + 1, self._made + BLOCK + 1, dtype=float)
            self._made += BLOCK
        if wanted[-1] > self._most + TOLERANCE:
            self._ended = True
            wanted = wanted[wanted <= self._most + TOLERANCE]
        if not len(wanted):
            return np.empty(0, dtype=np.int64)
        wanted = np.minimum(wanted, self._most) if self._most > 0 else wanted
        return np.rint(self._load.reached(wanted) * NANOSECONDS).astype(np.int64)

    def rest(self, edges: Ints) -> Ints:
        """How many tuples that nobody took are due in each spell between edges, without making them one by one.

        Of a Poisson process the rest is a Poisson number for every spell, with the mean the load has in it.
        """
        due: Ints = np.diff(np.searchsorted(self._ready, edges, side="left"))
        if self._ended:
            return due
        counts = np.array([self._load.expected(edge / NANOSECONDS) for edge in edges.tolist()])
        if self._draws is not None:
            due = due + self._draws.poisson(np.diff(np.maximum(counts, self._position)))
        else:
            whole = np.floor(counts + TOLERANCE).astype(np.int64)
            due = due + np.diff(np.maximum(whole, self._made))
        return due


def emissions_of(scenario: Scenario, pipeline: SimulatedPipeline, number: int) -> list[Emission]:
    """One for every source of a pipeline, each with draws of its own."""
    until = nanoseconds(scenario.seconds)
    return [
        Emission(pipeline.load, pipeline.arrivals, np.random.default_rng([scenario.seed, number, 0, index]), until)
        for index in range(len(pipeline.sources))
    ]
