"""Logs and topics by address, as people write them: `log:FOLDER` and `kafka:HOST:PORT`, with `/TOPIC` behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import BadInputError
from penstock.connectors.log_contract import LogError, check_topic
from penstock.dataflow.pipeline import Kind, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.connectors.log_contract import TopicLog
    from penstock.dataflow.pipeline import Operator


KAFKA, LOG = "kafka", "log"
FORMATS = (KAFKA, LOG)
"""Formats of sources and sinks that are topics."""


@dataclass(frozen=True)
class LogAddress:
    """Which log, in the options of a source or sink: `path` for the embedded one, `kafka.*` for Kafka."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> TopicLog:
        if self.format == LOG:
            from penstock.connectors.embedded_log import EmbeddedLog  # noqa: PLC0415 - only what is used is loaded

            path = self.options.get("path")
            if not path:
                raise BadInputError("format log: expected the option path: FOLDER")
            return EmbeddedLog(Path(path))
        from penstock.connectors.connection_settings import client_settings  # noqa: PLC0415
        from penstock.connectors.kafka_log import KafkaLog  # noqa: PLC0415 - belongs to the extra

        return KafkaLog(client_settings(self.options))

    def __str__(self) -> str:
        where = self.options.get("path" if self.format == LOG else "kafka.bootstrap.servers", "?")
        return f"{self.format}:{where}"


def is_address(text: str) -> bool:
    return text.partition(":")[0] in FORMATS and ":" in text


def absolute_place(text: str) -> str:
    """A topic as it is, and the path of a folder wherever it is looked at from."""
    return text if is_address(text) else str(Path(text).absolute())


def parse_log(text: str) -> LogAddress:
    """`log:FOLDER` or `kafka:HOST:PORT[,HOST:PORT...]`."""
    kind, colon, where = text.partition(":")
    if kind not in FORMATS or not colon or not where.strip("/"):
        raise BadInputError(f"'{text[:80]}': expected kafka:HOST:PORT or log:FOLDER")
    where = where.removeprefix("//")
    options = {"path": str(Path(where).absolute())} if kind == LOG else {"kafka.bootstrap.servers": where}
    return LogAddress(kind, options)


def parse_topic(text: str) -> tuple[LogAddress, str]:
    """`log:FOLDER/TOPIC` or `kafka:HOST:PORT/TOPIC`."""
    log, slash, topic = text.rpartition("/")
    if not slash or not is_address(log):
        raise BadInputError(f"'{text[:80]}': expected kafka:HOST:PORT/TOPIC or log:FOLDER/TOPIC")
    return parse_log(log), check_topic(topic)


def subscribed(options: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that a source names."""
    return tuple(check_topic(name.strip()) for name in options.get("subscribe", "").split(",") if name.strip())


def topics_there(address: LogAddress, who: str) -> tuple[str, ...]:
    """The topics that a source names. No broker, no such topic: said before anything runs."""
    topics = subscribed(address.options)
    if not topics:
        raise BadInputError(f"{who}: expected the option subscribe: TOPIC[,TOPIC...]")
    log = address.open()
    try:
        for topic in topics:
            log.spans(topic)
    except LogError as error:
        raise BadInputError(f"{who}: {error}") from error
    finally:
        log.close()
    return topics


# A pipeline with other ends: the same operators, reading from a topic and writing into topics.
#
# A built-in application reads numbers from the load generator and counts what reaches its sinks; this way it reads what
# `penstock produce` sent, and leaves its answers where others read them.


def reading_from(pipeline: Pipeline, topic: str) -> Pipeline:
    """Every source reads the topic at `kafka:HOST:PORT/TOPIC` or `log:FOLDER/TOPIC`, from its beginning."""
    address, name = parse_topic(topic)
    options = {**address.options, "subscribe": name}
    return _with(pipeline, Kind.SOURCE, lambda operator: {"format": address.format, "options": options})


def writing_to(pipeline: Pipeline, topic: str) -> Pipeline:
    """Every sink writes to the topic; one of several to TOPIC-SINK."""
    address, name = parse_topic(topic)
    sinks = [operator for operator in pipeline.operators.values() if operator.kind is Kind.SINK]

    def into(operator: Operator) -> dict[str, object]:
        own = name if len(sinks) == 1 else f"{name}-{operator.name}"
        return {"format": address.format, "options": {**address.options, "topic": own}}

    return _with(pipeline, Kind.SINK, into)


def _with(pipeline: Pipeline, kind: Kind, more: Callable[[Operator], Mapping[str, object]]) -> Pipeline:
    operators = [
        operator.model_copy(update={"files": None, "parquet": None, **more(operator)})
        if operator.kind is kind
        else operator
        for operator in pipeline.operators.values()
    ]
    return Pipeline.of(pipeline.name, operators, pipeline.streams, pipeline.constraints)
