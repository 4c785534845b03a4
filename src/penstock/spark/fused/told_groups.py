"""Consumer groups that are told how far a run has read, so that other tools see it (`groupId`).

The run tells them when a batch is through. Spark tells a source of it only when the next batch begins, and of the last
one never: a group was always a batch behind.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from penstock.connectors.log.address import LogAddress, subscribed
from penstock.connectors.log.contract import LogError
from penstock.dataflow.endpoints import reading_of
from penstock.spark.fused.topics import GROUP, read_by_us, topic_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from penstock.connectors.log.contract import TopicLog
    from penstock.connectors.log.offsets import Offsets
    from penstock.dataflow.endpoints import Reading
    from penstock.dataflow.pipeline import Pipeline

_LOG = logging.getLogger(__name__)


class GroupTeller:
    """Of sources that are topics, by name, those that name a group. What a group is not told now it is told with what
    comes next; that it was not is noted, the first time."""

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self.readings = {name: reading for name, reading in readings.items() if GROUP in reading.options}
        self._opened: dict[str, TopicLog] = {}
        self._failures: dict[str, str] = {}

    def tell(self, source: str, reached: Offsets) -> None:
        reading = self.readings[source]
        try:
            if source not in self._opened:
                self._opened[source] = LogAddress(reading.format, reading.options).open()
            for topic, parts in reached.items():
                offsets = {int(part): int(offset) for part, offset in parts.items()}
                self._opened[source].commit_group(reading.options[GROUP], topic, offsets)
        except LogError as error:
            if source not in self._failures:
                self._failures[source] = str(error)
                _LOG.warning("%s", self.notes[-1])

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"source '{source}': consumer group '{self.readings[source].options[GROUP]}' could not always be told how "
            f"far it has read; the first time: {why}"
            for source, why in self._failures.items()
        )

    def close(self) -> None:
        for log in self._opened.values():
            log.close()


class ToldGroups:
    """Of the sources that our own connector reads."""

    def __init__(self, session: SparkSession, pipeline: Pipeline) -> None:
        by_us = read_by_us(session, pipeline)
        self._teller = GroupTeller({name: reading_of(pipeline.operators[name]) for name in by_us})
        readings = [reading_of(pipeline.operators[name]) for name in by_us]
        self._topics = {name: subscribed(reading.options) for name, reading in zip(by_us, readings, strict=True)}

    def tell(self, progress: StreamingQueryProgress) -> None:
        for source, reached in reached_by(self._topics, progress).items():
            if source in self._teller.readings:
                self._teller.tell(source, reached)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._teller.notes

    def close(self) -> None:
        self._teller.close()


def reached_by(topics: Mapping[str, Sequence[str]], progress: StreamingQueryProgress) -> dict[str, Offsets]:
    """How far each source has read. Spark has no names of sources: one is known by its topics, and of several that
    read the same ones the first in the query is the first of the pipeline."""
    ends = [offsets for source in progress.sources if (offsets := topic_offsets(source.endOffset))]
    reached: dict[str, Offsets] = {}
    earlier: Counter[frozenset[str]] = Counter()
    for source, names in topics.items():
        same = [offsets for offsets in ends if offsets.keys() == set(names)]
        number = earlier[frozenset(names)]
        earlier[frozenset(names)] += 1
        if number < len(same):
            reached[source] = same[number]
    return reached
