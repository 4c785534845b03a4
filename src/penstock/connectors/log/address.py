"""Logs and topics by address, as people write them: `log:FOLDER` and `kafka:HOST:PORT`, with `/TOPIC` behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.connectors.log.contract import LogError, check_topic
from penstock.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.log.contract import TopicLog

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
            from penstock.connectors.log.embedded import EmbeddedLog  # noqa: PLC0415 - only what is used is loaded

            path = self.options.get("path")
            if not path:
                raise BadInputError("format log: expected the option path: FOLDER")
            return EmbeddedLog(Path(path))
        from penstock.connectors.kafka.client import KafkaLog  # noqa: PLC0415 - belongs to the extra
        from penstock.connectors.kafka.settings import client_settings  # noqa: PLC0415

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
