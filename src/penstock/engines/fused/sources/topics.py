"""Choice of the connector that reads a topic: Spark's own if its jars are there, else ours; the embedded log is always
ours."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyspark

from penstock.base.errors import BadInputError
from penstock.connectors.connection_settings import KAFKA, is_for_clients, java_options
from penstock.connectors.log_contract import LogError
from penstock.connectors.offsets import lag
from penstock.connectors.topic_address import LogAddress, subscribed, topics_there
from penstock.dataflow.formats import check_known_to_us, find_format, most_per_batch, reading_of
from penstock.report.figures import kept_apart
from penstock.spark.internals.plans import check_format_exists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from penstock.connectors.log_contract import TopicLog
    from penstock.connectors.offsets import Offsets
    from penstock.dataflow.formats import Reading, Writing
    from penstock.dataflow.pipeline import Pipeline


# Offsets as the progress of a query shows them.


_NONE = frozenset({None, "", "null", "None"})
"""Values without an offset, as before the first batch: Spark 4.0 writes it as Python does."""


def parsed_offset(text: str | None) -> Any:
    """Return the offset that a source wrote; None if there is none."""
    return None if text in _NONE else json.loads(str(text))


SPARKS, OURS = "spark", "own"
SPARKS_WORD, OUR_WORD = "Spark's", "our own"
CONNECTOR = "connector"
"""Option of a source that selects the connector, if both can read it."""
DELIVERY = "delivery"
"""The option of a sink: exactly-once (ours), or at-least-once, which is what Spark's own promises."""
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
GROUP = "groupId"
"""Option of a source: a consumer group whose offsets follow the run."""
_FOR_US = (CONNECTOR, DELIVERY, GROUP)


def read_topics(session: SparkSession, reading: Reading, who: str, slots: int, folder: Path | None) -> DataFrame:
    if reading.schema is not None:
        raise BadInputError(f"{who}: messages have a key and a value; leave out schema, and parse them in an operator")
    if connector_of(session, reading, who) == OURS:
        _can_be_bounded(who)
        from penstock.engines.fused.sources.topic_source import topic_frame  # noqa: PLC0415 - Spark before 4.2 cannot load it

        check_known_to_us(reading.options, who)
        most_per_batch(reading.options, who)
        topics_there(LogAddress(reading.format, reading.options), who)
        given = {**reading.options, "penstock.format": reading.format}
        return topic_frame(session, who, given, slots, folder)
    options = {key: value for key, value in reading.options.items() if key not in _FOR_US and not is_for_clients(key)}
    isolated = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    all_options = {**isolated, **java_options(reading.options, who), **options}
    return session.readStream.format(KAFKA).options(**all_options).load()


def _can_be_bounded(who: str) -> None:
    """A reader of ours takes in a part of what there is, and Spark asks readers in Python for a part since 4.2."""
    if find_spec("pyspark.sql.streaming.datasource") is None:
        raise BadInputError(
            f"{who}: Penstock's own reader of topics needs pyspark 4.2 or newer, this is {pyspark.__version__}; for "
            "Kafka give Spark's connector (--packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION)"
        )


def connector_of(session: SparkSession, reading: Reading, who: str) -> str:
    asked = reading.options.get(CONNECTOR)
    if asked not in {None, SPARKS, OURS}:
        raise BadInputError(f"{who}: option connector: expected {SPARKS} or {OURS}, found '{asked}'")
    if reading.format != KAFKA:
        return OURS
    if asked == SPARKS and GROUP in reading.options:
        raise BadInputError(f"{who}: option {GROUP}: only our own connector tells a group; say connector: {OURS}")
    if asked is not None:
        return asked
    return SPARKS if has_connector(session) and GROUP not in reading.options else OURS


def has_connector(session: SparkSession) -> bool:
    """Whether Spark finds its own connector to Kafka, as it would look for it."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - Spark loads only when it is used

    try:
        check_format_exists(session, KAFKA)
    except AnalysisException:
        return False
    return True


def read_by_us(session: SparkSession, pipeline: Pipeline) -> list[str]:
    """Sources that are topics and read by our own connector: what a batch takes in can be bounded while it runs."""
    return [
        name
        for name in pipeline.sources
        if find_format((reading := reading_of(pipeline.operators[name])).format).is_log
        and not reading.of_the_user
        and connector_of(session, reading, f"source '{name}'") == OURS
    ]


def connector_notes(session: SparkSession, pipeline: Pipeline) -> list[str]:
    """Which one runs, for the report."""
    ours = read_by_us(session, pipeline)
    kafka = [name for name in pipeline.sources if reading_of(pipeline.operators[name]).format == KAFKA]
    return [f"source '{name}': Kafka, read by {OUR_WORD if name in ours else SPARKS_WORD} connector" for name in kafka]


def sparks_writing(session: SparkSession, writing: Writing, who: str) -> Writing:
    """A sink that asks for no more than Spark's own connector promises."""
    asked = writing.options.get(DELIVERY)
    if asked != AT_LEAST_ONCE:
        raise BadInputError(f"{who}: option delivery: expected {EXACTLY_ONCE} or {AT_LEAST_ONCE}, found '{asked}'")
    if not has_connector(session):
        raise BadInputError(f"{who}: {AT_LEAST_ONCE} needs Spark's connector, and its jars are not there")
    options = {key: value for key, value in writing.options.items() if key not in _FOR_US and not is_for_clients(key)}
    return replace(writing, options={**java_options(writing.options, who), **options})


def lag_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """Return waiting messages by topic/partition, of all sources that are topics. Both connectors report them alike."""
    ends = ((topic_offsets(source.endOffset), topic_offsets(source.latestOffset)) for source in progress.sources)
    return kept_apart(lag(end, latest) for end, latest in ends if end and latest)


def covered_of(progress: StreamingQueryProgress) -> int:
    """Return the offsets that a batch covered, of all sources that are topics: its messages, and the holes between
    them. The beginning of new partitions is not known."""
    ends = ((topic_offsets(source.startOffset), topic_offsets(source.endOffset)) for source in progress.sources)
    return sum(
        max(0, last - start[topic][number])
        for start, end in ends
        if start and end
        for topic, parts in end.items()
        for number, last in parts.items()
        if number in start.get(topic, {})
    )


def topic_offsets(text: str | None) -> Offsets | None:
    """Return the offsets in a source's progress; None if it is not of topics."""
    offsets = parsed_offset(text)
    is_topics = isinstance(offsets, dict) and offsets and all(isinstance(parts, dict) for parts in offsets.values())
    return offsets if is_topics else None


# Consumer groups that get the read offsets of a run, so that other tools see them (`groupId`).
#
# The run commits them when a batch is through. Spark reports that to a source only when the next batch begins, and for
# the last one never: a group was always a batch behind.


_LOG = logging.getLogger(__name__)


class GroupTeller:
    """Publishes offsets for the sources that name a consumer group. Offsets that cannot be published now are published
    with the next; the first failure is noted."""

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
    """Consumer groups of the sources that our own connector reads."""

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
    """Return the offsets that each source has reached. Spark has no names of sources: one is recognised by its topics,
    and of several with the same topics the first in the query is the first of the pipeline."""
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
