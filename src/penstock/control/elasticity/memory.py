"""What is remembered of a pipeline between decisions: one frozen value, which the next decision replaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.control.elasticity.learned_factor import UNKNOWN
from penstock.control.elasticity.load_forecasts import Seasonal
from penstock.control.elasticity.readings import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.contracts import Forecast
    from penstock.control.elasticity.learned_factor import Learned
    from penstock.control.elasticity.load_forecasts import Smoothed
    from penstock.control.elasticity.readings import Gathered


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


class VerdictKind(StrEnum):
    HOLD = "hold"
    GROW = "grow"
    SHRINK = "shrink"
    UNMEASURED = "unmeasured"
    """No load is measured, or what came is no number: the last good size is kept."""
    HELD_BACK = "held-back"
    """A change is due and something forbids it."""


class Observed(NamedTuple):
    """What is measured of a pipeline: None is what was not."""

    rate: float | None
    """Tuples/s that arrive."""
    processed_rate: float | None = None
    backlog: float = 0.0
    busy: float | None = None
    latency_s: float | None = None
    held: int = 0
    """Units that work."""
    asked: int = 0
    """Units that were decided last."""
    latency_target_s: float | None = None
    latest: float | None = None
    """Tuples/s of the last few seconds, where `rate` is a mean over longer."""
    changing: bool = False
    """The last change is still under way, though all its units may be there."""
    took: float | None = None
    """Seconds the last change took, where somebody measured it better than by looking from decision to decision."""


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    kind: VerdictKind
    units: int
    why: str = ""
    rejected: tuple[tuple[str, str], ...] = ()
    """(alternative, why not)."""
    expected: tuple[tuple[str, Any], ...] = ()

    @property
    def changes(self) -> bool:
        return self.kind in {VerdictKind.GROW, VerdictKind.SHRINK}
