"""A Spark source for trials: one query serves many of them, each with its own operator, threads, rate and batch bound.

What is on trial stands in a file. The query reads it before every batch, so the next trial begins when the file says
so, without the seconds that starting another query takes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.base.clock import now
from penstock.base.errors import BadInputError
from penstock.base.files import Amount, Count, Spec, read_value, write_text
from penstock.spark.load_source import pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

NAME = "penstock-trial"
SCHEMA = "id bigint, due double, value bigint"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrialSetting:
    """What is on trial. `rate` tuples/s are due from `start` (seconds since the epoch) on; `held`: emit nothing."""

    number: int
    operator: str
    threads: int
    rate: float
    start: float
    most_rows: int
    held: bool = False

    def write(self, folder: Path) -> None:
        write_text(folder / "setting", json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> TrialSetting:
        return cls(**read_value(_KeptSetting, folder / "setting").model_dump())

    def due(self, at: float) -> int:
        """How many tuples of this trial are due at a time."""
        return max(0, int((at - self.start) * self.rate))


class _KeptSetting(Spec):
    """A `TrialSetting` as it stands in its file."""

    number: int
    operator: str
    threads: Count
    rate: Amount
    start: Amount
    most_rows: Count
    held: bool


NOTHING_ON_TRIAL = TrialSetting(number=0, operator="", threads=1, rate=0.0, start=0.0, most_rows=1, held=True)


class _Range(InputPartition):
    def __init__(self, first: int, last: int, start: float, rate: float) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last
        self.start = start
        self.rate = rate


class TrialReader(DataSourceStreamReader):
    """Offsets are the number of the trial and how many of its tuples were emitted; a new trial counts from 0."""

    def __init__(self, given: dict[str, str]) -> None:
        self._folder = Path(given["folder"])
        self._reached = self.initialOffset()
        self._known: TrialSetting | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"trial": 0, "tuples": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Asked by Spark 4.2 and newer."""
        from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: PLC0415 - older ones do not have it

        return ReadMaxRows(self._setting().most_rows)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        """Spark before 4.2 does not say where the last batch ended; the batches themselves do."""
        return next_offset(self._setting(), self._reached if start is None else start, now())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._reached = end
        setting = self._setting()
        return [_Range(_first(start, end["trial"]), end["tuples"], setting.start, setting.rate)]

    def _setting(self) -> TrialSetting:
        """As the file says; where it says nothing that can be read, as it said before."""
        try:
            self._known = TrialSetting.read(self._folder)
        except BadInputError as error:
            if self._known is None:
                raise
            _LOG.warning("%s", error)
        return self._known

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for first, last in pieces(partition.first, partition.last):
            numbers = np.arange(first, last)
            ids = pa.array(numbers)
            due = pa.array(partition.start + (numbers + 1) / partition.rate)
            yield pa.record_batch([ids, due, ids], names=["id", "due", "value"])


def next_offset(setting: TrialSetting, start: dict[str, int], at: float) -> dict[str, int]:
    """Up to where the next batch goes; `start` itself: there is nothing to do."""
    first = _first(start, setting.number)
    last = min(setting.due(at), first + setting.most_rows)
    return start if setting.held or last <= first else {"trial": setting.number, "tuples": last}


def _first(start: dict[str, int], trial: int) -> int:
    return start["tuples"] if start["trial"] == trial else 0


class TrialSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> TrialReader:  # noqa: N802 - Spark's name
        return TrialReader(dict(self.options))
