"""The batches that a run without end remembers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.report.report import BatchObservation, OperatorObservation

WHOLE_BATCHES = 200
"""So many keep what every operator did on every slot, which is most of what a batch takes: of 64 slots with 8
operators 100 kB. Figures are of fewer, reports do not look at it."""
_NOTHING: Mapping[str, OperatorObservation] = MappingProxyType({})


class KeptBatches:
    """The last `most` of them, oldest first."""

    def __init__(self, most: int, whole: int = WHOLE_BATCHES) -> None:
        self._batches: deque[BatchObservation] = deque(maxlen=most)
        self._whole = whole
        self.last_began: float | None = None
        """When the last batch that held tuples was begun, in seconds since the epoch."""

    def add(self, batch: BatchObservation) -> None:
        self._batches.append(batch)
        if batch.tuples:
            self.last_began = batch.began
        if len(self._batches) > self._whole:
            at = -1 - self._whole
            old = self._batches[at]
            self._batches[at] = replace(old, slots=tuple(replace(slot, operators=_NOTHING) for slot in old.slots))

    @property
    def last(self) -> BatchObservation | None:
        return self._batches[-1] if self._batches else None

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[BatchObservation]:
        return iter(self._batches)

    def __reversed__(self) -> Iterator[BatchObservation]:
        return reversed(self._batches)
