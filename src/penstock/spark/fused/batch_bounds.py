"""How much the next batch may take in, by what the last one was.

A bound is one of offsets. Where offsets have holes (a topic that is compacted, what ends a transaction, or was aborted
with it) a batch goes over more of them than it has tuples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.fused.load_source import bound_batches

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.report.report import BatchObservation

LARGEST_STEP = 20.0
"""The first batches tell little: no batch is more than so many times the one before."""
MOST_OVER_HOLES = 1_000_000
"""Offsets of a batch, where most of those before were holes: what comes behind them may have none."""


def next_bound(bound: int, covered: int, tuples: int, wall_seconds: float, wanted_seconds: float) -> int:
    """The last batch went over `covered` offsets, had so many tuples and took code `wall_seconds`; a batch should take
    it `wanted_seconds`. With step = min(wanted / wall, LARGEST_STEP):

        next = covered x step, but no more than max(tuples x step, MOST_OVER_HOLES)

    A batch without tuples says nothing of how long they take: the bound grows, as far as that goes, and never falls.
    """
    if not tuples:
        return max(bound, min(int(covered * LARGEST_STEP), MOST_OVER_HOLES))
    if wall_seconds <= 0:
        return bound
    step = min(wanted_seconds / wall_seconds, LARGEST_STEP)
    return int(min(max(covered, tuples) * step, max(tuples * step, MOST_OVER_HOLES)))


class BatchBound:
    """The bound of a run's batches, in the run's `folder`, where sources read it. Without `wanted_seconds` it stays as
    it was at `first`; no slot is left without an offset."""

    def __init__(self, folder: Path, first: int, slots: int, wanted_seconds: float | None) -> None:
        self._folder, self._slots, self._wanted = folder, slots, wanted_seconds
        self._set(first)

    def _set(self, bound: int) -> None:
        self._bound = bound
        bound_batches(self._folder, bound)

    def resize(self, batch: BatchObservation | None, covered: int) -> None:
        """By the last batch, which went over `covered` offsets; None: it had no tuples."""
        if self._wanted is None:
            return
        tuples, slots = (0, ()) if batch is None else (batch.tuples, batch.slots)
        wall = max((slot.wall_seconds for slot in slots), default=0.0)
        bound = max(self._slots, next_bound(self._bound, covered, tuples, wall, self._wanted))
        if bound != self._bound:
            self._set(bound)
