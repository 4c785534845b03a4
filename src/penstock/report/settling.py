"""When a run has settled: Java compiles in its first ten or twenty seconds, and batches take two or three times as long
meanwhile.

Under a steady load what waits then is worked off later, so that latencies of that time are of the start and not of the
load: it has settled when that is done. A run that falls behind for good has settled at once: what waits never falls.
Where all there is is read as fast as it goes, nothing waits, and batches tell by what their tuples take.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.report.report import BatchObservation

LARGEST_PART = 0.5
"""Of a run: no more is left out, however it goes."""
SETTLED = 1.1
"""Times what a tuple takes in the second half of a run: up to this a batch is as fast as those."""
WORKING_OFF = 1.03
"""Times what is offered: a run that takes in more works off what has gathered."""
STILL_FASTER = 0.05
"""By so much batches vary from one half of a run to the other anyway."""
FEWEST_TO_SETTLE = 4
"""Of fewer batches all count."""


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


def first_settled(batches: Sequence[BatchObservation]) -> int:
    """The first batch that counts of those of an input that came to its end: behind the first, in which Spark gets
    ready, the first whose tuples took no longer than those of the second half do; at the latest where that begins.

    What a tuple of batch i takes is `(end_i - end_(i-1)) / tuples_i`.
    """
    if len(batches) < FEWEST_TO_SETTLE:
        return 0
    each = _each_took(batches)
    latest = max(1, int(LARGEST_PART * len(batches)))
    level = SETTLED * median(each[latest - 1 :])
    return next((at for at in range(1, latest) if each[at - 1] <= level), latest)


def became_faster(batches: Sequence[BatchObservation]) -> float | None:
    """By what part a tuple took less in the second half of the batches that count than in the first: Java still
    compiled. None: it did not."""
    each = _each_took(batches[first_settled(batches) :])
    half = len(each) // 2
    if half < FEWEST_TO_SETTLE:
        return None
    before, after = median(each[:half]), median(each[half:])
    return 1 - after / before if after < (1 - STILL_FASTER) * before else None


def _each_took(batches: Sequence[BatchObservation]) -> list[float]:
    """Seconds for a tuple of every batch but the first, from the end of the one before."""
    return [
        (later.finished - earlier.finished) / later.tuples if later.tuples else 0.0
        for earlier, later in pairwise(batches)
    ]


def notes_under_load(warm_up: float, settled: float, offered: float, sustained: float) -> list[str]:
    """Of a run under a steady load: what of it does not count beyond the warm-up, and whether it settled at all."""
    if sustained > WORKING_OFF * offered:
        return [
            "it took in more than came: what had gathered while Spark got ready, to which its latency belongs too; "
            "a longer run (--seconds) would settle"
        ]
    if settled > warm_up:
        return [f"its first {settled:.0f} s do not count: what gathered while Spark got ready was worked off then"]
    return []


def notes_of_all(tuples: int, seconds: float, batches: int, counted: int, faster: float | None = None) -> list[str]:
    """Of a run over all there was, in `seconds` since its start: how much of it rate and latency are of, and whether
    those that count `became_faster`."""
    notes = [f"the input ended: all {tuples:,} tuples were taken in within {seconds:.1f} s"]
    if counted < batches:
        first = "its first batch does" if batches - counted == 1 else f"its first {batches - counted} batches do"
        notes.append(f"{first} not count in rate and latency, {counted} do: Spark was getting ready")
    if faster is not None:
        notes.append(
            f"it was still getting faster when its input ended: a tuple took {faster:.0%} less in the second half of "
            "what counts than in the first, while Java compiled; what is predicted is for Java that has"
        )
    return notes
