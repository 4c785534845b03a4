"""Metrics as they age: ten seconds for an hour, a minute for a day, an hour for a month, then nothing. Of threads there
are only the ten seconds of the last hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.control.metrics import WINDOW_SECONDS
from penstock.control.store.windows import Means, is_of_threads, merged, packed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.control.store.store import Store

HOUR, DAY, MONTH = 3600, 86_400, 30 * 86_400
AGES = ((HOUR, int(WINDOW_SECONDS), 60), (DAY, 60, HOUR), (MONTH, HOUR, 0))
"""(age, from, to): means over `from` seconds that are older than `age` become means over `to` seconds."""

THIN_EVERY = 60.0
"""Often, so that little is to be done each time."""


class History:
    """Readings gathered into windows, written when a window is over."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._means: dict[str, Means] = {}
        """Means per owner."""
        self._window = -1.0
        self._thinned = 0.0

    def add(self, owner: str, subject: str, values: Mapping[str, float], now: float) -> None:
        self.turn(now)
        means = self._means.get(owner)
        if means is None:
            means = self._means[owner] = Means()
        means.add(subject, values.items())

    def turn(self, now: float) -> None:
        """Write the window that is over, and now and then thin old windows."""
        window = now // WINDOW_SECONDS * WINDOW_SECONDS
        if window == self._window:
            return
        over, self._means = self._means, {}
        at, self._window = self._window, window
        rows = [(owner, at, packed(means.readings())) for owner, means in over.items()]
        self._store.add_windows(int(WINDOW_SECONDS), rows)
        if now - self._thinned >= THIN_EVERY or now < self._thinned:
            self._thinned = now
            for older, seconds, into in AGES:
                self._thin(now, older, seconds, into)
            self._store.trim()

    def _thin(self, now: float, older: float, seconds: int, into: int) -> None:
        """Means over `seconds` that are older than `older` become means over `into`; with `into` 0 they go."""
        edge = _floor(now - older, into or seconds)
        alike: dict[tuple[str, float], list[bytes]] = {}
        for row in self._store.windows_before(seconds, edge) if into else ():
            if not is_of_threads(row["owner"]):
                alike.setdefault((row["owner"], _floor(row["at"], into)), []).append(row["readings"])
        rows = [(owner, at, merged(values)) for (owner, at), values in alike.items()]
        self._store.replace_windows(seconds, edge, into, rows)


def _floor(at: float, seconds: int) -> float:
    return at // seconds * seconds
