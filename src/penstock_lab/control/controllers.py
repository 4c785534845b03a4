"""Controllers of the field, as their documentation describes them, and fixed plans to compare with.

Each sees what its original sees and keeps its original's defaults; where a default means nothing here (ten messages of
lag), the value is chosen to suit it, and said.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.control.elasticity.memory import Memory, Observed
from penstock.control.elasticity.options import Bounds, ElasticOptions
from penstock.control.elasticity.size_decision import decide
from penstock.plugins import TOLERANCE, whole_up
from penstock.testing.plant import TICK_SECONDS

if TYPE_CHECKING:
    from penstock.testing import LoadTrace, Site


class TickReading(NamedTuple):
    """What is known of a pipeline after a tick."""

    now: float
    rate: float
    """Tuples/s that arrived."""
    processed_rate: float
    backlog: float
    busy: float
    latency_s: float
    held: int
    """Units that work."""
    asked: int


class SizeRule(Protocol):
    def decide(self, seen: TickReading) -> int:
        """Units wanted from now on."""


@dataclass
class FixedSize:
    """The same size for ever."""

    units: int

    def decide(self, seen: TickReading) -> int:
        return self.units


@dataclass
class BandRule:
    """The Flink autoscaler with its defaults: utilisation 0.7 +/- 0.3 over a window of 15 min that must be full,
    nothing for 5 min after a change, backlog caught up in 30 min, a restart assumed to take 5 min, down after 1 h and
    by at most 60 %. It is asked every minute.

        capacity wanted = rate / utilisation + rate * restart / catch-up + lag / catch-up
    """

    site: Site
    target: float = 0.7
    boundary: float = 0.3
    window_s: float = 900.0
    stabilise_s: float = 300.0
    catch_up_s: float = 1800.0
    restart_s: float = 300.0
    down_after_s: float = 3600.0
    down_most: float = 0.6
    every_s: float = 60.0
    _changed_at: float = 0.0
    _window: deque[TickReading] = field(default_factory=deque)
    _low_since: float | None = None
    _low_most: int = 0

    def decide(self, seen: TickReading) -> int:
        if seen.now - self._changed_at < self.stabilise_s:
            return seen.asked
        self._window.append(seen)
        while self._window[0].now <= seen.now - self.window_s:
            self._window.popleft()
        full = seen.now - self._changed_at >= self.stabilise_s + self.window_s
        if not full or seen.now % self.every_s >= TICK_SECONDS:
            return seen.asked
        return self._evaluate(seen)

    def _evaluate(self, seen: TickReading) -> int:
        count = len(self._window)
        rate = sum(reading.rate for reading in self._window) / count
        busy = sum(reading.busy for reading in self._window) / count
        processed = sum(reading.processed_rate for reading in self._window) / count
        capacity = processed / busy if busy > 0 else math.inf
        lag = seen.backlog / self.catch_up_s
        restart = rate * self.restart_s / self.catch_up_s
        low, high = self.target - self.boundary, self.target + self.boundary
        if rate / high + lag <= capacity <= rate / low + restart + lag:
            self._low_since = None
            return seen.asked
        wanted = whole_up(seen.asked * (rate / self.target + restart + lag) / capacity)
        wanted = max(1, wanted, whole_up(seen.asked * (1 - self.down_most)))
        if wanted > seen.asked:
            return self._change(seen, wanted)
        if wanted == seen.asked:
            return seen.asked
        if self._low_since is None:
            self._low_since, self._low_most = seen.now, wanted
        self._low_most = max(self._low_most, wanted)
        if seen.now - self._low_since < self.down_after_s:
            return seen.asked
        return self._change(seen, self._low_most)

    def _change(self, seen: TickReading, units: int) -> int:
        self._changed_at, self._low_since = seen.now, None
        self._window.clear()
        return units


@dataclass
class LagRule:
    """KEDA's Kafka rule carried out by the horizontal autoscaler of Kubernetes: units = lag / threshold, asked every
    30 s; nothing within a tenth; up at most double or four more in 15 s; down to the highest answer of the last 300 s.

    The threshold has no default that means anything (it is ten messages): one unit may have as much lag as it does in
    `share` of the latency target. Lag includes what is in the batch that is being worked on, as Kafka counts it.
    """

    site: Site
    share: float = 0.25
    tolerance: float = 0.1
    stabilise_s: float = 300.0
    every_s: float = 30.0
    _answers: deque[tuple[float, int]] = field(default_factory=deque)

    def decide(self, seen: TickReading) -> int:
        if seen.now % self.every_s >= TICK_SECONDS:
            return seen.asked
        lag = seen.backlog + seen.rate * self.site.interval_s
        threshold = self.site.unit_rate * self.share * self.site.latency_target_s
        ratio = lag / (threshold * seen.asked)
        wanted = seen.asked if abs(ratio - 1) <= self.tolerance else max(1, whole_up(lag / threshold))
        most = max(2 * seen.asked, seen.asked + 4)
        # two periods of 15 s pass between questions, and each may double
        wanted = min(wanted, max(2 * most, most + 4))
        self._answers.append((seen.now, wanted))
        while self._answers[0][0] < seen.now - self.stabilise_s:
            self._answers.popleft()
        return wanted if wanted >= seen.asked else min(seen.asked, max(units for _, units in self._answers))


@dataclass
class PublishedLoop:
    """003's loop, kept going: every 20 min, where the throughput of the last five was below what arrived, unit costs
    are exaggerated by a tenth and the size follows. It never gives anything back."""

    site: Site
    every_s: float = 1200.0
    measured_s: float = 300.0
    factor: float = 1.1
    _exaggerated: float = 1.0
    _arrived: float = 0.0
    _done: float = 0.0

    def decide(self, seen: TickReading) -> int:
        within = seen.now % self.every_s
        if within > self.every_s - self.measured_s or within < TOLERANCE:
            self._arrived += seen.rate
            self._done += seen.processed_rate
        if within >= TICK_SECONDS or not self._arrived:
            return seen.asked
        short = self._done < 0.99 * self._arrived or seen.latency_s > self.site.latency_target_s
        rate = self._arrived / (self.measured_s / TICK_SECONDS)
        self._arrived = self._done = 0.0
        if not short:
            return seen.asked
        self._exaggerated *= self.factor
        return max(seen.asked, whole_up(rate * self._exaggerated / self.site.model_rate))


# Our controller as the experiment judges it: the very code the live one runs.


@dataclass(frozen=True, slots=True)
class PerUnit:
    """Models that know what one unit does."""

    rate: float

    def units_for(self, rate: float) -> int:
        return max(1, whole_up(rate / self.rate))

    def rate_on(self, units: int) -> float:
        return units * self.rate


@dataclass
class OurRule:
    site: Site
    options: ElasticOptions = field(default_factory=ElasticOptions)
    memory: Memory = field(default_factory=Memory)
    log: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes = PerUnit(self.site.model_rate)
        self._bounds = Bounds(1, self.site.most_units)

    def decide(self, seen: TickReading) -> int:
        observed = Observed(
            seen.rate, seen.processed_rate, seen.backlog, seen.busy, seen.latency_s, seen.held, seen.asked,
            self.site.latency_target_s,
        )  # fmt: skip
        self.memory, verdict = decide(self.memory, observed, self._sizes, self._bounds, self.options, seen.now)
        if verdict.changes:
            self.log.append((seen.now, f"{seen.asked} -> {verdict.units}: {verdict.why}"))
        return verdict.units


def ours(site: Site, _: LoadTrace) -> OurRule:
    return OurRule(site)
