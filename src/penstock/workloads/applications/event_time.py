"""The time of messages, for what Spark works out per window: that in the message, and not when it was read."""

from __future__ import annotations

from typing import Any

LATE_SECONDS = 5
"""A window waits for so long, in the time of the messages. A topic has several partitions, and a batch may hold later
messages of one than of another: without a wait, what is read behind the end of its window would be left out."""


def with_moments(frame: Any, *columns: str) -> Any:
    """`columns` of the rows, and as `moment` when each happened (`ts`, seconds since the epoch)."""
    rows = frame.selectExpr("timestamp_seconds(ts) AS moment", *columns)
    return rows.withWatermark("moment", f"{LATE_SECONDS} seconds")
