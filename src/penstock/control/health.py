"""How a controller is: whether its loop still decides, since when it has not, and who was set aside so that it can."""

from __future__ import annotations

from dataclasses import dataclass

LATE_PERIODS = 3
"""Periods without a completed step after which the loop is in trouble."""
LEAST_PERIOD_SECONDS = 1.0
"""A period is the time between two looks, and at least this: a step of a large cluster takes a second."""


@dataclass(frozen=True, slots=True)
class ControllerHealth:
    ok: bool
    trouble: str | None
    """One line; None while everything is decided upon."""
    last_step_seconds: float
    """Seconds since the last completed step, or since the start if there was none."""
    quarantined: tuple[tuple[str, str], ...] = ()
    """Subject (a pipeline, trigger or node) and reason of everything that was set aside since the start."""
    loop_alive: bool = True


def late_after(look_seconds: float) -> float:
    """Seconds without a completed step that are too many."""
    return LATE_PERIODS * max(look_seconds, LEAST_PERIOD_SECONDS)
