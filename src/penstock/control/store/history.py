"""Metrics as they age: ten seconds for an hour, a minute for a day, an hour for a month, then nothing."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from penstock.control.metrics import WINDOW_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.control.store.store import Store

HOUR, DAY, MONTH = 3600, 86_400, 30 * 86_400
AGES = ((HOUR, int(WINDOW_SECONDS), 60), (DAY, 60, HOUR), (MONTH, HOUR, 0))
"""Older than, means over so many seconds, become means over so many."""

THIN_EVERY = 600.0


class History:
    """Readings gathered into windows, written when a window is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sums: dict[tuple[str, str], tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        self._window = -1.0
        self._thinned = 0.0

    def add(self, subject: str, values: Mapping[str, float], now: float) -> None:
        self.turn(now)
        for metric, value in values.items():
            total, count = self._sums[subject, metric]
            self._sums[subject, metric] = (total + value, count + 1)

    def turn(self, now: float) -> None:
        """Writes the window that is over, and now and then thins what has aged."""
        window = now // WINDOW_SECONDS * WINDOW_SECONDS
        if window == self._window:
            return
        self._store.add_metrics(self._means())
        self._sums.clear()
        self._window = window
        if now - self._thinned >= THIN_EVERY or now < self._thinned:
            self._thinned = now
            for older, seconds, into in AGES:
                self._store.thin(now, older, seconds, into)
            self._store.trim()

    def _means(self) -> Iterator[tuple[str, str, int, float, float]]:
        for (subject, metric), (total, count) in self._sums.items():
            yield subject, metric, int(WINDOW_SECONDS), self._window, total / count
