"""A declared aggregation as Spark's own: a grouping, over windows of time where one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dataflow.aggregate import Emit, WindowTime, top_count
from penstock.dataflow.pipeline import OutputMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.dataflow.aggregate import Aggregate

_MOMENT = "penstock_moment"
_WINDOW = "penstock_window"


def aggregate_frame(frame: DataFrame, aggregate: Aggregate, due: str) -> DataFrame:
    """Time is the field the aggregation names, else when a tuple was `due` (a column of the frame where the load
    generator made it), else when it was taken in."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - what everybody calls them; Spark loads when used

    # a value that cannot be had as its type is null: raised, it would end this attempt and every one after it.
    # Without the watermark a column may have: there is one time in a window, that of the aggregation
    columns = [F.col(f"`{name}`").try_cast(kind).alias(name, metadata={}) for name, kind in aggregate.columns.items()]
    keys: list[Any] = [F.col(name) for name in aggregate.keys]
    shown = [F.col(name) for name in aggregate.keys]
    if aggregate.window_seconds is None:
        rows = frame.select(*columns)
    else:
        if aggregate.window_time is WindowTime.PROCESSING:
            moment = F.current_timestamp()
        elif aggregate.time is not None:
            moment = F.col(f"`{aggregate.time}`").try_cast("timestamp")
        else:
            moment = F.timestamp_seconds(F.col(due)) if due in frame.columns else F.current_timestamp()
        rows = frame.select(*columns, moment.alias(_MOMENT, metadata={})).withWatermark(
            _MOMENT, _interval(aggregate.late_seconds)
        )
        slide = aggregate.slide_seconds or aggregate.window_seconds
        keys.append(F.window(F.col(_MOMENT), _interval(aggregate.window_seconds), _interval(slide)).alias(_WINDOW))
        shown += [F.col(f"{_WINDOW}.{end}").cast("double").alias(f"window_{end}") for end in ("start", "end")]
    calls = []
    for output, (function, name) in aggregate.calls().items():
        most = top_count(function)
        if name is None:
            made = F.count(F.lit(1))
        elif most is not None:
            made = F.slice(F.sort_array(F.collect_list(F.col(name)), asc=False), 1, most)
        else:
            made = getattr(F, function)(F.col(name))
        calls.append(made.alias(output))
    return rows.groupBy(*keys).agg(*calls).select(*shown, *(F.col(output) for output in aggregate.outputs))


def needs_due(aggregate: Aggregate | None) -> bool:
    """Whether when a tuple was due decides into which window it goes."""
    return (
        aggregate is not None
        and aggregate.window_seconds is not None
        and aggregate.time is None
        and aggregate.window_time is WindowTime.EVENT
    )


def mode_of(aggregate: Aggregate) -> OutputMode:
    return OutputMode.APPEND if aggregate.emit is Emit.CLOSED else OutputMode.UPDATE


def _interval(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"
