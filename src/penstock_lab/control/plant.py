"""Many pipelines as fluids in simulated time: queue, rate, latency, and what a change of size costs. All advance
together, a tick at a time, so that days of many take seconds.

Within a tick the rate is constant and time goes in steps of `STEP_SECONDS`. A pipeline on u units does c * u tuples/s.
Units asked for are paid from then on and work `start_s` later; with every change nothing is done for `pause_s`; units
given back are gone at once. Units of a node that is lost come back by themselves after `heal_s`.

    latency = base + batch interval + pause still to come + backlog / capacity
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.tolerance import TOLERANCE
from penstock_lab.control.loads import TICK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock_lab.control.loads import LoadTrace

STEP_SECONDS = 2.0
BASE_SECONDS = 0.05
NEVER = np.inf
STEP_ENDS = np.arange(STEP_SECONDS, TICK_SECONDS + TOLERANCE, STEP_SECONDS)[:, None]
"""Seconds from a tick's start to the end of each of its steps."""


@dataclass(frozen=True)
class Site:
    """One pipeline's circumstances: what nobody can choose."""

    unit_rate: float = 100.0
    """Tuples/s a unit really does."""
    model_error: float = 0.0
    """Models say unit_rate * (1 + model_error)."""
    start_s: float = 8.0
    pause_s: float = 3.0
    heal_s: float = 45.0
    node_units: int = 2
    interval_s: float = 1.0
    latency_target_s: float = 15.0
    most_units: int = 200

    @property
    def model_rate(self) -> float:
        return self.unit_rate * (1 + self.model_error)


def site(seed: int) -> Site:
    """Circumstances that differ from seed to seed."""
    random = np.random.default_rng([seed, 77])
    return Site(
        model_error=float(random.uniform(-0.15, 0.15)),
        start_s=float(random.uniform(5, 15)),
        pause_s=float(random.uniform(0, 5)),
        interval_s=float(random.uniform(0.5, 2)),
        latency_target_s=float(random.uniform(12, 30)),
    )


class Plant:
    def __init__(self, sites: Sequence[Site], traffics: Sequence[LoadTrace], first: Sequence[int]) -> None:
        self.sites, self.traffics = tuple(sites), tuple(traffics)
        count = len(self.sites)
        self._unit_rate, self._start, self._pause = (self._column(name) for name in ("unit_rate", "start_s", "pause_s"))
        self._heal, self._interval = self._column("heal_s"), self._column("interval_s")
        self._target, self._node = self._column("latency_target_s"), self._column("node_units")
        self.asked = np.array(first, dtype=float)
        self.working = self.asked.copy()
        self._next_size = self.asked.copy()
        """What works once the units that are starting have come."""
        self._ready_at = np.full(count, NEVER)
        self._paused_until = np.zeros(count)
        self._lost = np.zeros(count)
        self._healed_at = np.full(count, NEVER)
        self._losses = [list(traffic.losses) for traffic in self.traffics]
        self.backlog = np.zeros(count)
        self.latency = np.zeros(count)
        self.processed = np.zeros(count)
        """Tuples of the last tick."""
        self.busy = np.zeros(count)
        """Part of the last tick in which units worked, as executors measure it."""
        self.now = 0.0
        self.slot_seconds = np.zeros(count)
        self.outside_s = np.zeros(count)
        self.changes = np.zeros(count)

    def _column(self, name: str) -> NDArray[np.float64]:
        return np.array([getattr(site, name) for site in self.sites], dtype=np.float64)

    @property
    def held(self) -> NDArray[np.float64]:
        return self.working - self._lost

    def resize(self, index: int, units: int) -> None:
        """Ask for another size: a change of what is asked for counts."""
        units = min(max(1, int(units)), self.sites[index].most_units)
        if units == self.asked[index]:
            return
        self.changes[index] += 1
        grows = units > self.working[index]
        self.asked[index] = units
        self._next_size[index] = units
        self._ready_at[index] = self.now + (self._start[index] if grows else 0.0)

    def tick(self, rates: NDArray[np.float64]) -> None:
        self._lose()
        end = self.now + TICK_SECONDS
        if ((self._ready_at < end) | (self._paused_until > self.now) | (self._healed_at < end)).any():
            self._step_by_step(rates, end)
        else:
            self._evenly(rates)

    def _evenly(self, rates: NDArray[np.float64]) -> None:
        """A tick in which no size changes, all steps at once: queues grow or shrink evenly, and not below nothing."""
        capacity = self._unit_rate * np.maximum(self.held, 0.0)
        backlog = np.maximum(0.0, self.backlog + STEP_ENDS * (rates - capacity))
        done = self.backlog + rates * TICK_SECONDS - backlog[-1]
        able = capacity > 0
        wait = np.divide(backlog, capacity, out=np.full_like(backlog, NEVER), where=able)
        latency = BASE_SECONDS + self._interval + wait
        self.outside_s += STEP_SECONDS * (latency > self._target).sum(axis=0)
        self.slot_seconds += TICK_SECONDS * np.maximum(self.asked, self.working)
        self.backlog, self.latency, self.processed = backlog[-1], latency[-1], done
        worked = np.divide(done, capacity, out=np.zeros_like(done), where=able)
        self.busy = np.minimum(1.0, worked / TICK_SECONDS)
        self.now += TICK_SECONDS

    def _step_by_step(self, rates: NDArray[np.float64], end: float) -> None:
        processed = np.zeros(len(self.sites))
        worked = np.zeros(len(self.sites))
        while self.now < end - TOLERANCE:
            self._switch()
            capacity = self._unit_rate * np.maximum(self.held, 0.0)
            running = np.clip((self.now + STEP_SECONDS - self._paused_until) / STEP_SECONDS, 0.0, 1.0)
            room = capacity * running * STEP_SECONDS
            done = np.minimum(self.backlog + rates * STEP_SECONDS, room)
            self.backlog += rates * STEP_SECONDS - done
            processed += done
            worked += np.divide(done, capacity, out=np.zeros_like(done), where=capacity > 0)
            self.now += STEP_SECONDS
            wait = np.divide(self.backlog, capacity, out=np.full_like(done, NEVER), where=capacity > 0)
            waiting = np.maximum(self._paused_until - self.now, 0.0)
            self.latency = BASE_SECONDS + self._interval + waiting + wait
            self.outside_s += STEP_SECONDS * (self.latency > self._target)
            self.slot_seconds += STEP_SECONDS * np.maximum(self.asked, self.working)
        self.processed, self.busy = processed, np.minimum(1.0, worked / TICK_SECONDS)

    def _switch(self) -> None:
        due = self._ready_at <= self.now + TOLERANCE
        if due.any():
            self.working[due] = self._next_size[due]
            self._lost[due] = np.minimum(self._lost[due], self.working[due] - 1)
            self._paused_until[due] = self.now + self._pause[due]
            self._ready_at[due] = NEVER
        healed = self._healed_at <= self.now + TOLERANCE
        if healed.any():
            self._lost[healed] = 0.0
            self._healed_at[healed] = NEVER

    def _lose(self) -> None:
        for index, losses in enumerate(self._losses):
            if losses and losses[0] <= self.now:
                losses.pop(0)
                self._lost[index] = min(self._node[index], self.working[index] - 1)
                self._healed_at[index] = self.now + self._heal[index]
                self._paused_until[index] = self.now + self._pause[index]
