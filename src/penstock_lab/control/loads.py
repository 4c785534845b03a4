"""Loads a controller is judged under: tuples/s in every tick of some days, for as many seeds as asked.

A load is a shape times a level of its own, and noise that comes and goes. Shapes are those the field publishes:
constant, a step of three times, a sine, spikes, the daily curve of web traffic (lowest before dawn, highest in the
evening, less on weekends), slow drift; `loss` is constant while nodes are lost. Everything random comes from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import BadInputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.dataflow.load import Load

HOUR, DAY = 3600.0, 86_400.0
TICK_SECONDS = 10.0

DAILY = (0.62, 0.50, 0.42, 0.38, 0.36, 0.40, 0.52, 0.70, 0.86, 0.96, 1.00, 1.02,
         1.04, 1.06, 1.08, 1.10, 1.14, 1.20, 1.28, 1.36, 1.40, 1.32, 1.10, 0.82)  # fmt: skip
"""By the hour, as parts of the mean: lowest at 4, highest at 20, ratio 3.9."""
WEEKEND = 0.75


@dataclass(frozen=True)
class LoadTrace:
    """What arrives at one pipeline."""

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
    """To between half and twice of it, evenly over all the days."""
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
