"""How often something took how long, in bins that are the same everywhere, so that histograms can be added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_MANTISSA_BITS = 4
_SHIFT = 52 - _MANTISSA_BITS
_LOWEST_SECONDS = 2.0**-14
_HIGHEST_SECONDS = 2.0**18
_LOWEST_BIN = int(np.float64(_LOWEST_SECONDS).view(np.int64)) >> _SHIFT
_BINS = (int(np.float64(_HIGHEST_SECONDS).view(np.int64)) >> _SHIFT) - _LOWEST_BIN

RELATIVE_ERROR = 1 / 32
"""Of a quantile between 61 microseconds and 3 days: a bin is at most 1/16 of its low edge wide, its middle is told."""


def _bins(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    within = np.clip(seconds, _LOWEST_SECONDS, np.nextafter(_HIGHEST_SECONDS, 0))
    numbers: NDArray[np.int64] = (within.view(np.int64) >> _SHIFT) - _LOWEST_BIN
    return numbers


class Histogram:
    """Seconds, counted in 512 bins: every doubling from 2^-14 to 2^18 has 16 of equal width.

    A float's bits, cut after the exponent and 4 bits of the mantissa, ARE the number of its bin: nothing is computed.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)

    def add(self, seconds: NDArray[np.float64]) -> None:
        """NaN, of a row of which nobody knows when it was due, does not count."""
        if not len(seconds):
            return
        edges = np.array([seconds.min(), seconds.max()])
        if np.isnan(edges[0]):
            self.add(seconds[~np.isnan(seconds)])
            return
        # tuples that travel together were due at nearly the same time: most often one bin holds them all
        lowest, highest = _bins(edges).tolist()
        if lowest == highest:
            self._counts[lowest] += len(seconds)
        else:
            self._counts += np.bincount(_bins(seconds), minlength=_BINS)

    def merge(self, other: Histogram) -> None:
        self._counts += other._counts

    def __len__(self) -> int:
        """How many were added."""
        return int(self._counts.sum())

    def quantile(self, share: float) -> float | None:
        """Seconds that this share of what was added does not exceed, within `RELATIVE_ERROR`; None: nothing was."""
        total = len(self)
        if not total:
            return None
        reached = np.cumsum(self._counts)
        bin_ = int(np.searchsorted(reached, max(1.0, share * total)))
        low, high = (np.int64((bin_ + step + _LOWEST_BIN) << _SHIFT).view(np.float64) for step in (0, 1))
        return float((low + high) / 2)

    def counts(self) -> dict[int, int]:
        """By bin, those that hold something."""
        return {int(bin_): int(self._counts[bin_]) for bin_ in np.flatnonzero(self._counts)}

    def seconds(self) -> dict[float, int]:
        """As `counts`, by the middle of each bin."""
        edges = ((bin_ + _LOWEST_BIN) << _SHIFT for bin_ in self.counts())
        middles = [float(np.int64(low).view(np.float64)) * (1 + RELATIVE_ERROR) for low in edges]
        return dict(zip(middles, self.counts().values(), strict=True))

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Self:
        made = cls()
        for number, count in counts.items():
            made._counts[number] = count
        return made
