"""The watermark a source declares, where Spark's own operators need it.

Spark follows a watermark from column to column, but not through code, and does not let a stream have two. So it is
declared where a stream comes to an operator of Spark's own, and not where it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dataflow.endpoints import reading_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.dataflow.pipeline import Pipeline


def with_watermark(pipeline: Pipeline, sender: str, frame: DataFrame) -> DataFrame:
    """What `sender` sends, with the watermark of the first source before it whose field the rows still have; as it is
    where it has one already, as behind another operator of Spark's."""
    from pyspark.sql.types import TimestampType  # noqa: PLC0415 - Spark loads only when it is used

    plan: Any = frame._jdf.queryExecution().analyzed()
    if "EventTimeWatermark" in plan.toString():
        return frame
    for source in sources_before(pipeline, sender):
        watermark = reading_of(pipeline.operators[source]).watermark
        if watermark is None or watermark.field not in frame.columns:
            continue
        if sender == source or isinstance(frame.schema[watermark.field].dataType, TimestampType):
            return frame.withWatermark(watermark.field, watermark.delay)
    return frame


def sources_before(pipeline: Pipeline, operator: str) -> list[str]:
    """Those whose tuples may come to `operator`, in declared order."""
    seen, waiting = {operator}, [operator]
    while waiting:
        senders = {stream.sender for stream in pipeline.inputs(waiting.pop())} - seen
        seen |= senders
        waiting += sorted(senders)
    return [name for name in pipeline.sources if name in seen]
