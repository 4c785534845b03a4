"""A sample over and over, as files that a stream reads."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from penstock.spark.trials.replay import TimedReplay

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.spark.trials.motion import Motion
    from penstock.spark.trials.samples import OperatorSample


class ReplayFiles:
    """Files of `format` below a folder that a stream looks into, each there whole or not at all.

    Spark writes other formats than Parquet, and takes longer for it than the stream for reading them: so files are made
    before the stream begins, and shown to it when their turn comes. Where rows that come later are the same, the same
    files serve again and again, by links.
    """

    def __init__(
        self,
        session: SparkSession,
        sample: OperatorSample,
        folder: Path,
        format: str = "parquet",  # noqa: A002 - Spark's word
        options: Mapping[str, str] | None = None,
        motion: Motion | None = None,
        *,
        new_keys: bool = True,
    ) -> None:
        self._session = session
        self._replay = TimedReplay(sample, motion=motion, new_keys=new_keys)
        self._folder = folder
        self._format = format
        self._options = dict(options or {})
        self._ready: defaultdict[tuple[int, int], deque[Path]] = defaultdict(deque)
        """Folders that are not shown yet, by rows and files."""
        self._made = 0
        self._shown = 0
        self._rows = 0
        folder.mkdir()

    @property
    def pattern(self) -> str:
        """What the stream reads: files that belong together lie in a folder of their own, and are there at once."""
        return str(self._folder / "*")

    def renew_keys(self) -> None:
        """From now on."""
        self._replay.new_keys = True

    def prepare(self, rows: int, files: int, batches: int) -> None:
        """So many batches are made now."""
        ready = self._ready[rows, files]
        while len(ready) < (batches if self._replay.moves_on else 1):
            ready.append(self._make(rows, files))

    def write(self, rows: int, files: int = 1) -> None:
        """The next rows of the sample, in so many files."""
        self.prepare(rows, files, 1)
        ready = self._ready[rows, files]
        next_one = ready.popleft() if self._replay.moves_on else self._linked(ready[0])
        next_one.rename(self._folder / f"{self._shown:06d}")
        self._shown += 1

    def _make(self, rows: int, files: int) -> Path:
        each = max(1, rows // files)
        hidden = self._hidden()
        for number in range(files):
            table = self._replay.table(self._rows, each)
            self._rows += each
            written = self._written(table, hidden.with_name(f"{hidden.name}-{number}"))
            written.rename(hidden / f"{number}{''.join(written.suffixes)}")
        return hidden

    def _linked(self, made: Path) -> Path:
        hidden = self._hidden()
        for file in made.iterdir():
            os.link(file, hidden / file.name)
        return hidden

    def _hidden(self) -> Path:
        """A new folder where the stream does not look."""
        hidden = self._folder.with_name(f"next-{self._folder.name}-{self._made}")
        hidden.mkdir()
        self._made += 1
        return hidden

    def _written(self, table: pa.Table, place: Path) -> Path:
        """A file that holds these rows, not yet where the stream looks."""
        if self._format == "parquet":
            file = place.with_suffix(".parquet")
            pq.write_table(table, file)
            return file
        rows = self._session.createDataFrame(table).coalesce(1)
        rows.write.format(self._format).options(**self._options).mode("overwrite").save(str(place))
        return next(place.glob("part-*"))
