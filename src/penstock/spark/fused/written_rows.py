"""How many rows Spark's own operators send to sinks. Code counts for itself; these are counted by Spark, as it writes a
batch: no pass more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.regions import is_sparks_own
from penstock.spark.fused.observations import ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline
    from penstock.spark.fused.observations import PassCounter


class WrittenRows:
    """Of the sinks that get all they get from an operator of Spark's own, batch by batch."""

    def __init__(self, pipeline: Pipeline, code: Mapping[str, Logic], passes: PassCounter) -> None:
        own = sparks_own_code(code)
        sinks = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.SINK]
        self._sinks = [
            sink
            for sink in sinks
            if len(pipeline.inputs(sink)) == 1 and is_sparks_own(pipeline, pipeline.inputs(sink)[0].sender, own)
        ]
        self._only = self._sinks[0] if sinks == self._sinks[:1] else None
        """The one sink there is: of some sinks Spark says itself how many rows it wrote."""
        self._passes = passes
        self._observed: dict[int, dict[str, str]] = {}
        self._unknown: Counter[str] = Counter()
        """Batches of which nobody knows how many rows a sink got."""

    def observed(self, batch: int, sink: str, frame: DataFrame) -> DataFrame:
        """The same frame, whose rows are counted as it is written."""
        if sink not in self._sinks:
            return frame
        name, counting = self._passes.observed(frame)
        self._observed.setdefault(batch, {})[sink] = name
        return counting

    def of_batch(self, progress: StreamingQueryProgress) -> dict[str, int]:
        """By sink; one is left out of which nobody knows, because a function of the user's did not read all rows."""
        by_spark = progress.sink.numOutputRows
        if self._only is not None and by_spark >= 0:
            return {self._only: by_spark}
        rows: dict[str, int] = {}
        for sink, name in self._observed.pop(progress.batchId, {}).items():
            counts = self._passes.counts(name)
            if counts is None:
                self._unknown[sink] += 1
            else:
                rows[sink] = counts[ROWS]
        return rows

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"sink '{sink}': of {batches:,} of its batches no action on the DataFrame read all rows, so they are not "
            "counted as sent"
            for sink, batches in self._unknown.items()
        )
