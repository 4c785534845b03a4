"""Metrics as they age: ten seconds for an hour, a minute for a day, an hour for a month, then nothing. Of threads there
are only the ten seconds of the last hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.metrics import WINDOW_SECONDS
from penstock.control.store.thread_windows import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.control.core.incoming import PartReading
    from penstock.control.store.store import Store

HOUR, DAY, MONTH = 3600, 86_400, 30 * 86_400
AGES = ((HOUR, int(WINDOW_SECONDS), 60), (DAY, 60, HOUR), (MONTH, HOUR, 0))
"""Older than, means over so many seconds, become means over so many."""

THREADS_KEPT = HOUR
THIN_EVERY = 60.0
"""Often, so that little is to be done each time: whoever has to write a step waits for it."""


class History:
    """Readings gathered into windows, written when a window is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sums: dict[tuple[str, str], tuple[float, int]] = {}
        self._threads: dict[str, list[tuple[PartReading, ...]]] = {}
        self._window = -1.0
        self._thinned = 0.0

    def add(self, subject: str, values: Mapping[str, float], now: float) -> None:
        self.turn(now)
        for metric, value in values.items():
            total, count = self._sums.get((subject, metric), (0.0, 0))
            self._sums[subject, metric] = (total + value, count + 1)

    def add_threads(self, pipeline: str, parts: tuple[PartReading, ...], now: float) -> None:
        self.turn(now)
        self._threads.setdefault(pipeline, []).append(parts)

    def turn(self, now: float) -> None:
        """Writes the window that is over, and now and then thins what has aged."""
        window = now // WINDOW_SECONDS * WINDOW_SECONDS
        if window == self._window:
            return
        means, self._sums = list(self._means()), {}
        threads, self._threads = {name: packed(reports) for name, reports in self._threads.items()}, {}
        at, self._window = self._window, window
        self._store.add_metrics(means)
        self._store.add_threads(at, {name: value for name, value in threads.items() if value is not None})
        if now - self._thinned >= THIN_EVERY or now < self._thinned:
            self._thinned = now
            for older, seconds, into in AGES:
                self._store.thin(now, older, seconds, into)
            self._store.forget_threads(now - THREADS_KEPT)
            self._store.trim()

    def _means(self) -> Iterator[tuple[str, str, int, float, float]]:
        for (subject, metric), (total, count) in self._sums.items():
            yield subject, metric, int(WINDOW_SECONDS), self._window, total / count
