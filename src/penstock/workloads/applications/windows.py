"""Event time and ranks of the applications."""

from __future__ import annotations

from typing import Any
from zlib import crc32

LATE_SECONDS = 5
"""Seconds that windows wait, in the time of the messages. A topic has several partitions, and a batch may hold later
messages of one than of another: without a wait, rows read after the end of their window would be left out."""


def with_moments(frame: Any, *columns: str) -> Any:
    """`columns` of the rows, and as `moment` when each happened (`ts`, seconds since the epoch)."""
    rows = frame.selectExpr("timestamp_seconds(ts) AS moment", *columns)
    return rows.withWatermark("moment", f"{LATE_SECONDS} seconds")


SHARES = 4
"""Rankings are made of parts, as in the documents, and then put together."""


def share_of(value: str) -> int:
    """Return the part that ranks a value."""
    return crc32(value.encode()) % SHARES
