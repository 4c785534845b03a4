"""Plans of frames, formats and schemas, as Spark's analyser and its Arrow code see them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from penstock.runtime.nested_values import in_zone
from penstock.spark.internals.declarations import touches
from penstock.spark.internals.java import analysed_plan, java_classes, java_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@touches("leaves of the analysed plan: `isStreaming`, StreamingRelation(V2)", "A frame has no list of its sources.")
def stream_formats(frame: DataFrame) -> list[str]:
    """Return the format of every stream that a frame reads, once for each time it is read."""
    leaves = analysed_plan(frame).collectLeaves()
    return [_format_of_leaf(leaf) for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]


def _format_of_leaf(leaf: Any) -> str:
    kind = str(leaf.getClass().getSimpleName())
    if kind == "StreamingRelationV2":
        return str(leaf.sourceName())
    if kind != "StreamingRelation":
        return kind
    options = leaf.dataSource().options().iterator()
    while options.hasNext():
        option = options.next()
        if str(option._1()).lower() == "cleansource" and str(option._2()).lower() != "off":
            return f"a folder with cleanSource={option._2()}"
    return str(leaf.dataSource().className())


@touches("the text of the analysed plan: EventTimeWatermark", "A frame has no property for its watermark.")
def has_watermark(frame: DataFrame) -> bool:
    return "EventTimeWatermark" in analysed_plan(frame).toString()


@touches(
    "org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource",
    "Without it a format that is missing is noticed by the first batch, after everything was started.",
)
def check_format_exists(session: SparkSession, name: str) -> None:
    """Raise what Spark raises if it does not find a format."""
    source = java_classes(session).org.apache.spark.sql.execution.datasources.DataSource
    source.lookupDataSource(name, java_session(session).sessionState().conf())


@touches(
    "pyspark.sql.pandas.types.to_arrow_schema",
    "The module is not documented; schemas of rows must be those that Spark itself hands to Python.",
)
def arrow_of(struct: StructType, timezone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema of rows. `timezone` is that of the session: Spark hands timestamps over with it."""
    from pyspark.sql.pandas import types  # noqa: PLC0415 - Spark loads only when it is used

    to_arrow_schema: Any = types.to_arrow_schema
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        schema: pa.Schema = to_arrow_schema(struct, timezone=timezone)
        return schema
    # Spark before 4.1 takes no time zone, and returns UTC
    return in_zone(to_arrow_schema(struct), timezone)


@touches("pyspark.sql.pandas.types.from_arrow_schema", "The module is not documented.")
def struct_of_arrow(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark loads only when it is used

    return from_arrow_schema(schema)
