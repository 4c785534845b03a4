"""What is remembered of a pipeline between decisions: one frozen value, which the next decision replaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.control.elasticity.forecasts.seasonal import Seasonal
from penstock.control.elasticity.gathering import NOTHING
from penstock.control.learning.learned import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.elasticity.forecasts.contract import Forecast
    from penstock.control.elasticity.gathering import Gathered
    from penstock.control.elasticity.smoothing import Smoothed
    from penstock.control.learning.learned import Learned

FIRST_CHANGE_SECONDS = 10.0


class Bucket(NamedTuple):
    """The load of the present ten minutes."""

    start: float
    total: float = 0.0
    readings: int = 0
    highest: float = 0.0


@dataclass(frozen=True, slots=True)
class LastChange:
    """The last change of size, until its effect is known."""

    at: float
    before: int
    after: int
    rate_before: float
    """Tuples/s that were done just before."""
    load: float = 0.0
    """Tuples/s that arrived just before."""
    judged: bool = False
    took: float | None = None
    """Seconds until the units were there."""


class Memory(NamedTuple):
    """A named tuple, which is replaced in a microsecond: days of load are millions of decisions."""

    smoothed: Smoothed | None = None
    measured_at: float | None = None
    """When a load was last measured."""
    speed: Learned = UNKNOWN
    """True processing rate, as a factor of the model's."""
    change_seconds: Learned = UNKNOWN
    """How long changes took: a value in seconds, not a factor."""
    forecast: Forecast = Seasonal()
    bucket: Bucket | None = None
    peaks: tuple[tuple[float, float], ...] = ()
    """(when, highest level) by ten minutes, oldest first."""
    peak: float = 0.0
    """The highest of them."""
    proven: tuple[tuple[int, float], ...] = ()
    """(units, highest load they carried within the target), latest last."""
    low_since: float | None = None
    """Since when less was needed than there is."""
    most_needed: tuple[float, int, int] = (0.0, 0, 0)
    """(since, the most that was needed since, the most in the spell before that)."""
    waste: float = 0.0
    """Unit-seconds more than needed since then."""
    last: LastChange | None = None
    doublings: int = 0
    first_change: float = FIRST_CHANGE_SECONDS
    """How long a change is taken to last while none was measured."""
    ineffective_until: float | None = None
    ineffective_at: int = 0
    """From this size upward a change had no effect."""


@dataclass(frozen=True, slots=True)
class Following:
    """A pipeline on its way from decision to decision: what was read since the last, and what is remembered."""

    memory: Memory | None = None
    decided_at: float | None = None
    gathered: Gathered = NOTHING
    took: float | None = None
    """Seconds the last change took until tuples came through all of it; that may have been the start."""
    learned: Mapping[str, Learned] = field(default_factory=lambda: MappingProxyType({}))
    """By operator what a thread of it truly does, and what a slot holds."""
    drifts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By what left what was profiled: how far."""
    said_last: str = ""
    """The last that was said although nothing changed."""
