"""Sinks that Spark writes: rows are staged as files, and handed to the sink's writer as one frame when their epoch is
committed, with the number of the epoch.

A table by JDBC, Delta and files of other formats leave out an epoch they have: those hold every row once. Other
formats and functions of the user may get an epoch again after a death: they are taken only where that was asked for.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from penstock.connectors.staged_sinks import FRAME_PREFIX
from penstock.connectors.storage import storage
from penstock.dataflow.endpoints import FILE_FORMATS, writing_of
from penstock.dataflow.known_secrets import redact
from penstock.errors import BadInputError, PenstockError
from penstock.spark.fused.writers import make_writer, write_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame, SparkSession

    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.flow.commit import Output
    from penstock.spark.fused.writers import Writer

_LOG = logging.getLogger(__name__)

ONCE = (*FILE_FORMATS, "jdbc", "delta")
"""Formats whose writers leave out an epoch that is there already."""


class NotSentError(OSError, PenstockError):
    """A sink did not take an epoch that is committed; it waits."""


def commits_by_epoch(operator: Operator) -> bool:
    writing = writing_of(operator)
    return not writing.of_the_user and writing.format in ONCE


def check_delivery(operator: Operator, *, at_least_once: bool) -> None:
    if not commits_by_epoch(operator) and not at_least_once:
        writing = writing_of(operator)
        what = "a function" if writing.of_the_user else f"'{writing.format}'"
        raise BadInputError(
            f"sink '{operator.name}': {what} cannot commit by epoch: an epoch may be there twice after a death; allow "
            "that (at_least_once=True, --at-least-once), or run it fused"
        )


def frame_writers(session: SparkSession, pipeline: Pipeline, sinks: Iterable[str], run: str) -> dict[str, Writer]:
    """Of sinks that Spark writes, ready to write."""
    writers = {name: make_writer(session, pipeline.operators[name], run) for name in sinks}
    for writer in writers.values():
        writer.prepare()
    return writers


class FramePublisher:
    """Writes epochs one after the other, in a thread of its own: tuples flow on meanwhile. The work is done by the
    executor of a slot the run holds (`profile`; None: by whichever there is)."""

    def __init__(
        self, session: SparkSession, writers: Mapping[str, Writer], place: str, profile: ResourceProfile | None
    ) -> None:
        self._session, self._writers, self._place, self._profile = session, writers, place, profile
        self._waiting: list[tuple[int, tuple[Output, ...]]] = []
        self._writing = threading.Lock()

    def add(self, outputs: Iterable[Output]) -> None:
        own = tuple(output for output in outputs if output.sink.startswith(FRAME_PREFIX))
        if own:
            self._waiting.append((int(own[0].final), own))

    def begin(self) -> None:
        threading.Thread(target=self._try, daemon=True, name="frames of an epoch").start()

    @property
    def waits(self) -> bool:
        return bool(self._waiting)

    def _try(self) -> None:
        try:
            self.publish()
        except NotSentError as error:
            _LOG.warning("an epoch is committed and waits to be written: %s", error)

    def publish(self) -> None:
        with self._writing:
            while self._waiting:
                epoch, outputs = self._waiting[0]
                for sink in dict.fromkeys(output.sink for output in outputs):
                    staged = [output.staged for output in outputs if output.sink == sink]
                    self._write(sink.removeprefix(FRAME_PREFIX), staged, epoch)
                self._waiting.pop(0)

    def _write(self, sink: str, staged: list[str], epoch: int) -> None:
        store = storage(self._place)
        there = set(store.list(staged[0].rpartition("/")[0]))
        if not there.issuperset(staged):
            # deleted once the sink had all of them: it was done before
            return
        try:
            write_batch(self._writers[sink], sink, self._frame(staged), epoch)
        except PenstockError as error:
            raise NotSentError(str(error)) from error
        except Exception as error:  # whatever the database or the user's code says
            line = f"sink '{sink}': {type(error).__name__}: {error}".splitlines()[0]
            raise NotSentError(redact(line)) from error
        for path in staged:
            store.delete(path)

    def _frame(self, staged: list[str]) -> DataFrame:
        place = self._place.rstrip("/")
        frame = self._session.read.option("mergeSchema", "true").parquet(*(f"{place}/{path}" for path in staged))
        return frame.mapInArrow(_same, frame.schema, profile=self._profile)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def _same(batches: Any) -> Any:
    """Python code can be told where to run; reading and writing alone cannot."""
    return batches
