"""Which part of an epoch's tuples has a field above a threshold, counted in the bundles where they come to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Watched = dict[int, tuple[str, float]]
"""A field and a threshold, by a number of whoever asked."""


class WatchedCounts:
    """Of one bundle since it was last asked. A field counts at the first of its sinks that has it."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._counts: dict[int, tuple[str, int, int]] = {}

    def take_in(self, sink: str, rows: pa.RecordBatch) -> None:
        for number, (field, threshold) in self.watched.items():
            if field not in rows.schema.names:
                continue
            at, above, total = self._counts.get(number, (sink, 0, 0))
            if at == sink:
                self._counts[number] = (sink, above + _above(rows.column(field), threshold), total + rows.num_rows)

    def cut(self) -> list[tuple[int, int, int]]:
        """(number, above, total); counting begins anew."""
        counts, self._counts = self._counts, {}
        return [(number, above, total) for number, (_, above, total) in counts.items()]


def _above(column: pa.Array, threshold: float) -> int:
    """A column that is not of numbers is above nothing."""
    try:
        numbers = pc.cast(column, pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return 0
    return int(pc.sum(pc.greater(numbers, threshold)).as_py() or 0)


def shares_of(counts: Iterable[tuple[int, int, int]], watched: Watched) -> Mapping[int, float]:
    """share = above / total over all bundles, of what is watched and came at all."""
    sums: dict[int, tuple[int, int]] = {}
    for number, above, total in counts:
        known = sums.get(number, (0, 0))
        sums[number] = (known[0] + above, known[1] + total)
    return {number: above / total for number, (above, total) in sums.items() if total and number in watched}
