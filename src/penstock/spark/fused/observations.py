"""What Spark counts of a frame as it is written (`DataFrame.observe`): it is told a moment after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.clock import pause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.clock import Stopwatch

PATIENCE_SECONDS = 1.0
"""A function of the user's may never read the frame it was given."""


def answer_of(observation: Any, waited: Stopwatch, patience: float = PATIENCE_SECONDS) -> Mapping[str, Any] | None:
    """By the names of the columns; None: nothing was told by the time `waited` shows `patience`."""
    answer = observation._jo.future()
    while not answer.isCompleted() and waited.seconds() < patience:
        pause(0.005)
    return dict(observation.get) if answer.isCompleted() else None
