"""The most frequent of something, window by window, as Spark's own operators chained: counts per window, the first few
of every share of them, the first few of all. Each sends on what is final: a window that is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


# Event time for windows: the time in the message, not the time it was read.


LATE_SECONDS = 5
"""A window waits for so long, in the time of the messages. A topic has several partitions, and a batch may hold later
messages of one than of another: without a wait, what is read behind the end of its window would be left out."""


def with_moments(frame: Any, *columns: str) -> Any:
    """`columns` of the rows, and as `moment` when each happened (`ts`, seconds since the epoch)."""
    rows = frame.selectExpr("timestamp_seconds(ts) AS moment", *columns)
    return rows.withWatermark("moment", f"{LATE_SECONDS} seconds")


WINDOW_SECONDS = 10
FIRST_FEW = 5
SHARES = 4
"""Rankings are made of parts, as in the documents, and then put together."""


def count_per_window(field: str) -> Callable[[Any], Any]:
    """How often every value of `field` occurs in a window of the tuples' own time (`ts`, seconds since the epoch)."""

    def counted(frame: Any) -> Any:
        windows = with_moments(frame, field).selectExpr(f"window(moment, '{WINDOW_SECONDS} seconds') AS span", field)
        return windows.groupBy("span", field).count()

    return counted


def rank_some(field: str) -> Callable[[Any], Any]:
    """The first few of each share of the values."""

    def ranked(frame: Any) -> Any:
        share = f"pmod(xxhash64({field}), {SHARES}) AS share"
        return _first_few(frame.selectExpr(_AGAIN, share, f"struct(count, {field}) AS pair"), field, "span", "share")

    return ranked


def rank_all(field: str) -> Callable[[Any], Any]:
    """One row per window: its end in seconds since the epoch, and the first few with their counts, as JSON."""

    def ranked(frame: Any) -> Any:
        top = _first_few(frame.selectExpr(_AGAIN, "explode(first) AS pair"), field, "span")
        return top.selectExpr("CAST(span.end AS double) AS window_end", "to_json(first) AS first")

    return ranked


_AGAIN = f"window(span, '{WINDOW_SECONDS} seconds') AS span"
"""A window of windows: Spark knows by it that what follows is over when they are."""


def _first_few(frame: Any, field: str, *keys: str) -> Any:
    """The pairs with the highest counts; of equal ones the first by name."""
    after = f"""(a, b) -> CASE WHEN a.count != b.count THEN CAST(sign(b.count - a.count) AS int)
                               WHEN a.{field} < b.{field} THEN -1 WHEN a.{field} > b.{field} THEN 1 ELSE 0 END"""
    lists = frame.groupBy(*keys).agg({"pair": "collect_list"})
    return lists.selectExpr(*keys, f"slice(array_sort(`collect_list(pair)`, {after}), 1, {FIRST_FEW}) AS first")
