"""What comes out of a decision: a size, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


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
