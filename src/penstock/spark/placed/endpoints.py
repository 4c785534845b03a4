"""What a placed run can read and write: sources with offsets, sinks that commit by epoch. All else is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.connectors.log.address import FORMATS, LogAddress, is_address, topics_there
from penstock.connectors.log.contract import LogError, producer_name
from penstock.connectors.log.feed import TopicShare
from penstock.connectors.log.publishing import TopicSink
from penstock.connectors.secrets_elsewhere import with_secrets
from penstock.connectors.staged_sinks import SinkFiles
from penstock.dataflow.endpoints import COUNT, reading_of, writing_of
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.topic_options import check_known_to_us
from penstock.errors import BadInputError
from penstock.runtime.dead_letters import DEAD_LETTERS
from penstock.spark.fused.letter_topics import letter_topic
from penstock.spark.placed.frame_sinks import check_delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataflow.endpoints import Reading
    from penstock.dataflow.pipeline import Pipeline

CONSOLE = "console"
FILES = ("parquet", "json")


def check_sources(pipeline: Pipeline) -> None:
    for name in pipeline.sources:
        operator = pipeline.operators[name]
        if reading_of(operator).format in FORMATS:
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
        if operator.console or writing.format == CONSOLE:
            shown.append(name)
        if writing.format in FILES:
            place = with_secrets(writing.options, f"sink '{name}'").get("path")
            if not place:
                raise BadInputError(f"sink '{name}': format {writing.format} needs a path")
            files[name] = SinkFiles(_absolute(place), writing.format)
        elif writing.format in FORMATS:
            files[name] = _topic_sink(name, LogAddress(writing.format, writing.options), writing.options.get("topic"))
        elif writing.format not in {COUNT, CONSOLE}:
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
    return {name: topic_share(name, reading) for name, reading in readings.items() if reading.format in FORMATS}


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
