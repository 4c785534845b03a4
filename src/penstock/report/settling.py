"""When a run under a steady load has settled: what gathered while Spark got ready has been worked off.

Java compiles in the first ten or twenty seconds, and batches take two or three times as long meanwhile. What waits then
is worked off later, so that latencies of that time are of the start and not of the load. A run that falls behind for
good has settled at once: what waits never falls.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.report.report import BatchObservation

LARGEST_PART = 0.5
"""Of a run: no more is left out, however it goes."""


def settled_after(batches: Sequence[BatchObservation], least: float) -> float:
    """Seconds behind the first batch: `least`, or until no more waits than in the second half of the run and a batch of
    then."""
    if len(batches) < 2:
        return least
    first, last = batches[0].finished, batches[-1].finished
    later = [batch for batch in batches if batch.finished - first >= LARGEST_PART * (last - first)]
    level = median(batch.backlog for batch in later) + median(batch.tuples for batch in later)
    settled = next((batch.finished - first for batch in batches if batch.backlog <= level), 0.0)
    return max(least, min(settled, LARGEST_PART * (last - first)))
