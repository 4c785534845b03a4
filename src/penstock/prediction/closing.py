"""When what an aggregation makes of a tuple leaves it, where windows are sent on once they are closed.

A tuple is due at any time of a stretch of S seconds at whose end a window starts; of the windows of W seconds it is in,
the last one ends between `W - S` and W later. Spark closes a window with a watermark: the latest time it has seen, less
the L seconds it waits for what is late, as of the batch before. So a batch must bring a tuple that was due L after the
window's end, which takes that tuple's latency (d for the batch, and up to a period T until that begins), and the next
batch sends the window on, another d later. Of all tuples the part q has left after

    W - S + q S + L + (d + q T) + d      seconds.

Assumed: tuples go on coming, in the order they were due; the parts of S and T a tuple waits for are the same, which for
parts above one half errs on the high side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.dataflow.aggregate import Aggregate


def closing_seconds(aggregate: Aggregate, batch: float, period: float, part: float = 0.5) -> float:
    """Until so large a part of an aggregation's tuples has left it, with batches of d = `batch` every T = `period`."""
    window = aggregate.window_seconds or 0.0
    slide = aggregate.slide_seconds or window
    return window - slide + part * slide + aggregate.late_seconds + batch + part * period + batch
