"""Messages that wait in topics, by topic/partition, as reports, figures and statistics have it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def kept_apart(lags: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """What waits for each source, by topic/partition, as one. Sources that read the same topic are each at a place of
    their own: the second of them has `topic/partition#2`."""
    joined: dict[str, int] = {}
    readers: Counter[str] = Counter()
    for lag in lags:
        for where, count in lag.items():
            readers[where] += 1
            joined[where if readers[where] == 1 else f"{where}#{readers[where]}"] = count
    return joined


def by_source(lag: Mapping[str, int]) -> dict[str, int]:
    """The same from what is kept by source/topic/partition."""
    sources = dict.fromkeys(key.partition("/")[0] for key in lag)
    return kept_apart(
        {key.partition("/")[2]: count for key, count in lag.items() if key.partition("/")[0] == source}
        for source in sources
    )


def gone_notes(gone: Mapping[str, int]) -> list[str]:
    """Of messages that retention took before they were read."""
    return [f"topic and partition {where}: {count:,} messages were gone unread" for where, count in gone.items()]


def waiting_notes(lag: Mapping[str, int]) -> list[str]:
    return [f"topic and partition {where}: {count:,} messages wait" for where, count in lag.items() if count]
