"""The course of one trial, batch by batch: how large the next batch may be, which batches count, when it is over.

Pure bookkeeping, so that it can be tested without Spark. A trial counts from the end of a batch on, never from its
start: whole batches over whole periods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, stdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.report.report import BatchObservation

SIZED = 1.5
"""Batches within this factor of the work they should hold are large, and small, enough."""
FEWEST_TO_VARY = 3
"""Batches a deviation needs to mean something."""
LARGEST_STEP = 20.0
"""The first batches tell little: no batch is more than so many times the one before."""
LONGEST_PERIODS = 3.0
"""Of the work a batch should hold: so long may pass from its end to that of the one before. Where the engine takes most
of that, as for code over columns, larger batches would only be longer ones."""
MOST_SIZES = 10
"""Batches whose work does not follow their size, because it comes in a few large pieces, count as they are then."""


@dataclass
class TrialSchedule:
    """Of a trial that takes at least `seconds` from `start` on, and at least `fewest_batches` that count.

    With `batch_seconds`, the bound `most_rows` is only the beginning: batches are resized until they hold so much work,
    and none counts before that. The first, which may have been slow for being so, never counts. Sizes are multiples of
    `threads`: of six tuples on four threads, two threads would do nothing half of the time.
    """

    start: float
    seconds: float
    most_rows: int
    batch_seconds: float | None = None
    threads: int = 1
    fewest_batches: int = 2
    batches: list[BatchObservation] = field(default_factory=list)
    counts_from: int | None = None
    """The batch from whose end on the trial counts."""

    def see(self, batch: BatchObservation) -> None:
        self.batches.append(batch)
        if self.counts_from is not None:
            return
        if self.batch_seconds is None:
            self.counts_from = len(self.batches) - 1
        elif batch.tuples:
            step = self._step(batch)
            wanted = self.threads * math.ceil(batch.tuples * step / self.threads)
            warm = len(self.batches) > 1
            if warm and (1 / SIZED <= step <= SIZED or wanted == batch.tuples or len(self.batches) >= MOST_SIZES):
                self.counts_from = len(self.batches) - 1
            self.most_rows = wanted

    def _step(self, batch: BatchObservation) -> float:
        """How much larger the next batch should be: `min(B / w, (3 B - F) / (T - F))`, for B seconds of work where w
        were seen in a batch that came T behind the one before, F of them whatever it held: as many as the shortest took
        before it. One that takes too long is cut by its work alone."""
        wanted = self.batch_seconds or 0.0
        step = min(wanted / max(busy_seconds(batch), 1e-6), LARGEST_STEP)
        periods = [later.finished - earlier.finished for earlier, later in pairwise(self.batches)]
        if not periods or step <= 1:
            return step
        shortest = min(periods[:-1], default=0.0)
        rows_seconds = periods[-1] - shortest
        room = LONGEST_PERIODS * wanted - shortest
        return min(step, max(1.0, room / rows_seconds)) if rows_seconds > 0 else step

    @property
    def counted(self) -> list[BatchObservation]:
        """The batch that counting starts behind, and those that count."""
        return [] if self.counts_from is None else self.batches[self.counts_from :]

    @property
    def over(self) -> bool:
        counted = self.counted
        return len(counted) > self.fewest_batches and counted[-1].finished - self.start >= self.seconds


def batch_spread(batches: Sequence[BatchObservation]) -> float | None:
    """The standard deviation of the seconds a tuple took, from one batch to the next, as a part of their mean. Small
    batches, of what was left, do not count; None: too few others."""
    largest = max((batch.tuples for batch in batches), default=0)
    each = [busy_seconds(batch) / batch.tuples for batch in batches if batch.tuples > largest / SIZED]
    return stdev(each) / mean(each) if len(each) >= FEWEST_TO_VARY and mean(each) > 0 else None


def busy_seconds(batch: BatchObservation) -> float:
    """How long the slot's code was at work on a batch."""
    return max((slot.wall_seconds for slot in batch.slots), default=0.0)
