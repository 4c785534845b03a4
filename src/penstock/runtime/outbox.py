"""What left a segment and waits to be taken: bounded, gathered by operator."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.batch import Batch

MOST_ROWS = 65_536
MOST_BYTES = 64 * 2**20
WORTH_TAKING_ROWS = 4096


class Outbox:
    """Threads put, whoever runs `Segment.process` takes. All methods are called with the segment's lock held."""

    def __init__(self, lock: threading.Lock) -> None:
        self.not_full = threading.Condition(lock)
        self._batches: dict[str, list[Batch]] = {}
        self._rows = 0
        self._nbytes = 0

    @property
    def has_room(self) -> bool:
        return self._rows < MOST_ROWS and self._nbytes < MOST_BYTES

    @property
    def worth_taking(self) -> bool:
        return self._rows >= WORTH_TAKING_ROWS or not self.has_room

    def put(self, operator: str, batch: Batch) -> None:
        self._batches.setdefault(operator, []).append(batch)
        self._rows += len(batch)
        self._nbytes += batch.nbytes

    def take(self) -> dict[str, list[Batch]]:
        """By operator."""
        taken, self._batches = self._batches, {}
        self._rows = self._nbytes = 0
        self.not_full.notify_all()
        return taken
