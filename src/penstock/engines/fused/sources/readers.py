"""Sources as streaming DataFrames: Spark's own readers, a function of the user's, or the load generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.base.errors import BadInputError
from penstock.connectors.connection_settings import with_secrets
from penstock.dataflow.code import frame_function
from penstock.dataflow.endpoints import reading_of
from penstock.dataflow.formats import find_format
from penstock.engines.fused.schemas import struct_of
from penstock.engines.fused.sources.topics import read_topics
from penstock.spark.internals.error_messages import in_one_line, raised_in_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.endpoints import Reading
    from penstock.dataflow.pipeline import Operator


def read_source(session: SparkSession, operator: Operator, slots: int = 1, folder: Path | None = None) -> DataFrame:
    """The stream of a source that is not the load generator; its watermark is declared where it is needed. A source of
    ours is cut for so many `slots`, and meets its run in a `folder`; without one it is only looked at."""
    reading = reading_of(operator)
    who = f"source '{operator.name}'"
    with in_one_line(who, reading.format):
        if reading.of_the_user:
            frame = _of_the_user(session, operator, who)
        elif find_format(reading.format).is_log:
            frame = read_topics(session, reading, who, slots, folder)
        else:
            frame = _of_spark(session, reading, who)
        if reading.watermark is not None:
            # a field that is missing, or no time, is reported here, by its source
            frame.withWatermark(reading.watermark.field, reading.watermark.delay)
    return frame


def _of_the_user(session: SparkSession, operator: Operator, who: str) -> DataFrame:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark loads only when it is used

    function = cast("Callable[[SparkSession], object]", frame_function(operator))
    with raised_in_code(who, BadInputError):
        frame = function(session)
    if not isinstance(frame, DataFrame):
        raise BadInputError(f"{who}: frame: expected a DataFrame, got {type(frame).__name__}")
    if not frame.isStreaming:
        raise BadInputError(f"{who}: frame: expected a stream (session.readStream...), got a table")
    return frame


def _of_spark(session: SparkSession, reading: Reading, who: str) -> DataFrame:
    options = with_secrets(reading.options, who, reading.format)
    stream = session.readStream.format(reading.format).options(**options)
    if reading.schema is not None:
        stream = stream.schema(struct_of(reading.schema, who))
    elif find_format(reading.format).is_files:
        # a stream of Spark's needs a schema: take it from the files that are there already
        table = session.read.format(reading.format).options(**options).load()
        if not table.columns:
            raise BadInputError(f"{who}: no rows yet to see what they hold; give schema: NAME TYPE, ...")
        stream = stream.schema(table.schema)
    return stream.load()
