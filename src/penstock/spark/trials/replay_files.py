"""A sample over and over, as files that a stream reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from penstock.spark.trials.replay import TimedReplay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.spark.trials.samples import OperatorSample


class ReplayFiles:
    """Files of `format` below a folder that a stream looks into, each there whole or not at all."""

    def __init__(
        self,
        session: SparkSession,
        sample: OperatorSample,
        folder: Path,
        format: str = "parquet",  # noqa: A002 - Spark's word
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._session = session
        self._replay = TimedReplay(sample)
        self._folder = folder
        self._format = format
        self._options = dict(options or {})
        self._batches = 0
        self._rows = 0
        folder.mkdir()

    @property
    def pattern(self) -> str:
        """What the stream reads: files that belong together lie in a folder of their own, and are there at once."""
        return str(self._folder / "*")

    def write(self, rows: int, files: int = 1) -> None:
        """The next rows of the sample, in so many files."""
        each = max(1, rows // files)
        hidden = self._folder.with_name(f"next-{self._folder.name}")
        hidden.mkdir()
        for number in range(files):
            table = self._replay.table(self._rows, each)
            self._rows += each
            written = self._written(table, hidden.with_name(f"{hidden.name}-{number}"))
            written.rename(hidden / f"{number}{''.join(written.suffixes)}")
        hidden.rename(self._folder / f"{self._batches:06d}")
        self._batches += 1

    def _written(self, table: pa.Table, place: Path) -> Path:
        """A file that holds these rows, not yet where the stream looks."""
        if self._format == "parquet":
            file = place.with_suffix(".parquet")
            pq.write_table(table, file)
            return file
        rows = self._session.createDataFrame(table).coalesce(1)
        rows.write.format(self._format).options(**self._options).mode("overwrite").save(str(place))
        return next(place.glob("part-*"))
