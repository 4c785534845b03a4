"""New executors made ready before they get tuples. The first task of one loads classes and starts Python workers for
seconds, and a batch that has a part there would wait for it as a whole."""

from __future__ import annotations

import importlib
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.clock import Stopwatch
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.spark.fused.region_function import RegionFunction


@dataclass(frozen=True)
class Readying:
    """For `mapInArrow`: rows stay as they are, and meanwhile the worker loads what batches need there."""

    regions: tuple[RegionFunction, ...]
    modules: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for module in self.modules:
            importlib.import_module(module)
        for region in self.regions:
            # no tuples, and nobody is told: its threads and connections are there from now on
            deque(replace(region, accumulator=None)(iter(())), maxlen=0)
        yield from batches


def warm_up(session: SparkSession, slots: int, place: str | None, readying: Readying) -> float:
    """A task for every slot that works as batches do and has no tuples of theirs; where sinks write files it writes one
    below `place`. Returns how long it took. Those that are at work take none, or answer at once."""
    watch = Stopwatch()
    try:
        # twice: a batch is read by one worker and worked on by another
        rows = session.range(0, slots, 1, slots).mapInArrow(readying, "id long").mapInArrow(readying, "id long")
        if place is None:
            rows.write.format("noop").mode("overwrite").save()
        else:
            rows.selectExpr("to_json(struct(id)) AS value").write.mode("overwrite").parquet(place)
            _delete(session, place)
    except (Py4JError, PySparkException) as error:
        raise ClusterError(f"new slots could not be warmed up: {str(error).partition(chr(10))[0]}") from error
    return watch.seconds()


def _delete(session: SparkSession, place: str) -> None:
    java: Any = session.sparkContext._jvm
    path = java.org.apache.hadoop.fs.Path(place)
    path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()).delete(path, True)
