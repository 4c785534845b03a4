"""What a placed run can read and write: sources with offsets, sinks that commit by epoch. All else is refused."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import BadInputError, PenstockError
from penstock.connectors.connection_settings import with_secrets
from penstock.connectors.log_contract import LogError, producer_name
from penstock.connectors.staged_sinks import FRAME_PREFIX, SinkFiles, TopicSink
from penstock.connectors.storage import storage
from penstock.connectors.topic_address import LogAddress, is_address, topics_there
from penstock.connectors.topic_feed import TopicShare
from penstock.dataflow.formats import PlacedCommit, check_known_to_us, find_format, reading_of, writing_of
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.secrets import redact
from penstock.engines.fused.sinks.topic_writer import letter_topic
from penstock.engines.fused.sinks.writers import make_writer, write_batch
from penstock.engines.fused.sources.topics import GroupTeller
from penstock.runtime.dead_letters import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.resource import ResourceProfile
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.commit import Commit, Output
    from penstock.connectors.offsets import Offsets
    from penstock.dataflow.formats import Reading
    from penstock.dataflow.pipeline import Operator, Pipeline
    from penstock.engines.fused.sinks.writers import Writer


# Sinks that Spark writes: rows are staged as files, and handed to the sink's writer as one frame when their epoch is
# committed, with the number of the epoch.
#
# A table by JDBC, Delta and files of other formats leave out an epoch they have: those hold every row once. Other
# formats and functions of the user may get an epoch again after a crash: they are accepted only if the user allows it.


_LOG = logging.getLogger(__name__)


class NotSentError(OSError, PenstockError):
    """A sink did not take an epoch that is committed; it waits."""


def commits_by_epoch(operator: Operator) -> bool:
    writing = writing_of(operator)
    return not writing.of_the_user and find_format(writing.format).exactly_once


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
    executor of a slot that the run holds then: `profile` returns its resource profile, None for any executor."""

    def __init__(
        self,
        session: SparkSession,
        writers: Mapping[str, Writer],
        place: str,
        profile: Callable[[], ResourceProfile | None],
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
        except Exception as error:  # any error of the database or the user's code
            line = f"sink '{sink}': {type(error).__name__}: {error}".splitlines()[0]
            raise NotSentError(redact(line)) from error
        for path in staged:
            store.delete(path)

    def _frame(self, staged: list[str]) -> DataFrame:
        place = self._place.rstrip("/")
        frame = self._session.read.option("mergeSchema", "true").parquet(*(f"{place}/{path}" for path in staged))
        return frame.mapInArrow(_same, frame.schema, profile=self._profile())

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def _same(batches: Any) -> Any:
    """Python code can be told where to run; reading and writing alone cannot."""
    return batches


def check_sources(pipeline: Pipeline) -> None:
    for name in pipeline.sources:
        operator = pipeline.operators[name]
        if find_format(reading_of(operator).format).is_log:
            topic_share(name, reading_of(operator))
        elif not reading_of(operator).is_load and operator.files is None:
            raise BadInputError(
                f"source '{name}': placed runs read the load generator, files (files=...) and topics, not "
                f"'{reading_of(operator).format}'; run it fused"
            )


def sinks_of(
    pipeline: Pipeline, dead_letters: Path | None, *, at_least_once: bool = False
) -> tuple[dict[str, SinkFiles], tuple[str, ...]]:
    """Where rows are written, and which sinks are shown on the console. `at_least_once`: a sink that cannot commit by
    epoch may be written all the same."""
    files: dict[str, SinkFiles] = {}
    shown: list[str] = []
    for name, operator in pipeline.operators.items():
        if operator.kind is not Kind.SINK:
            continue
        writing = writing_of(operator)
        commit = PlacedCommit.SPARK if writing.of_the_user else find_format(writing.format).placed_commit
        if operator.console or commit is PlacedCommit.CONSOLE:
            shown.append(name)
        match commit:
            case PlacedCommit.SLOTS:
                place = with_secrets(writing.options, f"sink '{name}'", writing.format).get("path")
                if not place:
                    raise BadInputError(f"sink '{name}': format {writing.format} needs a path")
                files[name] = SinkFiles(_absolute(place), writing.format)
            case PlacedCommit.LOG:
                address = LogAddress(writing.format, writing.options)
                files[name] = _topic_sink(name, address, writing.options.get("topic"))
            case PlacedCommit.SPARK:
                check_delivery(operator, at_least_once=at_least_once)
                files[name] = SinkFiles("", "parquet", frame_of=name)
    if dead_letters is not None and is_address(str(dead_letters)):
        files[DEAD_LETTERS] = _topic_sink("dead letters", *letter_topic(pipeline, str(dead_letters)))
    elif dead_letters is not None:
        files[DEAD_LETTERS] = SinkFiles(_absolute(str(dead_letters)), "json")
    return files, tuple(shown)


def _topic_sink(name: str, address: LogAddress, topic: str | None) -> SinkFiles:
    """Asked for; under which name it sends, and where rows are staged, is said by its run (`named_sinks`)."""
    if not topic:
        raise BadInputError(f"sink '{name}': format {address.format} needs the option topic")
    asked = TopicSink(format=address.format, options=dict(address.options), topic=topic, producer=name, staging="")
    return SinkFiles("", "topic", asked)


def named_sinks(sinks: Mapping[str, SinkFiles], run: str, folder: str) -> dict[str, SinkFiles]:
    """Topics get the name of the run they are sent under. They, and what Spark writes, get a place to be staged in: for
    good, so that whoever goes on with the run knows what was sent."""
    place = f"{folder}/topics"
    named = dict(sinks)
    for number, (name, sink) in enumerate(sinks.items()):
        if sink.frame_of:
            named[name] = replace(sink, place=frames_place(folder))
        if sink.topic is not None:
            topic = sink.topic.model_copy(update={"producer": f"{producer_name(run)}-{number}", "staging": place})
            named[name] = SinkFiles(place, "topic", topic)
    return named


def frames_place(folder: str) -> str:
    return f"{folder}/frames"


def topic_shares(pipeline: Pipeline) -> dict[str, TopicShare]:
    """Sources that are topics."""
    readings = {name: reading_of(pipeline.operators[name]) for name in pipeline.sources}
    return {
        name: topic_share(name, reading) for name, reading in readings.items() if find_format(reading.format).is_log
    }


def topic_share(name: str, reading: Reading) -> TopicShare:
    options, address = reading.options, LogAddress(reading.format, reading.options)
    check_known_to_us(options, f"source '{name}'")
    topics = topics_there(address, f"source '{name}'")
    return TopicShare(
        name,
        address,
        topics,
        options.get("startingOffsets", "earliest"),
        goes_on=options.get("failOnDataLoss", "true").lower() == "false",
    )


def make_folders(files: dict[str, SinkFiles]) -> None:
    """A folder that cannot be made is complained about before anything runs."""
    for sink in files.values():
        if sink.topic is not None:
            _check_topic_there(sink.topic)
            continue
        if sink.frame_of or "://" in sink.place:
            continue
        try:
            Path(sink.place).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"{sink.place}: cannot be written: {error.strerror or error}") from error


