"""Where dead letters go that go to a topic: an address has no place for how a broker is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.kafka.settings import SERVERS
from penstock.connectors.log.address import KAFKA, LogAddress, parse_topic
from penstock.dataflow.endpoints import reading_of, writing_of
from penstock.dataflow.pipeline import Kind
from penstock.dataflow.secret_options import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.dataflow.pipeline import Pipeline


def letter_topic(pipeline: Pipeline, place: str) -> tuple[LogAddress, str]:
    """The log and the topic of an address; a broker is reached as the pipeline's sources and sinks at the same servers
    reach it (TLS, SASL)."""
    address, topic = parse_topic(place)
    servers = address.options.get(PREFIX + SERVERS)
    for options in _kafka_options(pipeline) if address.format == KAFKA else ():
        if options.get(PREFIX + SERVERS) == servers:
            same = {key: value for key, value in options.items() if key.startswith(PREFIX)}
            return LogAddress(KAFKA, {**same, **address.options}), topic
    return address, topic


def _kafka_options(pipeline: Pipeline) -> Iterator[Mapping[str, str]]:
    for operator in pipeline.operators.values():
        if operator.kind is Kind.SOURCE and reading_of(operator).format == KAFKA:
            yield reading_of(operator).options
        elif operator.kind is Kind.SINK and writing_of(operator).format == KAFKA:
            yield writing_of(operator).options
