"""What reading and writing files takes: samples of what a source reads, and of what a sink gets, are replayed in files
of their formats, in one slot, and compared with the same stream of Parquet files that nobody wants.

Where the user's files lie, nothing is read but a sample, and nothing is written. Other sources and sinks than files are
not tried: what a trial sends to a database or a topic would be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.dataflow.endpoints import file_end
from penstock.dataflow.pipeline import Kind, OutputMode
from penstock.files import temporary_folder
from penstock.spark.fused.file_writer import FileWriter
from penstock.spark.fused.writers import CountingWriter
from penstock.spark.trials.own_operators import ReplayEnds, measure_sparks_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.pipeline import Operator
    from penstock.spark.trials.own_operators import BatchCost
    from penstock.spark.trials.samples import OperatorSample


def measure_file_end(
    session: SparkSession, operator: Operator, sample: OperatorSample, tick: Callable[[], None]
) -> BatchCost:
    """What a batch, and a row, take longer because this source is read or this sink written."""

    def cost_with(ends: ReplayEnds) -> BatchCost:
        return measure_sparks_own(session, operator.name, _as_it_is, [sample], OutputMode.APPEND.value, tick, ends)

    end = file_end(operator)
    if end is None:
        raise ValueError(f"'{operator.name}' is no source or sink of files")
    nothing = cost_with(ReplayEnds(write=CountingWriter().write))
    if operator.kind is Kind.SOURCE:
        return cost_with(ReplayEnds(end.format, end.options, CountingWriter().write)).beyond(nothing)
    with temporary_folder("written") as folder:
        options = {**end.options, "path": str(folder / "out")}
        writer = FileWriter(session, f"sink '{operator.name}'", end.format, options, "trial", replaces_all=False)
        writer.prepare()
        return cost_with(ReplayEnds(write=writer.write)).beyond(nothing)


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame
