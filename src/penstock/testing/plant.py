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

from penstock.base.errors import BadInputError, nearest
from penstock.base.tolerance import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.dataflow.load import Load


# Loads to judge a controller under: rows/s in every tick of some days, from a seed.
#
# A load is a shape times a level of its own, and noise that comes and goes. Shapes are those the field publishes:
# constant, a step of three times, a sine, spikes, the daily curve of web traffic (lowest before dawn, highest in the
# evening, less on weekends), slow drift; `loss` is constant while nodes are lost. Everything random comes from the
# seed.


HOUR, DAY = 3600.0, 86_400.0
TICK_SECONDS = 10.0

DAILY = (0.62, 0.50, 0.42, 0.38, 0.36, 0.40, 0.52, 0.70, 0.86, 0.96, 1.00, 1.02,
         1.04, 1.06, 1.08, 1.10, 1.14, 1.20, 1.28, 1.36, 1.40, 1.32, 1.10, 0.82)  # fmt: skip
"""Rate by hour of the day as a part of the mean: lowest at 4, highest at 20, ratio 3.9."""
WEEKEND = 0.75


@dataclass(frozen=True)
class LoadTrace:
    """The load of one pipeline over time, and the moments at which it loses a node."""

    name: str
    seed: int
    rates: NDArray[np.float64]
    """Tuples/s, one for every tick."""
    losses: tuple[float, ...] = ()
    """Seconds from the start at which a node is lost."""

    @property
    def seconds(self) -> float:
        return len(self.rates) * TICK_SECONDS


def _times(days: float) -> NDArray[np.float64]:
    return np.arange(round(days * DAY / TICK_SECONDS), dtype=np.float64) * TICK_SECONDS


def _constant(times: NDArray[np.float64], _: np.random.Generator) -> NDArray[np.float64]:
    return np.ones_like(times)


def _step(times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Once a day three times as much, for two to eight hours."""
    shape = np.ones_like(times)
    for day in range(int(np.ceil(times[-1] / DAY))):
        start = day * DAY + random.uniform(2, 14) * HOUR
        shape[(times >= start) & (times < start + random.uniform(2, 8) * HOUR)] = 3.0
    return shape


def _sine(times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    period, amplitude = random.uniform(4, 12) * HOUR, random.uniform(0.4, 0.7)
    return 1 + amplitude * np.sin(2 * np.pi * (times / period + random.uniform()))


def _spike(times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Twice a day two to four times as much, for five to thirty minutes."""
    shape = np.ones_like(times)
    for _ in range(max(1, round(2 * times[-1] / DAY))):
        start, minutes = random.uniform(0, times[-1]), random.uniform(5, 30)
        shape[(times >= start) & (times < start + 60 * minutes)] = random.uniform(2, 4)
    return shape


def _daily(times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    shifted = times + random.uniform(0, 24) * HOUR
    hours = shifted / HOUR % 24
    curve = np.interp(hours, np.arange(25), [*DAILY, DAILY[0]])
    first_day = random.integers(0, 7)
    day = (shifted // DAY + first_day) % 7
    shape: NDArray[np.float64] = np.where(day >= 5, WEEKEND, 1.0) * curve
    return shape


def _drift(times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Drift evenly to between half and twice the mean, over all days."""
    end = float(random.choice([random.uniform(0.5, 0.7), random.uniform(1.5, 2.0)]))
    shape: NDArray[np.float64] = 1 + (end - 1) * times / times[-1]
    return shape


SHAPES: dict[str, Callable[[NDArray[np.float64], np.random.Generator], NDArray[np.float64]]] = {
    "constant": _constant,
    "step": _step,
    "sine": _sine,
    "spike": _spike,
    "daily": _daily,
    "drift": _drift,
    "loss": _constant,
}


def _noise(count: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Factors around 1: two to six percent from tick to tick, half of which stays for the next."""
    spread, kept = random.uniform(0.02, 0.06), 0.5
    pushes = random.normal(0, spread * np.sqrt(1 - kept**2), count)
    noise = np.empty(count)
    value = 0.0
    for index, push in enumerate(pushes):
        value = kept * value + push
        noise[index] = value
    return np.exp(noise - spread**2 / 2)


def traffic(name: str, seed: int, days: float = 3.0, mean_rate: float | None = None) -> LoadTrace:
    """One load over some days."""
    if name not in SHAPES:
        raise BadInputError(f"unknown load '{name}'; {nearest(name, SHAPES)}")
    random = np.random.default_rng([seed, sorted(SHAPES).index(name)])
    times = _times(days)
    level = random.uniform(600, 1800) if mean_rate is None else mean_rate
    rates = level * SHAPES[name](times, random) * _noise(len(times), random)
    losses = (
        tuple(sorted(random.uniform(0.05, 0.95) * DAY + day * DAY for day in range(max(1, int(days)))))
        if name == "loss"
        else ()
    )
    return LoadTrace(name, seed, rates, tuple(at for at in losses if at < days * DAY))


def traffic_of(load: Load, name: str, seconds: float) -> LoadTrace:
    """A load of the user's: its mean rate in every tick."""
    edges = np.arange(int(seconds // TICK_SECONDS) + 1) * TICK_SECONDS
    counts = np.array([load.expected(float(edge)) for edge in edges])
    return LoadTrace(name, 0, np.diff(counts) / TICK_SECONDS)


STEP_SECONDS = 2.0
BASE_SECONDS = 0.05
NEVER = np.inf
STEP_ENDS = np.arange(STEP_SECONDS, TICK_SECONDS + TOLERANCE, STEP_SECONDS)[:, None]
"""Seconds from a tick's start to the end of each of its steps."""


@dataclass(frozen=True)
class Site:
    """The circumstances of one pipeline: given, not chosen."""

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
        """Units that work after those that are starting have started."""
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
        """Request another size; a request that differs from the last one counts as a change."""
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
