"""How many rows Spark's own operators send to sinks. Code counts for itself; these are counted by Spark, as it writes a
batch: no pass more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.clock import Stopwatch
from penstock.dataflow.endpoints import writing_of
from penstock.dataflow.logic import sparks_own_code
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.regions import is_sparks_own
from penstock.spark.fused.observations import PATIENCE_SECONDS, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from penstock.dataflow.logic import Logic
    from penstock.dataflow.pipeline import Pipeline

_ROWS = "rows"


class WrittenRows:
    """Of the sinks that get all they get from an operator of Spark's own, batch by batch."""

    def __init__(self, pipeline: Pipeline, code: Mapping[str, Logic]) -> None:
        own = sparks_own_code(code)
        sinks = [name for name, operator in pipeline.operators.items() if operator.kind is Kind.SINK]
        self._sinks = [
            sink
            for sink in sinks
            if len(pipeline.inputs(sink)) == 1 and is_sparks_own(pipeline, pipeline.inputs(sink)[0].sender, own)
        ]
        self._only = self._sinks[0] if sinks == self._sinks[:1] else None
        """The one sink there is: of some sinks Spark says itself how many rows it wrote."""
        self._of_the_user = {sink for sink in sinks if writing_of(pipeline.operators[sink]).of_the_user}
        self._observations: dict[int, dict[str, Any]] = {}

    def observed(self, batch: int, sink: str, frame: DataFrame) -> DataFrame:
        """The same frame, whose rows are counted as it is written."""
        if sink not in self._sinks:
            return frame
        from pyspark.sql import Observation, functions  # noqa: PLC0415 - Spark loads only when it is used

        observation = Observation()
        self._observations.setdefault(batch, {})[sink] = observation
        return frame.observe(observation, functions.count(functions.lit(1)).alias(_ROWS))

    def of_batch(self, progress: StreamingQueryProgress) -> dict[str, int]:
        """By sink; one is left out of which nobody knows, because a function of the user's did not read its rows."""
        by_spark = progress.sink.numOutputRows
        if self._only is not None and by_spark >= 0:
            return {self._only: by_spark}
        waited = Stopwatch()
        rows: dict[str, int] = {}
        for sink, observation in self._observations.pop(progress.batchId, {}).items():
            counted = answer_of(observation, waited, 0.0 if sink in self._of_the_user else PATIENCE_SECONDS)
            if counted is not None:
                rows[sink] = int(counted[_ROWS])
        return rows
