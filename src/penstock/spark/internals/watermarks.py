"""The watermark of a source, declared before Spark's own operators.

Spark follows a watermark from column to column, but not through code, and does not let a stream have two. So it is
declared before a stream enters an operator of Spark's own, and not after it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.formats import reading_of
from penstock.spark.internals.plans import has_watermark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.dataflow.pipeline import Pipeline


def with_watermark(pipeline: Pipeline, sender: str, frame: DataFrame) -> DataFrame:
    """Return the rows of `sender` with the watermark of the first source before it whose field the rows still have;
    unchanged if they have one already, as after another operator of Spark's."""
    from pyspark.sql.types import TimestampType  # noqa: PLC0415 - Spark loads only when it is used

    if has_watermark(frame):
        return frame
    by_case = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    for source in sources_before(pipeline, sender):
        watermark = reading_of(pipeline.operators[source]).watermark
        field = None if watermark is None else column_called(watermark.field, frame.columns, by_case=by_case)
        if watermark is None or field is None:
            continue
        if sender == source or isinstance(frame.schema[field].dataType, TimestampType):
            return frame.withWatermark(field, watermark.delay)
    return frame


def column_called(name: str, columns: Sequence[str], *, by_case: bool) -> str | None:
    """The column that Spark finds by a name, which it may write with other capitals; None: there is none."""
    if by_case or name in columns:
        return name if name in columns else None
    return next((column for column in columns if column.lower() == name.lower()), None)


def sources_before(pipeline: Pipeline, operator: str) -> list[str]:
    """Those whose tuples may come to `operator`, in declared order."""
    seen, waiting = {operator}, [operator]
    while waiting:
        senders = {stream.sender for stream in pipeline.inputs(waiting.pop())} - seen
        seen |= senders
        waiting += sorted(senders)
    return [name for name in pipeline.sources if name in seen]
