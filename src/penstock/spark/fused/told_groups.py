"""Consumer groups that are told how far a run has read, so that other tools see it (`groupId`).

The run tells them when a batch is through. Spark tells a source of it only when the next batch begins, and of the last
one never: a group was always a batch behind.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.connectors.log.address import LogAddress, subscribed
from penstock.connectors.log.contract import LogError
from penstock.dataflow.endpoints import reading_of
from penstock.spark.fused.topics import read_by_us, topic_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from penstock.connectors.log.contract import TopicLog
    from penstock.dataflow.pipeline import Pipeline

GROUP = "groupId"


class ToldGroups:
    """Of the sources that our own connector reads."""

    def __init__(self, session: SparkSession, pipeline: Pipeline) -> None:
        readings = [reading_of(pipeline.operators[name]) for name in read_by_us(session, pipeline)]
        self._readings = [reading for reading in readings if GROUP in reading.options]
        self._opened: dict[int, TopicLog] = {}

    def tell(self, progress: StreamingQueryProgress) -> None:
        """A broker that does not answer is told with the next batch."""
        for number, reading in enumerate(self._readings):
            for topic, offsets in self._reached(progress, subscribed(reading.options)).items():
                with suppress(LogError):
                    if number not in self._opened:
                        self._opened[number] = LogAddress(reading.format, reading.options).open()
                    self._opened[number].commit_group(reading.options[GROUP], topic, offsets)

    @staticmethod
    def _reached(progress: StreamingQueryProgress, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        reached: dict[str, dict[int, int]] = {}
        for source in progress.sources:
            for topic, parts in (topic_offsets(source.endOffset) or {}).items():
                if topic in topics:
                    reached[topic] = {int(part): int(offset) for part, offset in parts.items()}
        return reached

    def close(self) -> None:
        for log in self._opened.values():
            log.close()