def _check_topic_there(sink: TopicSink) -> None:
    log = LogAddress(sink.format, sink.options).open()
    try:
        log.spans(sink.topic)
    except LogError as error:
        raise BadInputError(f"sink '{sink.producer}': {error}") from error
    finally:
        log.close()


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).absolute())


# Consumer groups that get the read offsets of a placed run with its commits (`groupId`).


LAST_SECONDS = 15.0
"""The last commit of a run is told within so long, or not at all."""


class ToldCommits:
    """In a thread of its own: a broker that does not answer holds up nobody. Of commits that come meanwhile the last is
    told, which has all that those before have."""

    def __init__(self, pipeline: Pipeline) -> None:
        readings = {name: reading_of(pipeline.operators[name]) for name in pipeline.sources}
        logs = {name: reading for name, reading in readings.items() if find_format(reading.format).is_log}
        self._teller = GroupTeller(logs)
        self._changed = threading.Condition()
        self._untold: Mapping[str, Any] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._tell, name="consumer groups", daemon=True)
        if self._teller.readings:
            self._thread.start()

    def committed(self, commit: Commit) -> None:
        with self._changed:
            self._untold = commit.offsets
            self._changed.notify()

    def _tell(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._untold is not None or self._closed)
                offsets, self._untold = self._untold, None
            if offsets is None:
                return
            for source in self._teller.readings:
                self._teller.tell(source, offsets_of(source, offsets))

    def close(self) -> tuple[str, ...]:
        """What is left is told; returns what a report is to say of it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._teller.readings:
            self._thread.join(LAST_SECONDS)
        if not self._thread.is_alive():
            self._teller.close()
        return self._teller.notes


def offsets_of(source: str, offsets: Mapping[str, Any]) -> Offsets:
    """By topic and partition, of what a commit has by source/TOPIC/PARTITION."""
    own: Offsets = {}
    for key, at in offsets.items():
        if key.count("/") == 2:
            name, topic, partition = key.split("/")
            if name == source:
                own.setdefault(topic, {})[partition] = int(at)
    return own
