"""What a query has from whoever starts it: settings of its session, and properties of the thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from penstock.spark.fused.arrow_batches import settings_for
from penstock.spark.fused.region_function import CAREFUL_BATCH
from penstock.spark.session.embedded import with_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

NONE = cast("str", None)
"""As a local property of Spark's: there is none."""


@contextmanager
def as_queries_start(session: SparkSession, to_code: Iterable[pa.Schema], careful_batch: int | None) -> Iterator[None]:
    """A query that starts inside sends rows of the schemas `to_code`; tasks of `careful_batch` go row by row. Session
    and thread are left as they were."""
    context = session.sparkContext
    context.setLocalProperty(CAREFUL_BATCH, NONE if careful_batch is None else str(careful_batch))
    try:
        with with_settings(session, settings_for(session, to_code)):
            yield
    finally:
        context.setLocalProperty(CAREFUL_BATCH, NONE)
