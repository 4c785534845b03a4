"""Which part of a batch has a field above a threshold, counted by Spark as the batch is written: no pass more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.fused.observations import ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from penstock.spark.fused.observations import PassCounter


class BatchShares:
    """What is watched may change while the query runs, from any thread."""

    def __init__(self, passes: PassCounter) -> None:
        self._passes = passes
        self._watched: dict[int, tuple[str, float]] = {}
        self._observed: list[tuple[str, list[int]]] = []
        self.last: Mapping[int, float] = {}
        """Of the last batch that held tuples, by what is watched."""

    def watch(self, fields: Mapping[int, tuple[str, float]]) -> None:
        """A field and a threshold, by a number of the caller's."""
        self._watched = dict(fields)
        self.last = {number: share for number, share in self.last.items() if number in fields}

    def observed(self, sink: str, frame: DataFrame) -> DataFrame:
        """The same frame; where it has fields that are watched, they are counted as it is written."""
        counted = {number for _, numbers in self._observed for number in numbers}
        here = {
            number: watched
            for number, watched in self._watched.items()
            if watched[0] in frame.columns and number not in counted
        }
        if not here:
            return frame
        from pyspark.sql import functions  # noqa: PLC0415 - Spark loads only when it is used

        above = [
            functions.count(functions.when(functions.col(f"`{field}`").cast("double") > threshold, 1)).alias(
                str(number)
            )
            for number, (field, threshold) in here.items()
        ]
        name, counting = self._passes.observed(frame, *above)
        self._observed.append((name, list(here)))
        return counting

    def collect(self) -> None:
        """The batch was written."""
        shares = dict(self.last)
        for name, numbers in self._observed:
            counts = self._passes.counts(name)
            if counts is not None and counts[ROWS]:
                shares |= {number: counts[str(number)] / counts[ROWS] for number in numbers}
        self._observed.clear()
        self.last = {number: share for number, share in shares.items() if number in self._watched}
